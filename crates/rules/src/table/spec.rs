//! Parses the `stick-table` line.

use super::{Data, DataKind, KeyType, MAX_ARRAY, Millis, Schema};
use crate::{
    hint,
    words::{Words, parse_size, parse_time_ms},
};
use penstock_config::Span;

/// The configuration of a table.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// The type of its keys.
    pub key: KeyType,
    /// The most entries it holds.
    pub size: usize,
    /// How long an entry lives after its last use.
    pub expire: Option<Millis>,
    /// Whether a full table refuses new entries rather than dropping the oldest.
    pub nopurge: bool,
    /// `peers`.
    pub peers: Option<String>,
    /// `srvkey addr` rather than `name`.
    pub server_key_is_address: bool,
    /// What entries store.
    pub schema: Schema,
    /// Data that the line names more than once, each time but the first.
    pub repeated: Vec<TableError>,
}

impl Default for TableSpec {
    fn default() -> Self {
        TableSpec {
            key: KeyType::Ip,
            size: 0,
            expire: None,
            nopurge: false,
            peers: None,
            server_key_is_address: false,
            schema: Schema::default(),
            repeated: Vec::new(),
        }
    }
}

/// An error in a line: where it is, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// Where the error is in the configuration.
    pub span: Span,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
}

const KEYWORDS: &[&str] = &["type", "size", "expire", "nopurge", "peers", "srvkey", "store"];
const TYPES: &[&str] = &["ip", "ipv6", "integer", "string", "binary"];

impl TableSpec {
    /// Parses the words after `stick-table`.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn parse(words: &mut Words<'_>) -> Result<TableSpec, TableError> {
        Self::parse_of(words, None)
    }

    /// As [`TableSpec::parse`], for a table of this `peers` section, if one is given.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn parse_of(words: &mut Words<'_>, peers: Option<&str>) -> Result<TableSpec, TableError> {
        let mut spec = TableSpec { peers: peers.map(str::to_owned), ..TableSpec::default() };
        let mut typed = false;
        let whole = words.line_span();
        let fail = |span, message: String, hint: Option<String>| Err(TableError { span, message, hint });
        while let Some(word) = words.next() {
            let mut value = |what: &str| match words.next() {
                Some(value) => Ok(value),
                None => Err(TableError {
                    span: word.span,
                    message: format!("'{}' of a stick table needs {what}", word.text),
                    hint: None,
                }),
            };
            match word.text.as_str() {
                "type" => {
                    let kind = value("a type")?;
                    typed = true;
                    spec.key = match kind.text.as_str() {
                        "ip" => KeyType::Ip,
                        "ipv6" => KeyType::Ipv6,
                        "integer" => KeyType::Integer,
                        // Without `len`, HAProxy's 32 bytes include the final NUL; with `len`, it adds one.
                        "string" => KeyType::String(31),
                        "binary" => KeyType::Binary(32),
                        other => {
                            return fail(
                                kind.span,
                                format!("unknown type '{other}' of a stick table"),
                                hint::nearest(other, TYPES.iter().copied())
                                    .or_else(|| Some(format!("one of {}", TYPES.join(", ")))),
                            );
                        }
                    };
                }
                "len" if matches!(spec.key, KeyType::String(_) | KeyType::Binary(_)) => {
                    let len = value("a length")?;
                    let Some(n) = len.text.parse::<usize>().ok().filter(|n| (1..=16384).contains(n)) else {
                        return fail(len.span, format!("'{}' is not a valid key length", len.text), None);
                    };
                    // HAProxy reserves room for the final NUL of strings, and so truncates nothing.
                    spec.key =
                        if matches!(spec.key, KeyType::String(_)) { KeyType::String(n) } else { KeyType::Binary(n) };
                }
                "size" => {
                    let size = value("a number of entries")?;
                    match parse_size(&size.text) {
                        Some(n) if (1..=u64::from(u32::MAX)).contains(&n) => spec.size = n as usize,
                        _ => return fail(size.span, format!("'{}' is not a valid table size", size.text), None),
                    }
                }
                "expire" => {
                    let time = value("a time")?;
                    match parse_time_ms(&time.text) {
                        Some(ms) if ms <= i32::MAX as u64 => spec.expire = (ms > 0).then_some(ms),
                        _ => {
                            return fail(
                                time.span,
                                format!("'{}' is not a valid time for entries to live", time.text),
                                None,
                            );
                        }
                    }
                }
                "nopurge" => spec.nopurge = true,
                "peers" if peers.is_none() => spec.peers = Some(value("a section's name")?.text.clone()),
                "srvkey" => {
                    let key = value("'name' or 'addr'")?;
                    match key.text.as_str() {
                        "name" => {}
                        "addr" => spec.server_key_is_address = true,
                        other => return fail(key.span, format!("'srvkey' is 'name' or 'addr', not '{other}'"), None),
                    }
                }
                "store" => {
                    let list = value("types of data")?;
                    let problem = |(message, hint)| TableError { span: list.span, message, hint };
                    let repeated = store(&mut spec.schema, &list.text).map_err(problem)?;
                    spec.repeated.extend(repeated.into_iter().map(|name| {
                        problem((
                            format!("'{name}' is stored already: the first time counts"),
                            Some("name it once".into()),
                        ))
                    }));
                }
                "write-to" => {
                    return fail(
                        word.span,
                        "'write-to' is refused: what peers send is written to one table".into(),
                        Some("remove it, and give the other table 'peers' as well".into()),
                    );
                }
                other => {
                    return fail(
                        word.span,
                        format!("unknown argument '{other}' of a stick table"),
                        hint::nearest(other, KEYWORDS.iter().copied()),
                    );
                }
            }
        }
        if !typed {
            return fail(whole, "a stick table needs a 'type'".into(), None);
        }
        if spec.size == 0 {
            return fail(whole, "a stick table needs a 'size'".into(), None);
        }
        let stores = |data: &Data| spec.schema.has(*data);
        for (array, singles) in ARRAYS {
            if let Some(single) = singles.iter().copied().find(stores).filter(|_| stores(array)) {
                let (array, single) = (array.name(), single.name());
                return fail(whole, format!("a stick table stores '{array}' or '{single}', not both"), None);
            }
        }
        Ok(spec)
    }
}

/// Which data can be read by the names of others: `gpt(1)` by that of `gpt0` as well.
const ARRAYS: &[(Data, &[Data])] = &[
    (Data::Gpt, &[Data::Gpt0]),
    (Data::Gpc, &[Data::Gpc0, Data::Gpc1]),
    (Data::GpcRate, &[Data::Gpc0Rate, Data::Gpc1Rate]),
];

/// Parses `gpc0,conn_rate(10s),gpc_rate(2,1m)`. Returns what is stored already.
fn store<'l>(schema: &mut Schema, list: &'l str) -> Result<Vec<&'l str>, (String, Option<String>)> {
    let mut repeated = Vec::new();
    // As in HAProxy, a comma may end the list.
    for item in split_items(list.strip_suffix(',').unwrap_or(list)) {
        let (name, args) = match item.split_once('(') {
            Some((name, args)) => match args.strip_suffix(')') {
                Some(args) => (name, Some(args)),
                None => return Err((format!("the parenthesis behind '{name}' is not closed"), None)),
            },
            None => (item, None),
        };
        // HAProxy's older name.
        let name = if name == "server_name" { "server_key" } else { name };
        let Some(data) = Data::ALL.iter().copied().find(|data| data.name() == name) else {
            return Err((
                format!("a stick table cannot store '{name}'"),
                hint::nearest(name, Data::ALL.iter().map(|data| data.name())),
            ));
        };
        if let (DataKind::Count, Some(args)) = (data.kind(), args) {
            return Err((format!("'{name}' takes nothing in parentheses, but '{args}' stands there"), None));
        }
        let args = args.unwrap_or_default();
        let (len, period) = match data.kind() {
            DataKind::Count => ("1", None),
            DataKind::Rate => ("1", Some(args)),
            DataKind::Counts => (args, None),
            DataKind::Rates => {
                let (len, period) = args.split_once(',').unwrap_or((args, ""));
                (len, Some(period))
            }
        };
        let Some(len) = len.trim().parse::<u32>().ok().filter(|n| (1..=MAX_ARRAY).contains(n)) else {
            return Err((format!("'{name}' needs a number of elements, 1 to {MAX_ARRAY}, in parentheses"), None));
        };
        let period = match period.map(|text| (text, parse_time_ms(text.trim()))) {
            None => 0,
            Some((_, Some(ms))) if ms > 0 => ms,
            Some(_) => return Err((format!("'{name}' needs a period in parentheses, such as {name}(10s)"), None)),
        };
        if !schema.store(data, period, len) {
            repeated.push(name);
        }
    }
    Ok(repeated)
}

/// Splits at commas outside parentheses.
fn split_items(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    list.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TableSpec, TableError> {
        let line = crate::words::line_of(text);
        TableSpec::parse(&mut Words::new(&line))
    }

    #[test]
    fn reads_what_deployments_write() {
        let spec =
            parse("type string len 64 size 1m expire 30m nopurge store gpc0,conn_rate(10s) store gpc_rate(2,1m)");
        let spec = spec.unwrap();
        assert_eq!((spec.key, spec.size, spec.expire), (KeyType::String(64), 1 << 20, Some(1_800_000)));
        assert!(spec.nopurge);
        assert_eq!(
            spec.schema.stored().collect::<Vec<_>>(),
            [(Data::Gpc0, 0, 1), (Data::ConnRate, 10_000, 1), (Data::GpcRate, 60_000, 2)]
        );
    }

    #[test]
    fn says_what_is_wrong_and_what_to_write() {
        let hint = |text: &str| parse(text).unwrap_err().hint;
        assert_eq!(hint("type sting size 1k"), Some("did you mean 'string'?".into()));
        assert_eq!(hint("type ip size 1k store conn_rat(1s)"), Some("did you mean 'conn_rate'?".into()));
        assert!(parse("type ip").unwrap_err().message.contains("'size'"));
        assert!(parse("type ip size 9 store conn_rate").unwrap_err().message.contains("period"));
        assert!(parse("type ip size 9 store gpc0,gpc0").unwrap().repeated[0].message.contains("already"));
        for both in ["gpt(1),gpt0", "gpc1,gpc(1)", "gpc_rate(1,1s),gpc0_rate(1s)"] {
            assert!(parse(&format!("type ip size 9 store {both}")).unwrap_err().message.contains("not both"), "{both}");
        }
        assert!(parse("type ip size 9 store gpc(1),gpc0_rate(1s)").is_ok());
    }
}
