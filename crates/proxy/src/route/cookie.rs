//! Cookie persistence (`cookie NAME ...`): the client stores which server it was assigned to.

use super::persistence::ForcedOrIgnored;
use crate::exchange::state::{CookiePersistence, Exchange};
use crate::server::{Backend, Server, ServerId};
use penstock_config::model::{Cookie, CookieMode, Proxy};
use penstock_http::{Fields, Known, ResponseHead};
use penstock_rules::fetch::end_of_cookie;
use std::{sync::Arc, time::Duration};

/// Looks for the persistence cookie in a request: finds the server it names, and removes what the server must not see.
pub(crate) fn from_client(x: &mut Exchange, proxy: &Proxy, pool: &Backend, rules: ForcedOrIgnored, now: u64) {
    let Some(conf) = &proxy.cookie else { return };
    x.log.cookie = *b"NN";
    x.cookie.ignored = rules.ignored;
    let judge = Judge { conf, proxy, pool, rules, now };
    let mut position = 0;
    while let Some(field) = x.request.fields.at(position) {
        position += 1;
        if field.known != Known::Cookie {
            continue;
        }
        let header = field.value.to_vec();
        let rest = rewritten(&header, conf.name.as_bytes(), |value| {
            let key = match conf.mode {
                CookieMode::Prefix => value.split(|&b| b == b'~').next().unwrap_or_default(),
                CookieMode::Insert => value.split(|&b| b == b'|').next().unwrap_or_default(),
                CookieMode::Rewrite | CookieMode::Passive => value,
            };
            // The first cookie that names a server decides, but all are removed. A browser sends several of one name if
            // they were set for different paths or domains.
            if !matches!(x.log.cookie[0], b'V' | b'D') {
                let dates = value.split(|&b| b == b'|').skip(1).map(parse_date).collect::<Vec<_>>();
                x.cookie = CookiePersistence {
                    direct: x.cookie.direct,
                    ignored: rules.ignored,
                    last: dates.first().copied().flatten(),
                    first: dates.get(1).copied().flatten(),
                };
                x.log.cookie[0] = judge.flag(key, &mut x.cookie, &mut x.persistent);
            }
            match conf.mode {
                CookieMode::Prefix if key.len() < value.len() => Fate::Shortened(key.len() + 1),
                CookieMode::Insert if conf.indirect => Fate::Removed,
                _ => Fate::Kept,
            }
        });
        match rest {
            None => {
                position -= 1;
                remove_at(&mut x.request.fields, position);
            }
            Some(rest) if rest != header => {
                // What is left of a valid field value is valid.
                let _ = x.request.fields.set_value_at(position - 1, &rest);
            }
            Some(_) => {}
        }
    }
}

/// Looks for the cookie of a request that goes to no server, for the log.
pub(crate) fn from_denied(x: &mut Exchange, proxy: &Proxy, pool: &Backend, now: u64) {
    from_client(x, proxy, pool, ForcedOrIgnored::default(), now);
}

/// Drops the blanks around the equals signs of cookies: HAProxy does wherever it looks for one, as for `capture cookie`.
pub(crate) fn tidy(fields: &mut Fields) {
    let mut position = 0;
    while let Some(field) = fields.at(position) {
        if field.known == Known::Cookie {
            let header = field.value.to_vec();
            if let Some(rest) = rewritten(&header, b"", |_| Fate::Kept).filter(|rest| *rest != header) {
                // What is left of a valid field value is valid.
                let _ = fields.set_value_at(position, &rest);
            }
        }
        position += 1;
    }
}

/// What to do with a cookie.
enum Fate {
    Kept,
    /// Keep the cookie without this many bytes at the start of its value.
    Shortened(usize),
    Removed,
}

/// A `Cookie` field as the server gets it, after `decide` has been asked about each cookie of that name; `None` if nothing
/// is left. Blanks around equals signs are dropped, as rules do not see them either. The attributes that follow a removed
/// cookie (`$Path`, RFC 2965) are removed with it.
fn rewritten(header: &[u8], name: &[u8], mut decide: impl FnMut(&[u8]) -> Fate) -> Option<Vec<u8>> {
    let mut rest = Vec::with_capacity(header.len());
    let (mut start, mut removed, mut kept) = (0, false, false);
    // Whether cookies were removed since the last one that stays.
    let mut gap = false;
    let mut begun = false;
    while start < header.len() {
        let end = start + end_of_cookie(&header[start..]);
        let (whole, before) = (&header[start..end], start.checked_sub(1).map_or(b';', |at| header[at]));
        start = end + 1;
        let cookie = whole.trim_ascii_start();
        let blanks = &whole[..whole.len() - cookie.len()];
        let equals = memchr::memchr(b'=', cookie);
        let (key, mut value) = match equals {
            Some(at) => (cookie[..at].trim_ascii_end(), cookie[at + 1..].trim_ascii_start()),
            None => (cookie, &b""[..]),
        };
        // An attribute of the preceding cookie, or an empty element.
        let is_attribute = cookie.is_empty() || key.starts_with(b"$");
        if equals.is_some() && key == name {
            match decide(value.trim_ascii_end()) {
                Fate::Kept => {}
                Fate::Shortened(by) => value = &value[by..],
                Fate::Removed => {
                    (removed, gap) = (true, true);
                    continue;
                }
            }
        } else if is_attribute && gap {
            continue;
        } else {
            kept |= !is_attribute;
        }
        if !std::mem::take(&mut gap) {
            if begun {
                rest.push(before);
            }
            rest.extend_from_slice(blanks);
        } else if !rest.is_empty() {
            // Of the separators around what is removed, the second stays.
            rest.truncate(rest.trim_ascii_end().len());
            rest.extend_from_slice(&[before, b' ']);
        }
        begun = true;
        rest.extend_from_slice(key);
        if equals.is_some() {
            rest.push(b'=');
        }
        rest.extend_from_slice(value);
    }
    if !removed {
        // The last one may end in a separator.
        rest.extend(header.last().filter(|_| start == header.len()));
        return Some(rest);
    }
    kept.then(|| rest.trim_ascii_end().to_vec())
}

/// What decides whether the server that a client's cookie names is used.
struct Judge<'a> {
    conf: &'a Cookie,
    proxy: &'a Proxy,
    pool: &'a Backend,
    rules: ForcedOrIgnored,
    /// Seconds since 1970.
    now: u64,
}

impl Judge<'_> {
    /// The log flag of the cookie whose value is `key`. If the server that it names can be used, it becomes `persistent`; dates that
    /// are over leave `cookie`.
    fn flag(&self, key: &[u8], cookie: &mut CookiePersistence, persistent: &mut Option<ServerId>) -> u8 {
        let past = |since: Option<u64>, limit: Option<Duration>| match (since, limit) {
            (Some(since), Some(limit)) => self.now.saturating_sub(since) > limit.as_secs(),
            _ => false,
        };
        // A date more than a day in the future comes from a wrong clock.
        let ahead = |date: Option<u64>| date.is_some_and(|date| date > self.now + 86_400);
        // The client gets a new cookie, whose lifetime starts now.
        if past(cookie.first, self.conf.maxlife) || ahead(cookie.first) {
            (cookie.first, cookie.last) = (None, None);
            return b'O';
        }
        if past(cookie.last, self.conf.maxidle) || ahead(cookie.last) {
            (cookie.first, cookie.last) = (None, None);
            return b'E';
        }
        // Something else has chosen the server.
        if self.rules.ignored || persistent.is_some() {
            return b'U';
        }
        let named = |server: &&Arc<Server>| {
            server.config.settings.cookie.as_deref().is_some_and(|cookie| cookie.as_bytes() == key)
        };
        let servers = self.pool.servers();
        let Some(server) = servers.iter().find(named) else { return b'I' };
        if !server.is_running() && !self.proxy.options.persist && !self.rules.forced {
            return b'D';
        }
        *persistent = Some(server.at.server);
        cookie.direct = true;
        if server.is_running() { b'V' } else { b'D' }
    }
}

/// Handles the persistence cookie in a response: rewrites, prefixes, removes or inserts it. Of other cookies, too, blanks around the
/// equals sign are dropped, as in a request.
pub(crate) fn to_client(x: &mut Exchange, proxy: &Proxy, now: u64) {
    let Some(conf) = &proxy.cookie else { return };
    let Some(server) = x.server.clone() else { return };
    let own = server.config.settings.cookie.as_deref();
    x.log.cookie[1] = b'N';
    let mut position = 0;
    // With `ignore-persist`, the server's own cookies are left alone.
    while let Some(field) = x.response.fields.at(position).filter(|_| !x.cookie.ignored) {
        let sets = field.known == Known::SetCookie || field.name.eq_ignore_ascii_case(b"set-cookie2");
        let Some((name, value)) = set(field.value).filter(|_| sets) else {
            position += 1;
            continue;
        };
        if name != conf.name.as_bytes() {
            let whole = [name, b"=", value].concat();
            if whole != field.value {
                let _ = x.response.fields.set_value_at(position, &whole);
            }
            position += 1;
            continue;
        }
        let value = value.to_vec();
        let rest = &value[value[..end_of_cookie(&value)].trim_ascii_end().len()..];
        // With `indirect`, a client that has named a server needs no cookie of another.
        let removes = conf.mode == CookieMode::Insert || (conf.indirect && x.cookie.direct);
        let (flag, value) = match (conf.mode, own) {
            _ if conf.preserve => (b'P', value),
            _ if removes => {
                x.log.cookie[1] = b'D';
                remove_at(&mut x.response.fields, position);
                continue;
            }
            (CookieMode::Rewrite, Some(own)) => (b'R', [own.as_bytes(), rest].concat()),
            (CookieMode::Prefix, Some(own)) => (b'R', [own.as_bytes(), b"~", &value].concat()),
            _ => (b'P', value),
        };
        x.log.cookie[1] = flag;
        // A name of ours and a value that was one are well formed.
        let _ = x.response.fields.set_value_at(position, &[conf.name.as_bytes(), b"=", &value].concat());
        position += 1;
    }
    if conf.mode == CookieMode::Insert && !(x.log.cookie[1] == b'P' && conf.preserve) && must_insert(x, conf, now) {
        insert(x, conf, own, now);
    }
}

/// Whether a cache may store the response (RFC 9111 section 3): its status and its fields allow it, and it has either a
/// lifetime or a validator.
fn is_cacheable(response: &ResponseHead) -> bool {
    let fields = &response.fields;
    if !matches!(response.status(), 200 | 203 | 204 | 206 | 300 | 301 | 404 | 405 | 410 | 414 | 501) {
        return false;
    }
    let mut known =
        [Known::Etag, Known::LastModified].iter().any(|&field| fields.has(field)) || fields.get(b"expires").is_some();
    for directive in fields.all_known(Known::CacheControl).flat_map(penstock_http::list) {
        let directive = directive.to_ascii_lowercase();
        match &directive[..] {
            b"no-cache" | b"no-store" | b"private" | b"max-age=0" | b"s-maxage=0" => return false,
            _ => known |= directive.starts_with(b"max-age=") || directive.starts_with(b"s-maxage="),
        }
    }
    known && fields.get(b"pragma").is_none()
}

fn must_insert(x: &Exchange, conf: &Cookie, now: u64) -> bool {
    let CookiePersistence { direct, ignored, last, first } = x.cookie;
    if ignored {
        return false;
    }
    let refresh = (conf.maxidle.is_some() || last.is_some()) && last.is_none_or(|last| last < now);
    let lifetime = conf.maxlife.is_some() != first.is_some();
    (!direct || refresh || lifetime) && (!conf.postonly || x.request.method() == b"POST")
}

fn insert(x: &mut Exchange, conf: &Cookie, own: Option<&str>, now: u64) {
    let mut value = conf.name.clone() + "=";
    match own {
        // The server has no cookie value: the client must forget that of another server.
        None => value.push_str("; Expires=Thu, 01-Jan-1970 00:00:01 GMT; path=/"),
        Some(own) => {
            value.push_str(own);
            if conf.maxidle.is_some() || conf.maxlife.is_some() {
                value.push('|');
                write_date(now, &mut value);
            }
            if conf.maxlife.is_some() {
                value.push('|');
                write_date(x.cookie.first.unwrap_or(now), &mut value);
            }
            value.push_str("; path=/");
        }
    }
    for domain in &conf.domains {
        value.push_str("; domain=");
        value.push_str(domain);
    }
    if conf.httponly {
        value.push_str("; HttpOnly");
    }
    if conf.secure {
        value.push_str("; Secure");
    }
    for attr in &conf.attrs {
        value.push_str("; ");
        value.push_str(attr);
    }
    // Names and attributes were checked when the configuration was read.
    let _ = x.response.fields.append(b"set-cookie", value.as_bytes());
    x.log.cookie[1] = if own.is_some() && x.cookie.direct { b'U' } else { b'I' };
    if conf.nocache && is_cacheable(&x.response) {
        let _ = x.response.fields.append(b"cache-control", b"private");
    }
}

fn remove_at(fields: &mut penstock_http::Fields, position: usize) {
    let mut at = 0;
    fields.remove_if(|_| {
        at += 1;
        at - 1 == position
    });
}

/// The name of the cookie that a `Set-Cookie` sets, and its value with the attributes.
fn set(header: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', header)?;
    Some((header[..at].trim_ascii(), header[at + 1..].trim_ascii_start()))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes a date in units of four seconds as five digits of six bits, most significant first: 30 bits last until 2106.
fn write_date(now: u64, out: &mut String) {
    let date = (now + 3) >> 2;
    for place in (0..5).rev() {
        out.push(char::from(DIGITS[(date >> (6 * place) & 63) as usize]));
    }
}

fn parse_date(text: &[u8]) -> Option<u64> {
    if text.len() < 5 {
        return None;
    }
    let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte);
    text[..5].iter().try_fold(0u64, |date, byte| Some(date << 6 | digit(byte)? as u64)).map(|date| date << 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(header: &str, fate: fn() -> Fate) -> (Option<String>, Vec<String>) {
        let mut seen = Vec::new();
        let rest = rewritten(header.as_bytes(), b"SV", |value| {
            seen.push(String::from_utf8(value.to_vec()).unwrap());
            fate()
        });
        (rest.map(|rest| String::from_utf8(rest).unwrap()), seen)
    }

    #[test]
    fn a_cookie_is_found_among_others_and_taken_out_with_what_belongs_to_it() {
        for (header, left, values) in [
            ("SV=a", None, &["a"][..]),
            ("SV=a; x=1", Some("x=1"), &["a"]),
            ("x=1; SV=a", Some("x=1"), &["a"]),
            ("x=1; SV=a; y=2", Some("x=1; y=2"), &["a"]),
            ("x=1;  SV=a  ;  y=2", Some("x=1; y=2"), &["a"]),
            ("xSV=b; SV=a", Some("xSV=b"), &["a"]),
            ("a=1; SV = b ; SV=c", Some("a=1"), &["b", "c"]),
            ("a = 1 ;SV=b; c = 3", Some("a=1; c=3"), &["b"]),
            ("foo; SV=b; a=1", Some("foo; a=1"), &["b"]),
            ("a=1, SV=b, c=2", Some("a=1, c=2"), &["b"]),
            ("a=1; SV=b, c=2", Some("a=1, c=2"), &["b"]),
            ("a=1, SV=b; SV=c; c=2", Some("a=1; c=2"), &["b", "c"]),
            ("$Version=1; SV=b; $Path=/", None, &["b"]),
            ("$Version=1; SV=b; $Path=/; a=1; $Path=/b", Some("$Version=1; a=1; $Path=/b"), &["b"]),
            ("SV=b, a=1", Some("a=1"), &["b"]),
            ("xSV=b; SVx=c; =d; SV", Some("xSV=b; SVx=c; =d; SV"), &[]),
        ] {
            let (rest, seen) = rest(header, || Fate::Removed);
            assert_eq!(
                (rest.as_deref(), &seen[..]),
                (left, &values.iter().map(|v| v.to_string()).collect::<Vec<_>>()[..]),
                "{header}"
            );
        }
    }

    #[test]
    fn what_stays_loses_only_blanks_around_equals_signs() {
        for (header, left) in [
            ("a=1; SV = b ; c=2", "a=1; SV=b ; c=2"),
            ("a = 1 ;SV =b;  $Path= /", "a=1 ;SV=b;  $Path=/"),
            ("foo;; SV=b;", "foo;; SV=b;"),
        ] {
            assert_eq!(rest(header, || Fate::Kept).0.as_deref(), Some(left), "{header}");
        }
        assert_eq!(rest("a=1; SV = b~c ; d=2", || Fate::Shortened(2)).0.as_deref(), Some("a=1; SV=c ; d=2"));
    }

    #[test]
    fn dates_are_kept_to_four_seconds() {
        for now in [0, 1_795_296_617, 4_294_967_290] {
            let mut text = String::new();
            write_date(now, &mut text);
            assert!((now..now + 4).contains(&parse_date(text.as_bytes()).unwrap()));
        }
        assert_eq!(parse_date(b"abc"), None);
        assert_eq!(parse_date(b"ab!de"), None);
    }
}
