//! The words that arguments are drawn from.

/// Names of fields, parameters, cookies and variables: few, so that a request has what a rule asks for.
pub const NAMES: &[&str] = &["a", "b", "x-a", "X-B", "x-c", "host", "cookie", "sid", "x-none", "accept", "user-agent"];

/// Texts that are compared, hashed and cut.
pub const TEXTS: &[&str] = &[
    "a",
    "b",
    "abc",
    "A",
    "ab,c",
    "a b",
    "/",
    "/a/b",
    "1",
    "0",
    "-1",
    "007",
    "18446744073709551616",
    "a.b",
    "%41%2g",
    "h.example",
    "127.0.0.1",
    "::1",
    "::ffff:10.0.0.1",
    "GET",
    "é",
    "a=1&b=2",
    "YWJj",
    "YWI",
    "4142",
    "0x1f",
    "true",
    "10k",
    " a ",
    "",
];

pub const REGEXES: &[&str] = &[
    "^a",
    "b$",
    "[0-9]+",
    "(a)(b)?",
    ".*",
    "^/([^/]*)(/.*)?$",
    "\\d",
    "a|b",
    "^$",
    "(?i)ABC",
    "x*",
    "[[:alpha:]]+",
    "\\.",
    ".",
];

pub const NUMBERS: &[&str] = &["0", "1", "2", "3", "-1", "-2", "5", "16", "100", "9223372036854775807"];
