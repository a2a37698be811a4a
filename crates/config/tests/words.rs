//! How lines become words, beside HAProxy: a `.notice` prints the word that it is given.

use penstock_config::{Config, Env, Severity, Source, load, model::ProxyId};
use std::{collections::BTreeMap, path::Path, process::Command};

fn variables() -> BTreeMap<String, String> {
    [("A", "alpha"), ("SPACED", " one  two "), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

/// For each line, the word it gives, or `None` where it is refused.
fn ours(lines: &[String]) -> Vec<Option<String>> {
    let env = Env { variables: variables(), ..Env::default() };
    let text: String = lines.iter().map(|l| format!(".notice {l}\n")).collect();
    let (_, diagnostics) = load([Source::new("words.cfg", text.as_bytes())], &env);
    let mut words = vec![None; lines.len()];
    for found in diagnostics.list {
        let line = found.span.expect("every finding has a place").line as usize - 1;
        words[line] = (found.severity == Severity::Notice).then_some(found.message);
    }
    words
}

/// For each line, the word that HAProxy reads from it, taken from messages of the form `parsing [FILE:LINE]: 'WORD'.`
fn theirs(binary: &str, lines: &[String]) -> Vec<Option<String>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("words.cfg");
    let text: String = lines.iter().map(|l| format!(".notice {l}\n")).collect();
    std::fs::write(&path, text).expect("written");
    let output = Command::new(binary).arg("-c").arg("-f").arg(&path).envs(variables()).env_remove("B").output();
    let output = output.expect("haproxy was found a moment ago");
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut words = vec![None; lines.len()];
    for message in messages.split("[NOTICE]").skip(1) {
        let Some((_, rest)) = message.split_once("words.cfg:") else { continue };
        let Some((number, rest)) = rest.split_once("]: '") else { continue };
        // The next message of any level begins on a line of its own.
        let rest = rest.split("\n[ALERT]").next().unwrap_or(rest).trim_end_matches('\n');
        let rest = rest.split("\nConfiguration file").next().unwrap_or(rest);
        let word = rest.strip_suffix("'.").unwrap_or(rest);
        words[number.parse::<usize>().expect("a line number") - 1] = Some(word.to_owned());
    }
    words
}

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn words_are_those_of_haproxy() {
    let binary = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].into_iter().find(|b| Path::new(b).exists());
    let Some(binary) = binary else {
        eprintln!("SKIPPED: no haproxy here (apt-get install haproxy): words are not compared with its own");
        return;
    };
    // No `-` behind a variable: HAProxy 2.6.12 misreads defaults, see the corpus. No NUL.
    const PIECES: &[&str] = &[
        "a",
        "b c",
        "\"",
        "'",
        "\\",
        "\\\\",
        "\\\"",
        "\\'",
        "\\ ",
        "\\#",
        "\\$",
        "\\n",
        "\\t",
        "\\x41",
        "\\x4",
        "\\q",
        "#",
        "$",
        "$A",
        "${A}",
        "${B}",
        "$B",
        "${SPACED[*]}",
        "${SPACED}",
        "$EMPTY",
        "${A[",
        "{",
        "}",
        "[*]",
        ",",
        "(",
        ")",
        "\t",
        " ",
        "%[x]",
        "é",
        "\\1",
        ".LINE",
        "${.LINE}",
        "$1",
    ];
    let seed = 20_261_121;
    let mut random = Random(seed);
    let lines: Vec<String> = (0..2000)
        .map(|_| (0..1 + random.below(7)).map(|_| PIECES[random.below(PIECES.len())]).collect::<String>())
        .collect();
    // HAProxy gives up after some fifty errors: small files.
    let theirs: Vec<_> = lines.chunks(40).flat_map(|lines| theirs(binary, lines)).collect();
    let ours = ours(&lines);
    assert!(theirs.iter().flatten().count() > 500, "HAProxy printed {} words", theirs.iter().flatten().count());
    let different: Vec<_> = (0..lines.len())
        .filter(|i| ours[*i] != theirs[*i])
        .map(|i| format!("{:?}: ours {:?}, HAProxy's {:?}", lines[i], ours[i], theirs[i]))
        .collect();
    assert!(
        different.is_empty(),
        "seed {seed}: {} differ\n{}",
        different.len(),
        different[..different.len().min(20)].join("\n")
    );
}

fn acl(text: &str, variables: &[(&str, &str)]) -> (Config, Vec<(String, u32, u32)>) {
    let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let text = format!("backend b\nacl {text}\n");
    let (config, diagnostics) = load([Source::new("a.cfg", text.as_bytes())], &Env { variables, ..Env::default() });
    assert!(!diagnostics.has_errors(), "{:?}", diagnostics.list);
    let words = config.proxies[ProxyId(0)].acls[0].words.iter();
    let words = words.map(|w| (w.text.clone(), w.span.start, w.span.end)).collect();
    (config, words)
}

#[test]
fn spans_cover_what_was_written() {
    let (_, words) = acl(r#"n a\ b "c d"'e' \x41 "${V[*]}" z"#, &[("V", "one two")]);
    let expected = [
        ("n", 4, 5),
        ("a b", 6, 10),
        ("c de", 11, 19),
        ("A", 20, 24),
        // Both words of the variable were written there.
        ("one", 25, 33),
        ("two", 25, 34),
        ("z", 35, 36),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(t, s, e)| (t.to_owned(), s, e)).collect();
    assert_eq!(words, expected);
}

#[test]
fn a_second_level_of_quoting_survives() {
    for (written, read) in [
        (r#"'%[path,regsub("^/(here)(/|$)","my/\1",g)]'"#, r#"%[path,regsub("^/(here)(/|$)","my/\1",g)]"#),
        (r#"%[path,regsub(\"(foo|bar)\",blah,g)]"#, r#"%[path,regsub("(foo|bar)",blah,g)]"#),
        (r#"str("\\'foo\\'")"#, r"str(\'foo\')"),
        (r#"str(\"\'foo\'\")"#, r#"str("'foo'")"#),
        (r#"str(\\\'foo\\\')"#, r"str(\'foo\')"),
    ] {
        let (_, words) = acl(&format!("n {written}"), &[]);
        assert_eq!(words[1].0, read, "{written}");
    }
}

#[test]
fn defaults_of_variables_replace_only_what_is_not_set() {
    let set = [("SET", "s"), ("EMPTY", "")];
    for (written, read) in [
        ("\"${SET-d}\"", "s"),
        ("\"${EMPTY-d}x\"", "x"),
        ("\"${UNSET-127.0.0.1}:514\"", "127.0.0.1:514"),
        ("\"${UNSET-a b}\"", "a b"),
        ("\"${UNSET-}x\"", "x"),
        ("\"$UNSET x\"", " x"),
        ("'$SET'", "$SET"),
        ("$SET", "$SET"),
        ("\"\\$SET\"", "$SET"),
    ] {
        let (_, words) = acl(&format!("n {written}"), &set);
        assert_eq!(words[1].0, read, "{written}");
    }
}

#[test]
fn pseudo_variables_name_the_place() {
    let (_, words) = acl(r#"n "${.FILE}:${.LINE}:${.SECTION}" "$HAPROXY_CFGFILES""#, &[]);
    assert_eq!((words[1].0.as_str(), words[2].0.as_str()), ("a.cfg:2:b", "a.cfg"));
}
