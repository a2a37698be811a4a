//! The options in a request for the page, which follow the page's address.

use penstock_config::model::StatsPage;
use penstock_proxy::history::Range;
use penstock_proxy::snapshot::{Kind, Row};
use std::fmt::Write as _;

/// The options in a request for the page.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The page's own address, without parameters.
    pub uri: String,
    /// `;up`: servers that are down are left out.
    pub only_up: bool,
    /// `;no-maint`: servers in maintenance are left out.
    pub no_maint: bool,
    /// `;norefresh`: the page does not refresh itself.
    pub no_refresh: bool,
    /// `;hour`, `;week`: the time range of the graphs.
    pub range: Range,
    /// `;of=PROXY/NAME`: the row whose graphs are shown, by its names in the table; without it, those of the process.
    pub subject: Option<(String, String)>,
    /// `scope=`: only proxies whose names contain this are shown.
    pub scope: String,
    /// Whether actions are allowed.
    pub admin: bool,
    /// The outcome of the last action: `;st=`.
    pub done: Option<String>,
}

impl View {
    /// Parses the options that follow `uri`, the page's address.
    pub fn parse(uri: &str, options: &str, admin: bool) -> View {
        let subject = after(options, ";of=").map(decode);
        View {
            uri: uri.to_string(),
            only_up: options.contains(";up"),
            no_maint: options.contains(";no-maint"),
            no_refresh: options.contains(";norefresh"),
            range: Range::ALL.into_iter().find(|range| options.contains(word(*range))).unwrap_or_default(),
            subject: subject
                .and_then(|of| of.split_once('/').map(|(proxy, name)| (proxy.to_string(), name.to_string()))),
            scope: after(options, "scope=").map(decode).unwrap_or_default(),
            admin,
            done: after(options, ";st=").map(|code| code.chars().take(4).collect()),
        }
    }

    /// Whether the page shows a row.
    pub fn shows(&self, page: &StatsPage, row: &Row, self_name: &str) -> bool {
        let is_down = row.kind == Kind::Server && row.upstream.as_ref().is_some_and(|upstream| !upstream.up);
        let hidden = self.only_up && is_down;
        let hidden = hidden || self.no_maint && row.server.as_ref().is_some_and(|server| server.status.admin.maint());
        covers(page, row, self_name) && !hidden && row.proxy_name.contains(&self.scope)
    }

    /// Seconds after which the browser reloads the page; 0 for never.
    pub fn refresh(&self, page: &StatsPage) -> u64 {
        page.refresh.filter(|_| !self.no_refresh).unwrap_or_default().as_secs()
    }

    /// The options that are kept after an action.
    fn kept(&self) -> String {
        let mut kept = String::new();
        kept.push_str(if self.only_up { ";up" } else { "" });
        kept.push_str(if self.no_maint { ";no-maint" } else { "" });
        kept.push_str(if self.no_refresh { ";norefresh" } else { "" });
        kept.push_str(word(self.range).trim_start_matches(";minutes"));
        if let Some((proxy, name)) = &self.subject {
            // Writing to a String does not fail.
            let _ = write!(kept, ";of={}", encode(&format!("{proxy}/{name}")));
        }
        kept
    }

    /// The page's address with all options.
    pub fn link(&self) -> String {
        self.with("")
    }

    /// The address of the page's stream.
    pub fn stream(&self) -> String {
        self.with(";stream")
    }

    /// The address of the page that says how an action ended.
    pub fn outcome(&self, code: &str) -> String {
        self.with(&format!(";st={code}"))
    }

    fn with(&self, more: &str) -> String {
        let scope = if self.scope.is_empty() { String::new() } else { format!("?scope={}", encode(&self.scope)) };
        format!("{}{more}{}{scope}", self.uri, self.kept())
    }
}

/// Whether the page is about the proxy of a row: `stats scope`.
pub fn covers(page: &StatsPage, row: &Row, self_name: &str) -> bool {
    page.scope.is_empty()
        || page.scope.iter().any(|name| name == &row.proxy_name || name == "." && row.proxy_name == self_name)
}

/// The option that selects a range.
fn word(range: Range) -> &'static str {
    match range {
        Range::Minutes => ";minutes",
        Range::Hour => ";hour",
        Range::Week => ";week",
    }
}

/// The text after `key`, up to the next option.
fn after<'a>(options: &'a str, key: &str) -> Option<&'a str> {
    let at = options.find(key)? + key.len();
    Some(options[at..].split([';', '&', '?']).next().unwrap_or_default())
}

fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(char::from(byte)),
            _ => {
                // Writing to a String does not fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Decodes percent escapes, and plus signs as spaces.
pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, hex.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded() {
        assert_eq!(decode("a+b%2Fc%zz%4"), "a b/c%zz%4");
        assert_eq!(after(";csv;st=DONE;up", ";st="), Some("DONE"));
        assert_eq!(after("?scope=web&x", "scope="), Some("web"));
    }

    #[test]
    fn an_address_says_what_is_shown_and_is_read_back() {
        let view = View::parse("/admin?stats", ";up;week;of=a%3Bup%2Fs+1?scope=we%26b", true);
        assert_eq!(view.subject, Some(("a;up".into(), "s 1".into())));
        assert_eq!(view.link(), "/admin?stats;up;week;of=a%3Bup%2Fs%201?scope=we%26b");
        let again = View::parse("/admin?stats", &view.stream()["/admin?stats".len()..], true);
        assert_eq!((again.link(), again.scope.as_str(), again.range), (view.link(), "we&b", Range::Week));
        let plain = View::parse("/s", "", false);
        assert_eq!((plain.link().as_str(), plain.range, plain.subject), ("/s", Range::Minutes, None));
    }
}
