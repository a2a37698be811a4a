//! Translates OpenSSL's names of suites, groups and versions to rustls'. Pure.
//!
//! The grammar is that of `openssl ciphers`: suites and classes of them, joined by `+`, preceded by `!`, `-` or `+`,
//! with `@STRENGTH` among them. Words that only select suites we do not have are returned, so that a notice can name
//! them.

use crate::provider::{GROUPS, SECP256R1, SECP384R1, SUITES, X25519, X25519MLKEM768};
use rustls::{CipherSuite, SupportedCipherSuite, crypto::SupportedKxGroup};

/// The result of parsing a list.
#[derive(Debug, Default)]
pub(crate) struct Chosen<T> {
    /// In order of preference.
    pub list: Vec<T>,
    /// Words that ask for something we do not have.
    pub dropped: Vec<String>,
}

/// A suite of TLS 1.2, with what decides to which of OpenSSL's classes it belongs.
struct Known {
    suite: SupportedCipherSuite,
    openssl: &'static str,
    ecdsa: bool,
    bits: u16,
    chacha: bool,
}

/// In OpenSSL's order: the strongest first, and ECDSA before RSA.
fn known() -> Vec<Known> {
    use CipherSuite as S;
    let mut all: Vec<Known> = SUITES
        .iter()
        .filter(|suite| suite.tls13().is_none())
        .map(|suite| {
            let id = suite.suite();
            let (openssl, bits) = crate::facts::openssl_cipher(id);
            Known {
                suite: *suite,
                openssl,
                bits,
                ecdsa: openssl.starts_with("ECDHE-ECDSA"),
                chacha: matches!(
                    id,
                    S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 | S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
                ),
            }
        })
        .collect();
    all.sort_by_key(|known| (std::cmp::Reverse(known.bits), known.chacha, !known.ecdsa));
    all
}

impl Known {
    /// Whether the class (or suite) `word` contains it; `None` for a word that OpenSSL would not know either.
    fn is(&self, word: &str) -> Option<bool> {
        let iana = format!("{:?}", self.suite.suite());
        if word == self.openssl || word == iana {
            return Some(true);
        }
        Some(match word {
            "ALL" | "DEFAULT" | "HIGH" | "kECDHE" | "kEECDH" | "ECDHE" | "EECDH" | "ECDH" | "TLSv1.2" => true,
            "aRSA" => !self.ecdsa,
            "aECDSA" | "ECDSA" => self.ecdsa,
            "AES" | "AESGCM" | "FIPS" => !self.chacha,
            "AES128" => !self.chacha && self.bits == 128,
            "AES256" => !self.chacha && self.bits == 256,
            "CHACHA20" => self.chacha,
            "SUITEB128ONLY" => self.ecdsa && !self.chacha && self.bits == 128,
            "SUITEB192" => self.ecdsa && !self.chacha && self.bits == 256,
            "SUITEB128" => self.ecdsa && !self.chacha,
            // Classes that contain no suite of ours: other key exchanges, authentications, ciphers and MACs. SHA256 and
            // SHA384 mean the MAC of a CBC suite, never an AEAD.
            "COMPLEMENTOFDEFAULT"
            | "COMPLEMENTOFALL"
            | "MEDIUM"
            | "LOW"
            | "EXP"
            | "EXPORT"
            | "aNULL"
            | "eNULL"
            | "NULL"
            | "kRSA"
            | "RSA"
            | "kDHE"
            | "kEDH"
            | "DHE"
            | "EDH"
            | "DH"
            | "kDHr"
            | "kDHd"
            | "kDH"
            | "ADH"
            | "AECDH"
            | "aDSS"
            | "DSS"
            | "aDH"
            | "aECDH"
            | "kECDH"
            | "kECDHr"
            | "kECDHe"
            | "AESCCM"
            | "AESCCM8"
            | "ARIA"
            | "ARIA128"
            | "ARIA256"
            | "ARIAGCM"
            | "CAMELLIA"
            | "CAMELLIA128"
            | "CAMELLIA256"
            | "3DES"
            | "DES"
            | "RC4"
            | "RC2"
            | "IDEA"
            | "SEED"
            | "MD5"
            | "SHA1"
            | "SHA"
            | "SHA256"
            | "SHA384"
            | "aGOST"
            | "aGOST01"
            | "kGOST"
            | "GOST94"
            | "GOST89MAC"
            | "PSK"
            | "kPSK"
            | "kECDHEPSK"
            | "kDHEPSK"
            | "kRSAPSK"
            | "aPSK"
            | "SRP"
            | "kSRP"
            | "aSRP"
            | "SSLv3"
            | "SSLv2"
            | "TLSv1"
            | "TLSv1.0"
            | "CBC" => false,
            _ => return None,
        })
    }
}

/// Parses a TLS 1.2 cipher list.
///
/// As in OpenSSL there is one list of all suites, of which some are chosen. Choosing a suite moves it to the end, and
/// taking one back moves it to the front, where the next word finds it first.
pub(crate) fn ciphers(text: &str) -> Chosen<SupportedCipherSuite> {
    let all = known();
    let mut rest = known();
    let mut chosen: Vec<Known> = Vec::new();
    let mut dropped = Vec::new();
    for word in text.split([':', ',', ' ', ';']).filter(|word| !word.is_empty()) {
        if word == "@STRENGTH" {
            chosen.sort_by_key(|known| std::cmp::Reverse(known.bits));
            continue;
        }
        if word.starts_with('@') {
            // @SECLEVEL: rustls' minimum is above level 2 already.
            continue;
        }
        let (action, classes) = match word.as_bytes()[0] {
            mark @ (b'!' | b'-' | b'+') => (mark, &word[1..]),
            _ => (b' ', word),
        };
        let selects = |known: &Known| classes.split('+').all(|class| known.is(class) == Some(true));
        match action {
            b'!' => {
                chosen.retain(|known| !selects(known));
                rest.retain(|known| !selects(known));
            }
            b'-' => {
                let mut back = take(&mut chosen, selects);
                back.append(&mut rest);
                rest = back;
            }
            b'+' => {
                let mut last = take(&mut chosen, selects);
                chosen.append(&mut last);
            }
            _ => {
                if !all.iter().any(selects) {
                    dropped.push(word.to_owned());
                }
                chosen.append(&mut take(&mut rest, selects));
            }
        }
    }
    Chosen { list: chosen.into_iter().map(|known| known.suite).collect(), dropped }
}

/// Takes out of `list` what `selects` says, and keeps the order of both.
fn take(list: &mut Vec<Known>, selects: impl Fn(&Known) -> bool) -> Vec<Known> {
    let (taken, kept) = std::mem::take(list).into_iter().partition(selects);
    *list = kept;
    taken
}

/// Parses a TLS 1.3 suite list.
pub(crate) fn ciphersuites(text: &str) -> Chosen<SupportedCipherSuite> {
    pick(text, |word| {
        SUITES
            .iter()
            .find(|suite| suite.tls13().is_some() && crate::facts::openssl_cipher(suite.suite()).0 == word)
            .copied()
    })
}

/// Parses a list of key exchange groups (`curves`, `ecdhe`).
pub(crate) fn groups(text: &str) -> Chosen<&'static dyn SupportedKxGroup> {
    pick(text, |word| {
        // OpenSSL 3.5 marks groups: `?` for optional ones, `*` for those with a key share, `/` between tuples.
        Some(match word.trim_start_matches(['?', '*']).to_ascii_lowercase().as_str() {
            "x25519" => X25519,
            "p-256" | "prime256v1" | "secp256r1" => SECP256R1,
            "p-384" | "secp384r1" => SECP384R1,
            "x25519mlkem768" => X25519MLKEM768,
            _ => return None,
        })
    })
}

/// The first word of a list of groups that names none: it is empty, or a slip. One marked with `?` need not exist.
pub(crate) fn not_a_group(text: &str) -> Option<&str> {
    text.split([':', '/']).find(|word| {
        let name = word.trim_start_matches('*').to_ascii_lowercase();
        let here = groups(&name).dropped.is_empty();
        let elsewhere = ELSEWHERE.iter().any(|start| name.starts_with(start));
        name.is_empty() || name.contains([',', ' ']) || !(here || elsewhere || name.starts_with('?'))
    })
}

/// How the names of OpenSSL's other groups begin.
const ELSEWHERE: [&str; 12] =
    ["p-", "k-", "b-", "secp", "sect", "prime", "x448", "brainpool", "ffdhe", "mlkem", "c2pnb", "wap-"];

/// The groups to use if the configuration does not select any.
pub(crate) fn default_groups() -> Vec<&'static dyn SupportedKxGroup> {
    GROUPS.to_vec()
}

fn pick<T>(text: &str, find: impl Fn(&str) -> Option<T>) -> Chosen<T> {
    let mut chosen = Chosen { list: Vec::new(), dropped: Vec::new() };
    for word in text.split([':', ',', ' ', '/']).filter(|word| !word.is_empty()) {
        match find(word) {
            Some(found) => chosen.list.push(found),
            None => chosen.dropped.push(word.to_owned()),
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> String {
        let chosen = ciphers(text);
        chosen.list.iter().map(|s| crate::facts::openssl_cipher(s.suite()).0).collect::<Vec<_>>().join(":")
    }

    #[test]
    fn cipher_lists_mean_what_openssl_means() {
        const RSA128: &str = "ECDHE-RSA-AES128-GCM-SHA256";
        const RSA256: &str = "ECDHE-RSA-AES256-GCM-SHA384";
        const EC128: &str = "ECDHE-ECDSA-AES128-GCM-SHA256";
        const EC256: &str = "ECDHE-ECDSA-AES256-GCM-SHA384";
        const EC_CHACHA: &str = "ECDHE-ECDSA-CHACHA20-POLY1305";
        const RSA_CHACHA: &str = "ECDHE-RSA-CHACHA20-POLY1305";
        let table = [
            (RSA256, RSA256.to_owned()),
            ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", RSA256.to_owned()),
            ("ECDHE", format!("{EC256}:{RSA256}:{EC_CHACHA}:{RSA_CHACHA}:{EC128}:{RSA128}")),
            ("CHACHA20:HIGH:!aECDSA", format!("{RSA_CHACHA}:{RSA256}:{RSA128}")),
            ("AES128:-AES128:HIGH:!aECDSA", format!("{RSA128}:{RSA256}:{RSA_CHACHA}")),
            ("ECDHE+AESGCM:!aRSA", format!("{EC256}:{EC128}")),
            ("ECDHE+AESGCM:!aNULL:!MD5:@STRENGTH:-aECDSA", format!("{RSA256}:{RSA128}")),
            ("HIGH:!CHACHA20:!ECDSA:+AES128", format!("{RSA256}:{RSA128}")),
            ("!AES256:AESGCM+aRSA", RSA128.to_owned()),
            ("-ALL:AES128:@SECLEVEL=1", format!("{EC128}:{RSA128}")),
        ];
        for (text, expected) in table {
            assert_eq!(names(text), expected, "{text}");
        }
        let chosen = ciphers("AES128-SHA:DHE-RSA-AES256-GCM-SHA384:kRSA:ECDHE-RSA-AES128-GCM-SHA256:!3DES");
        assert_eq!(chosen.list.len(), 1);
        assert_eq!(chosen.dropped, ["AES128-SHA", "DHE-RSA-AES256-GCM-SHA384", "kRSA"]);
    }

    #[test]
    fn suites_and_groups_keep_their_order() {
        let chosen = ciphersuites("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256:TLS_AES_128_GCM_SHA256");
        assert_eq!((chosen.list.len(), chosen.dropped.len()), (2, 1));
        assert_eq!(chosen.list[1].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        let chosen = groups("P-384:?X25519MLKEM768/prime256v1:secp521r1");
        let names: Vec<_> = chosen.list.iter().map(|g| format!("{:?}", g.name())).collect();
        assert_eq!(names, ["secp384r1", "X25519MLKEM768", "secp256r1"]);
        assert_eq!(chosen.dropped, ["secp521r1"]);
    }

    proptest::proptest! {
        #[test]
        fn no_list_is_too_strange(words in "([!+@:, -]|ECDHE|AESGCM|aRSA|ALL|@STRENGTH|[a-zA-Z0-9]){0,12}") {
            let chosen = ciphers(&words);
            let mut once: Vec<_> = chosen.list.iter().map(|suite| suite.suite()).collect();
            once.dedup();
            proptest::prop_assert_eq!(once.len(), chosen.list.len());
            ciphersuites(&words);
            groups(&words);
        }
    }
}
