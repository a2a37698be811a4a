//! The settings of a `bind`, `server` or crt-list line: its own words, else those around it, else our defaults.

use crate::{
    ciphers::{self, Chosen},
    provider::{self, SUITES},
};
use penstock_config::{
    Diagnostics, Span, Spanned,
    model::{TlsConf, TlsDefaults, TlsVersion},
};
use rustls::{
    SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, SupportedKxGroup},
    version::{TLS12, TLS13},
};
use std::sync::Arc;

/// Suites, groups and versions, in rustls' types.
pub(crate) struct Settings {
    pub provider: Arc<CryptoProvider>,
    pub versions: &'static [&'static SupportedProtocolVersion],
}

/// The words of `inner`, and those of `outer` where `inner` has none.
pub(crate) fn over(inner: &TlsConf, outer: &TlsConf) -> TlsConf {
    TlsConf {
        verify: inner.verify.or(outer.verify),
        ca_file: inner.ca_file.clone().or_else(|| outer.ca_file.clone()),
        ca_verify_file: inner.ca_verify_file.clone().or_else(|| outer.ca_verify_file.clone()),
        crl_file: inner.crl_file.clone().or_else(|| outer.crl_file.clone()),
        alpn: inner.alpn.clone().or_else(|| outer.alpn.clone()),
        ciphers: inner.ciphers.clone().or_else(|| outer.ciphers.clone()),
        ciphersuites: inner.ciphersuites.clone().or_else(|| outer.ciphersuites.clone()),
        curves: inner.curves.clone().or_else(|| outer.curves.clone()),
        ecdhe: inner.ecdhe.clone().or_else(|| outer.ecdhe.clone()),
        min_ver: inner.min_ver.or(outer.min_ver),
        max_ver: inner.max_ver.or(outer.max_ver),
        no_tls_tickets: inner.no_tls_tickets || outer.no_tls_tickets,
        allow_0rtt: inner.allow_0rtt || outer.allow_0rtt,
    }
}

/// Translates the words to rustls' types. A notice tells what is left out or raised, once per word; it is an error if
/// nothing is left.
pub(crate) fn resolve(
    conf: &TlsConf,
    defaults: &TlsDefaults,
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<Settings> {
    let versions = versions(conf, defaults, span, diagnostics)?;
    let speaks12 = versions.iter().any(|v| v.version == TLS12.version);
    let speaks13 = versions.iter().any(|v| v.version == TLS13.version);

    let own = |tls13: bool| SUITES.iter().filter(move |suite| suite.tls13().is_some() == tls13).copied().collect();
    let mut suites: Vec<SupportedCipherSuite> = Vec::new();
    if speaks13 {
        let words = conf.ciphersuites.as_ref().or(defaults.ciphersuites.as_ref());
        suites.extend(chosen(words, own(true), ciphers::ciphersuites, "ciphersuites", diagnostics)?);
    }
    if speaks12 {
        let words = conf.ciphers.as_ref().or(defaults.ciphers.as_ref());
        suites.extend(chosen(words, own(false), ciphers::ciphers, "ciphers", diagnostics)?);
    }
    let words = conf.curves.as_ref().or(defaults.curves.as_ref()).or(conf.ecdhe.as_ref());
    if let Some(words) = words
        && let Some(name) = ciphers::not_a_group(&words.value)
    {
        diagnostics
            .error(words.span, format!("'{name}' is not a group for key exchanges"))
            .hint("expected names between colons, as in X25519MLKEM768:X25519:P-256:P-384");
        return None;
    }
    let groups: Vec<&'static dyn SupportedKxGroup> =
        chosen(words, ciphers::default_groups(), ciphers::groups, "curves", diagnostics)?;
    if conf.allow_0rtt {
        diagnostics.notice(span, "'allow-0rtt' has no effect: early data is not accepted, clients send it again");
    }
    Some(Settings { provider: Arc::new(provider::provider(suites, groups)), versions })
}

fn chosen<T>(
    words: Option<&Spanned<String>>,
    default: Vec<T>,
    parse: impl Fn(&str) -> Chosen<T>,
    directive: &str,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<T>> {
    let Some(words) = words else { return Some(default) };
    let Chosen { list, dropped } = parse(&words.value);
    if list.is_empty() {
        diagnostics
            .error(words.span, format!("'{directive} {}' leaves nothing that we can speak", words.value))
            .hint("leave the directive out to get our own choice");
        return None;
    }
    if !dropped.is_empty() {
        let dropped = dropped.join(", ");
        let already = format!("'{directive}': not available here and left out: {dropped}");
        // The same default is resolved for every certificate; one notice is enough.
        if !diagnostics.list.iter().any(|d| d.message == already && d.span == Some(words.span)) {
            diagnostics.notice(words.span, already);
        }
    }
    Some(list)
}

fn versions(
    conf: &TlsConf,
    defaults: &TlsDefaults,
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<&'static [&'static SupportedProtocolVersion]> {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    static ONLY12: [&SupportedProtocolVersion; 1] = [&TLS12];
    static ONLY13: [&SupportedProtocolVersion; 1] = [&TLS13];
    let min = conf.min_ver.or(defaults.min_ver);
    let max = conf.max_ver.or(defaults.max_ver);
    if let Some(below) = min.filter(|min| *min < TlsVersion::Tls12) {
        let message = format!("'ssl-min-ver {}' is raised to TLSv1.2, the oldest version supported", name(below));
        if !diagnostics.list.iter().any(|d| d.message == message && d.span == Some(span)) {
            diagnostics.notice(span, message);
        }
    }
    if let Some(below) = max.filter(|max| *max < TlsVersion::Tls12) {
        diagnostics
            .error(span, format!("'ssl-max-ver {}' leaves no version: TLSv1.2 and TLSv1.3 are supported", name(below)));
        return None;
    }
    let min = min.unwrap_or(TlsVersion::Tls12).max(TlsVersion::Tls12);
    let max = max.unwrap_or(TlsVersion::Tls13);
    match (min, max) {
        (TlsVersion::Tls13, TlsVersion::Tls13) => Some(&ONLY13),
        (_, TlsVersion::Tls13) => Some(&BOTH),
        (TlsVersion::Tls12, _) => Some(&ONLY12),
        (min, max) => {
            diagnostics.error(span, format!("'ssl-min-ver {}' is above 'ssl-max-ver {}'", name(min), name(max)));
            None
        }
    }
}

fn name(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::Ssl3 => "SSLv3",
        TlsVersion::Tls10 => "TLSv1.0",
        TlsVersion::Tls11 => "TLSv1.1",
        TlsVersion::Tls12 => "TLSv1.2",
        TlsVersion::Tls13 => "TLSv1.3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(conf: &TlsConf) -> (Option<Settings>, Vec<String>) {
        let mut diagnostics = Diagnostics::default();
        let settings = resolve(conf, &TlsDefaults::default(), Span::default(), &mut diagnostics);
        (settings, diagnostics.list.into_iter().map(|d| d.message).collect())
    }

    #[test]
    fn versions_are_clamped_with_a_word_and_refused_with_one() {
        let conf = |min_ver, max_ver| TlsConf { min_ver, max_ver, ..TlsConf::default() };
        let (settings, said) = outcome(&conf(Some(TlsVersion::Tls10), None));
        assert_eq!(settings.unwrap().versions.len(), 2);
        assert!(said[0].contains("raised to TLSv1.2"), "{said:?}");
        let (settings, said) = outcome(&conf(Some(TlsVersion::Tls13), Some(TlsVersion::Tls12)));
        assert!(settings.is_none() && said[0].contains("above"), "{said:?}");
        let (settings, said) = outcome(&conf(None, Some(TlsVersion::Tls11)));
        assert!(settings.is_none() && said[0].contains("leaves no version"), "{said:?}");
    }

    #[test]
    fn aes_128_comes_first_where_nothing_is_said() {
        use rustls::CipherSuite as S;
        let (settings, said) = outcome(&TlsConf::default());
        let settings = settings.unwrap();
        let suites: Vec<_> = settings.provider.cipher_suites.iter().map(|s| s.suite()).collect();
        assert_eq!(suites[0], S::TLS13_AES_128_GCM_SHA256);
        assert!(said.is_empty());
    }

    #[test]
    fn nothing_left_is_an_error_and_a_loss_is_a_notice() {
        let ciphers = |text: &str| TlsConf {
            ciphers: Some(Spanned { value: text.to_owned(), ..Spanned::default() }),
            ..TlsConf::default()
        };
        assert!(outcome(&ciphers("AES128-SHA:!aNULL")).0.is_none());
        let (settings, said) = outcome(&ciphers("ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA"));
        assert!(settings.is_some());
        assert_eq!(said, ["'ciphers': not available here and left out: AES128-SHA"]);
    }
}
