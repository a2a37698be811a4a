//! Parses `crt-list` files: one certificate per line, with its own settings and name filters. Pure.

use penstock_config::{
    Diagnostics, Span, Spanned,
    model::{TlsConf, TlsVersion, Verify},
};
use std::path::{Path, PathBuf};

/// One line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// The certificate, or a bundle's base name, as written.
    pub file: PathBuf,
    /// The settings in brackets.
    pub conf: TlsConf,
    /// Names and wildcards that this certificate is used for, instead of its own.
    pub filters: Vec<String>,
    /// Names it is not used for (`!name`); with `!*` it is used for no name at all.
    pub excluded: Vec<String>,
    /// The settings in brackets as HAProxy shows them, if there are brackets.
    pub shown_conf: Option<String>,
    /// Names and excluded names in order, as written.
    pub shown_filters: Vec<String>,
    /// Settings without effect, by their places in [`WITHOUT_EFFECT`].
    pub without_effect: Vec<usize>,
    /// Line number, from 1; 0 for a directory.
    pub line: usize,
}

/// Settings that are read and have no effect, and why.
const WITHOUT_EFFECT: [(&str, &str); 5] = [
    ("allow-0rtt", "early data is not accepted, clients send it again"),
    ("client-sigalgs", "the TLS library's own set is used"),
    ("no-ca-names", "the names are always sent"),
    ("ocsp-update", "OCSP responses are read from files"),
    ("sigalgs", "the TLS library's own order is used"),
];

/// Settings in the order in which HAProxy shows them.
const SHOWN: [&str; 18] = [
    "npn",
    "alpn",
    "no-alpn",
    "verify",
    "no-ca-names",
    "allow-0rtt",
    "ca-file",
    "ca-verify-file",
    "crl-file",
    "ciphers",
    "ciphersuites",
    "curves",
    "sigalgs",
    "client-sigalgs",
    "ecdhe",
    "ssl-min-ver",
    "ssl-max-ver",
    "ocsp-update",
];

/// The settings in brackets as `show ssl crt-list` shows them, in a fixed order.
fn shown(options: &str) -> String {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut words = options.split_whitespace();
    while let Some(keyword) = words.next() {
        let Some(place) = SHOWN.iter().position(|known| *known == keyword) else { continue };
        let text = match keyword {
            "no-alpn" | "no-ca-names" | "allow-0rtt" => keyword.to_owned(),
            _ => format!("{keyword} {}", words.next().unwrap_or_default()),
        };
        found.retain(|(known, _)| *known != place);
        found.push((place, text));
    }
    found.sort();
    found.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
}

/// Parses the lines of `text`; `file` and `span` are for diagnostics, `ca_base` is for authorities named in brackets.
pub(crate) fn parse(
    text: &str,
    file: &Path,
    ca_base: Option<&Path>,
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    // Each is said once for a list, which may have thousands of lines.
    let mut told = [false; WITHOUT_EFFECT.len()];
    for (index, raw) in text.lines().enumerate() {
        let line = raw.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match entry(line, ca_base, span) {
            Ok(entry) => {
                for &setting in &entry.without_effect {
                    if !std::mem::replace(&mut told[setting], true) {
                        let ((word, why), at) = (WITHOUT_EFFECT[setting], file.display());
                        diagnostics.notice(span, format!("{at}:{}: '{word}' has no effect: {why}", index + 1));
                    }
                }
                entries.push(Entry { line: index + 1, ..entry });
            }
            Err(what) => {
                diagnostics.error(span, format!("{}:{}: {what}", file.display(), index + 1));
            }
        }
    }
    entries
}

/// Parses one line; `ca_base` is for authorities named in brackets.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn entry(line: &str, ca_base: Option<&Path>, span: Span) -> Result<Entry, String> {
    let (file, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let mut entry = Entry { file: file.into(), ..Entry::default() };
    let mut rest = rest.trim_start();
    if let Some(inside) = rest.strip_prefix('[') {
        let (options, after) = inside.split_once(']').ok_or("the '[' of the settings has no ']'")?;
        conf(options, &mut entry, ca_base, span)?;
        entry.shown_conf = Some(shown(options));
        rest = after;
    }
    for filter in rest.split_whitespace() {
        entry.shown_filters.push(filter.to_owned());
        match filter.strip_prefix('!') {
            Some(name) => entry.excluded.push(name.to_ascii_lowercase()),
            None if filter.contains(['[', ']']) => {
                return Err(format!(
                    "'{filter}' is not a name: settings are written in one pair of brackets before the names"
                ));
            }
            None => entry.filters.push(filter.to_ascii_lowercase()),
        }
    }
    Ok(entry)
}

fn conf(options: &str, entry: &mut Entry, ca_base: Option<&Path>, span: Span) -> Result<(), String> {
    let conf = &mut entry.conf;
    let mut words = options.split_whitespace();
    while let Some(keyword) = words.next() {
        let mut value = || words.next().ok_or(format!("'{keyword}' needs a value"));
        let idle = || WITHOUT_EFFECT.iter().position(|(word, _)| *word == keyword);
        let spanned = |value: &str| Some(Spanned { value: value.to_owned(), span });
        let authority = |value: &str| {
            let path = match ca_base {
                Some(base) if !value.starts_with(['/', '@']) => base.join(value),
                _ => PathBuf::from(value),
            };
            Some(Spanned { value: path, span })
        };
        match keyword {
            "allow-0rtt" => {
                conf.allow_0rtt = true;
                entry.without_effect.extend(idle());
            }
            "sigalgs" | "client-sigalgs" => {
                value()?;
                entry.without_effect.extend(idle());
            }
            "no-ca-names" => entry.without_effect.extend(idle()),
            "npn" => {
                value()?;
            }
            "alpn" => conf.alpn = Some(value()?.split(',').map(str::to_owned).collect()),
            "no-alpn" => conf.alpn = Some(Vec::new()),
            "ca-file" => conf.ca_file = authority(value()?),
            "ca-verify-file" => conf.ca_verify_file = authority(value()?),
            "crl-file" => conf.crl_file = authority(value()?),
            "ciphers" => conf.ciphers = spanned(value()?),
            "ciphersuites" => conf.ciphersuites = spanned(value()?),
            "curves" => conf.curves = spanned(value()?),
            "ecdhe" => conf.ecdhe = spanned(value()?),
            "ssl-min-ver" => conf.min_ver = Some(version(value()?)?),
            "ssl-max-ver" => conf.max_ver = Some(version(value()?)?),
            "verify" => {
                conf.verify = Some(match value()? {
                    "none" => Verify::None,
                    "optional" => Verify::Optional,
                    "required" => Verify::Required,
                    other => return Err(format!("'verify {other}': 'none', 'optional' or 'required' is expected")),
                })
            }
            "ocsp-update" => match value()? {
                "on" => entry.without_effect.extend(idle()),
                "off" => {}
                other => return Err(format!("'ocsp-update {other}': 'on' or 'off' is expected")),
            },
            other => return Err(format!("unknown ssl keyword {other}")),
        }
    }
    Ok(())
}

fn version(word: &str) -> Result<TlsVersion, String> {
    Ok(match word {
        "SSLv3" => TlsVersion::Ssl3,
        "TLSv1.0" => TlsVersion::Tls10,
        "TLSv1.1" => TlsVersion::Tls11,
        "TLSv1.2" => TlsVersion::Tls12,
        "TLSv1.3" => TlsVersion::Tls13,
        other => return Err(format!("'{other}' is not a version: 'TLSv1.2' or 'TLSv1.3' is expected")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Entry>, Diagnostics) {
        let mut diagnostics = Diagnostics::default();
        let ca_base = Some(Path::new("/ca"));
        (parse(text, Path::new("list"), ca_base, Span::default(), &mut diagnostics), diagnostics)
    }

    #[test]
    fn the_manuals_example_is_understood() {
        let (entries, diagnostics) = read(
            "cert1.pem !*\n# comment\n\ncert2.pem [alpn h2,http/1.1]\ncertW.pem   *.domain.tld !secure.domain.tld\n\
             certS.pem [curves X25519:P-256 ciphers ECDHE-ECDSA-AES256-GCM-SHA384 ca-file a.pem verify required] secure.domain.tld\n",
        );
        assert!(diagnostics.list.is_empty(), "{diagnostics:?}");
        assert_eq!(entries.len(), 4);
        assert_eq!(entries[0].excluded, ["*"]);
        assert_eq!(entries[1].conf.alpn, Some(vec!["h2".to_owned(), "http/1.1".to_owned()]));
        assert_eq!(entries[1].line, 4);
        assert_eq!(
            (&entries[2].filters[..], &entries[2].excluded[..]),
            (&["*.domain.tld".to_owned()][..], &["secure.domain.tld".to_owned()][..])
        );
        assert_eq!(entries[3].conf.verify, Some(Verify::Required));
        assert_eq!(entries[3].conf.ca_file.as_ref().unwrap().value, Path::new("/ca/a.pem"));
    }

    #[test]
    fn settings_are_shown_in_haproxys_order() {
        let shown = |line: &str| entry(line, None, Span::default()).unwrap().shown_conf;
        assert_eq!(shown("a.pem [verify none alpn h2,http/1.1]").unwrap(), "alpn h2,http/1.1 verify none");
        assert_eq!(
            shown("a.pem [ssl-max-ver TLSv1.3 ca-file a.pem npn h2 alpn h2 allow-0rtt verify optional]").unwrap(),
            "npn h2 alpn h2 verify optional allow-0rtt ca-file a.pem ssl-max-ver TLSv1.3"
        );
        assert_eq!(shown("a.pem []").unwrap(), "");
        assert_eq!(shown("a.pem b.example"), None);
    }

    #[test]
    fn every_bad_line_is_reported() {
        let (entries, diagnostics) =
            read("a.pem [alpn h2\nb.pem [verify maybe]\nc.pem [wrong]\nd.pem x [alpn h2]\ne.pem ok\n");
        assert_eq!(entries.len(), 1);
        let messages: Vec<_> = diagnostics.list.iter().map(|d| d.message.as_str()).collect();
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert!(messages[0].starts_with("list:1: ") && messages[3].starts_with("list:4: "));
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_too_strange(line in "([a-z.*!/#]|\\[|\\]| |alpn |verify |ssl-min-ver ){0,30}") {
            let (entries, diagnostics) = read(&line);
            proptest::prop_assert!(entries.len() + diagnostics.list.len() <= 1);
        }
    }
}
