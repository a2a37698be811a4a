//! Commands about maps and ACLs: lists of patterns that rules read, by number or file.

use crate::{Args, Level, Refusal, table::Entry};
use penstock_config::bytes_of;

/// A command about lists of patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patterns {
    /// The kind that the client names.
    pub kind: PatternKind,
    /// The action.
    pub action: PatternAction,
}

/// The kind of a list, as a client sees it: a list that is read in both ways is both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternKind {
    /// Patterns with values.
    Map,
    /// Patterns alone.
    Acl,
}

/// The actions on lists of patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternAction {
    /// Show all lists.
    List {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Show the entries of one.
    Show {
        /// Which.
        of: PatternsOf,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Show what a sample matches.
    Get(String, Vec<u8>),
    /// Add entries, each with its value.
    Add(PatternsOf, Vec<(Vec<u8>, Vec<u8>)>),
    /// Change the value of an entry.
    Set(String, PatternKey, Vec<u8>),
    /// Remove an entry.
    Delete(String, PatternKey),
    /// Remove all entries.
    Clear(PatternsOf),
    /// Announce a new version.
    Prepare(String),
    /// Make rules use a version.
    Commit(u32, String),
}

/// A list of patterns, and a version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternsOf {
    /// `#` and its number, or the name of its file.
    pub name: String,
    /// The version; `None` for the one that rules use.
    pub version: Option<u32>,
}

/// Selects entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternKey {
    /// All entries with this pattern.
    Pattern(Vec<u8>),
    /// The entry with this number, as shown by `show map`.
    Number(u64),
}

pub(crate) const ENTRIES: &[Entry<Patterns>] = &[
    Entry::new("add acl", "add acl [@<ver>] <acl> <pattern>", "add an acl entry", |args| {
        let version = version(args)?;
        let (Some(name), Some(pattern)) = (args.word(), args.bytes()) else {
            return Err(Refusal::new("'add acl' expects two parameters: ACL identifier and pattern."));
        };
        acl(PatternAction::Add(PatternsOf { name, version }, vec![(pattern, Vec::new())]))
    })
    .level(Level::Operator)
    .changes("the entries of an ACL"),
    Entry::new(
        "add map",
        "add map [@<ver>] <map> <key> <val>",
        "add a map entry (payload supported instead of key/val)",
        |args| {
            const EXPECTS: &str = "'add map' expects three parameters (map identifier, key and value) or one parameter (map \
                                   identifier) and a payload";
            let version = version(args)?;
            let name = args.require(EXPECTS)?;
            let entries = match args.payload() {
                Some(payload) => pairs(&payload)?,
                None => {
                    vec![(args.require_bytes(EXPECTS)?, args.require_bytes(EXPECTS)?)]
                }
            };
            map(PatternAction::Add(PatternsOf { name, version }, entries))
        },
    )
    .level(Level::Operator)
    .changes("the entries of a map"),
    Entry::new("clear acl", "clear acl [@<ver>] <acl>", "clear the contents of this acl", |args| {
        acl(PatternAction::Clear(named(args, "Missing ACL identifier.")?))
    })
    .level(Level::Operator)
    .changes("the entries of an ACL"),
    Entry::new("clear map", "clear map [@<ver>] <map>", "clear the contents of this map", |args| {
        map(PatternAction::Clear(named(args, "Missing map identifier.")?))
    })
    .level(Level::Operator)
    .changes("the entries of a map"),
    Entry::new("commit acl", "commit acl @<ver> <acl>", "commit the ACL at this version", |args| {
        let (version, name) = committed(args, "Missing ACL identifier.")?;
        acl(PatternAction::Commit(version, name))
    })
    .level(Level::Operator)
    .changes("the version of an ACL"),
    Entry::new("commit map", "commit map @<ver> <map>", "commit the map at this version", |args| {
        let (version, name) = committed(args, "Missing map identifier.")?;
        map(PatternAction::Commit(version, name))
    })
    .level(Level::Operator)
    .changes("the version of a map"),
    Entry::new("del acl", "del acl <acl> [<key>|#<ref>]", "delete acl entries matching <key>", |args| {
        const EXPECTS: &str = "This command expects two parameters: ACL identifier and key.";
        let name = args.require(EXPECTS)?;
        acl(PatternAction::Delete(name, key(args.require(EXPECTS)?)))
    })
    .level(Level::Operator)
    .changes("the entries of an ACL"),
    Entry::new("del map", "del map <map> [<key>|#<ref>]", "delete map entries matching <key>", |args| {
        const EXPECTS: &str = "This command expects two parameters: map identifier and key.";
        let name = args.require(EXPECTS)?;
        map(PatternAction::Delete(name, key(args.require(EXPECTS)?)))
    })
    .level(Level::Operator)
    .changes("the entries of a map"),
    Entry::new("get acl", "get acl <acl> <value>", "report the patterns matching a sample for an ACL", |args| {
        const MISSING: &str = "Missing ACL identifier and/or key.";
        acl(PatternAction::Get(args.require(MISSING)?, args.require_bytes(MISSING)?))
    }),
    Entry::new("get map", "get map <map> <value>", "report the keys and values matching a sample for a map", |args| {
        const MISSING: &str = "Missing map identifier and/or key.";
        map(PatternAction::Get(args.require(MISSING)?, args.require_bytes(MISSING)?))
    }),
    Entry::new("prepare acl", "prepare acl <acl>", "prepare a new version for atomic ACL replacement", |args| {
        acl(PatternAction::Prepare(args.word().unwrap_or_default()))
    })
    .level(Level::Operator)
    .changes("the versions of an ACL"),
    Entry::new("prepare map", "prepare map <map>", "prepare a new version for atomic map replacement", |args| {
        map(PatternAction::Prepare(args.word().unwrap_or_default()))
    })
    .level(Level::Operator)
    .changes("the versions of a map"),
    Entry::new("set map", "set map <map> [<key>|#<ref>] <value>", "modify a map entry", |args| {
        const EXPECTS: &str = "'set map' expects three parameters: map identifier, key and value.";
        let name = args.require(EXPECTS)?;
        let key = key(args.require(EXPECTS)?);
        map(PatternAction::Set(name, key, args.require_bytes(EXPECTS)?))
    })
    .level(Level::Operator)
    .changes("a value of a map"),
    Entry::new(
        "show acl",
        "show acl [[@<ver>] <acl>]",
        "report available acls or dump an acl's contents",
        |args| acl(shown(args)?),
    ),
    Entry::new(
        "show map",
        "show map [[@<ver>] <map>]",
        "report available maps or dump a map's contents",
        |args| map(shown(args)?),
    ),
];

fn map(action: PatternAction) -> Result<Patterns, Refusal> {
    Ok(Patterns { kind: PatternKind::Map, action })
}

fn acl(action: PatternAction) -> Result<Patterns, Refusal> {
    Ok(Patterns { kind: PatternKind::Acl, action })
}

/// Parses `@VERSION`, if it is there.
fn version(args: &mut Args) -> Result<Option<u32>, Refusal> {
    let Some(digits) = args.peek().and_then(|word| word.strip_prefix('@')) else { return Ok(None) };
    let version = digits.parse().map_err(|_| Refusal::new(format!("'@{digits}' is not a version number.")))?;
    args.word();
    Ok(Some(version))
}

fn named(args: &mut Args, missing: &str) -> Result<PatternsOf, Refusal> {
    let version = version(args)?;
    Ok(PatternsOf { version, name: args.require(missing)? })
}

fn committed(args: &mut Args, missing: &str) -> Result<(u32, String), Refusal> {
    let version = version(args)?.ok_or_else(|| Refusal::new("Missing version number."))?;
    Ok((version, args.require(missing)?))
}

/// Without any word, all lists are meant; a version alone is an error.
fn shown(args: &mut Args) -> Result<PatternAction, Refusal> {
    // A list with that name can be given by its number.
    let json = args.take_anywhere("json");
    if args.is_empty() {
        return Ok(PatternAction::List { json });
    }
    let version = version(args)?;
    Ok(PatternAction::Show { of: PatternsOf { version, name: args.word().unwrap_or_default() }, json })
}

fn key(word: String) -> PatternKey {
    let number = word.strip_prefix('#').map(|number| number.strip_prefix("0x").unwrap_or(number));
    match number.and_then(|number| u64::from_str_radix(number, 16).ok()) {
        Some(number) => PatternKey::Number(number),
        None => PatternKey::Pattern(bytes_of(&word).into_owned()),
    }
}

/// Parses the lines of a payload: a key, and the rest of the line as its value.
#[expect(clippy::type_complexity, reason = "keys with their values, as they come")]
fn pairs(payload: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Refusal> {
    let lines = payload.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let pair = |line: &[u8]| {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let end = line.iter().position(blank).unwrap_or(line.len());
        let (key, rest) = line.split_at(end);
        let begin = rest.iter().position(|byte| !blank(byte)).unwrap_or(rest.len());
        if rest.is_empty() {
            let key = String::from_utf8_lossy(key);
            return Err(Refusal::new(format!("Missing value for key '{key}'.")));
        }
        Ok((key.to_vec(), rest[begin..].to_vec()))
    };
    let pairs: Vec<_> = lines.filter(|line| !line.is_empty()).map(pair).collect::<Result<_, _>>()?;
    if pairs.is_empty() {
        return Err(Refusal::new("Missing value for key ''."));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Found, Mode, TABLE};

    fn parse(line: &str, payload: Option<&str>) -> Result<PatternAction, String> {
        let words = line.split(' ').map(String::from).collect();
        match TABLE.find(words, payload.map(|text| text.as_bytes().to_vec()), |mode| mode == Mode::Always) {
            Found::Entry(found, mut args) => match found.parse(&mut args) {
                Ok(Command::Patterns(patterns)) => Ok(patterns.action),
                Ok(other) => panic!("{other:?}"),
                Err(refusal) => Err(refusal.0),
            },
            Found::Nothing => panic!("no such command: {line}"),
        }
    }

    fn of(name: &str, version: Option<u32>) -> PatternsOf {
        PatternsOf { name: name.into(), version }
    }

    #[test]
    fn versions_names_and_keys_are_told_apart() {
        assert_eq!(parse("show map", None), Ok(PatternAction::List { json: false }));
        assert_eq!(parse("show map @3 a.map", None), Ok(PatternAction::Show { of: of("a.map", Some(3)), json: false }));
        assert_eq!(parse("show acl #2", None), Ok(PatternAction::Show { of: of("#2", None), json: false }));
        assert_eq!(parse("show map json", None), Ok(PatternAction::List { json: true }));
        assert_eq!(parse("show map a.map json", None), Ok(PatternAction::Show { of: of("a.map", None), json: true }));
        assert_eq!(parse("del map m #0x1f", None), Ok(PatternAction::Delete("m".into(), PatternKey::Number(31))));
        assert_eq!(
            parse("del map m #x", None),
            Ok(PatternAction::Delete("m".into(), PatternKey::Pattern("#x".into())))
        );
        assert_eq!(parse("commit map @7 m", None), Ok(PatternAction::Commit(7, "m".into())));
        assert_eq!(parse("commit map m", None), Err("Missing version number.".into()));
        assert_eq!(parse("commit acl @7", None), Err("Missing ACL identifier.".into()));
        assert_eq!(parse("add map @x m k v", None), Err("'@x' is not a version number.".into()));
        assert_eq!(parse("add map @4294967296 m k v", None), Err("'@4294967296' is not a version number.".into()));
    }

    #[test]
    fn a_payload_is_a_pair_a_line() {
        let entries = |pairs: &[(&str, &str)]| {
            let bytes = |(key, value): &(&str, &str)| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
            PatternAction::Add(of("m", Some(1)), pairs.iter().map(bytes).collect())
        };
        let payload = "k1 v1\r\n\nk2\tv 2 \nk3 \n";
        assert_eq!(parse("add map @1 m", Some(payload)), Ok(entries(&[("k1", "v1"), ("k2", "v 2 "), ("k3", "")])));
        assert_eq!(parse("add map m", Some("k1 v\nk2\n")), Err("Missing value for key 'k2'.".into()));
        for nothing in ["", "\n", "\r\n\n"] {
            assert_eq!(parse("add map m", Some(nothing)), Err("Missing value for key ''.".into()));
        }
        assert!(parse("add map m k", None).unwrap_err().starts_with("'add map' expects"));
    }
}
