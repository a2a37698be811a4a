//! Cookie persistence (`cookie NAME ...`): the client stores which server it was assigned to.

use super::persistence::Persistence;
use crate::exchange::state::{CookiePersistence, Exchange};
use crate::server::{Backend, Server, ServerId};
use penstock_config::model::{Cookie, CookieMode, Proxy};
use penstock_http::{Known, ResponseHead};
use penstock_rules::fetch::end_of_cookie;
use std::{sync::Arc, time::Duration};

/// Looks for the persistence cookie in a request: finds the server it names, and removes what the server must not see.
pub(crate) fn from_client(x: &mut Exchange, proxy: &Proxy, pool: &Backend, rules: Persistence, now: u64) {
    let Some(conf) = &proxy.cookie else { return };
    x.log.cookie = *b"NN";
    x.cookie.ignored = rules.ignored;
    let fields = &mut x.request.fields;
    let (mut position, mut at) = (0, 0);
    while let Some(field) = fields.at(position) {
        let found = (field.known == Known::Cookie).then(|| find(field.value, at, conf.name.as_bytes())).flatten();
        let Some(Found { start, end, value: (value_at, value_end) }) = found else {
            (position, at) = (position + 1, 0);
            continue;
        };
        at = end + 1;
        let header = field.value.to_vec();
        let value = &header[value_at..value_end];
        let key = match conf.mode {
            CookieMode::Prefix => match memchr::memchr(b'~', value) {
                Some(at) => &value[..at],
                None => continue,
            },
            CookieMode::Insert => value.split(|&b| b == b'|').next().unwrap_or_default(),
            CookieMode::Rewrite | CookieMode::Passive => value,
        };
        // The first cookie that names a server decides, but all are removed. A browser sends several of one name if
        // they were set for different paths or domains.
        if !matches!(x.log.cookie[0], b'V' | b'D') {
            let dates = value.split(|&b| b == b'|').skip(1).map(parse_date).collect::<Vec<_>>();
            let kept = CookiePersistence {
                direct: x.cookie.direct,
                ignored: rules.ignored,
                last: dates.first().copied().flatten(),
                first: dates.get(1).copied().flatten(),
            };
            x.cookie = kept;
            x.log.cookie[0] = judge(key, conf, &mut x.cookie, &mut x.persistent, proxy, pool, rules, now);
        }
        let replaced = match conf.mode {
            CookieMode::Prefix => {
                at -= key.len() + 1;
                [&header[..value_at], &header[value_at + key.len() + 1..]].concat()
            }
            CookieMode::Insert if conf.indirect => {
                at = start;
                without(&header, start, end)
            }
            _ => continue,
        };
        if replaced.is_empty() {
            remove_at(fields, position);
            at = 0;
        } else {
            // What is left after removing part of a valid field value is valid.
            let _ = fields.set_value_at(position, &replaced);
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "one judgement, and all it is made of")]
/// The log flag for the client's cookie, and the server it names if that can be used.
fn judge(
    key: &[u8],
    conf: &Cookie,
    cookie: &mut CookiePersistence,
    persistent: &mut Option<ServerId>,
    proxy: &Proxy,
    pool: &Backend,
    rules: Persistence,
    now: u64,
) -> u8 {
    let past = |since: Option<u64>, limit: Option<Duration>| match (since, limit) {
        (Some(since), Some(limit)) => now.saturating_sub(since) > limit.as_secs(),
        _ => false,
    };
    // A date more than a day in the future comes from a wrong clock.
    let ahead = |date: Option<u64>| date.is_some_and(|date| date > now + 86_400);
    // The client gets a new cookie, whose lifetime starts now.
    if past(cookie.first, conf.maxlife) || ahead(cookie.first) {
        (cookie.first, cookie.last) = (None, None);
        return b'O';
    }
    if past(cookie.last, conf.maxidle) || ahead(cookie.last) {
        (cookie.first, cookie.last) = (None, None);
        return b'E';
    }
    let named =
        |server: &&Arc<Server>| server.config.settings.cookie.as_deref().is_some_and(|cookie| cookie.as_bytes() == key);
    let servers = pool.servers();
    let Some(server) = servers.iter().find(named) else { return b'I' };
    if !server.is_running() && !proxy.options.persist && !rules.forced {
        return b'D';
    }
    if persistent.is_some() || rules.ignored {
        return b'U';
    }
    *persistent = Some(server.at.server);
    cookie.direct = true;
    b'V'
}

/// Whether the log shows how the cookie was used; not if it is only read.
pub(crate) fn is_managed(proxy: &Proxy) -> bool {
    let managed = |c: &Cookie| c.mode != CookieMode::Passive || c.indirect || c.nocache || c.preserve;
    proxy.cookie.as_ref().is_some_and(managed)
}

/// Handles the persistence cookie in a response: rewrites, prefixes, removes or inserts it.
pub(crate) fn to_client(x: &mut Exchange, proxy: &Proxy, now: u64) {
    let Some(conf) = &proxy.cookie else { return };
    let Some(server) = x.server.clone() else { return };
    let own = server.config.settings.cookie.as_deref();
    x.log.cookie[1] = b'N';
    let mut position = 0;
    while let Some(field) = x.response.fields.at(position) {
        if field.known != Known::SetCookie || !names(field.value, conf.name.as_bytes()) {
            position += 1;
            continue;
        }
        let header = field.value.to_vec();
        x.log.cookie[1] = b'P';
        let equals = memchr::memchr(b'=', &header).map_or(header.len(), |at| at + 1);
        let end = end_of_cookie(&header);
        let value = match (conf.mode, own) {
            (CookieMode::Insert, _) if !conf.preserve => {
                x.log.cookie[1] = b'D';
                remove_at(&mut x.response.fields, position);
                continue;
            }
            (CookieMode::Rewrite, Some(own)) => [&header[..equals], own.as_bytes(), &header[end..]].concat(),
            (CookieMode::Prefix, Some(own)) => [&header[..equals], own.as_bytes(), b"~", &header[equals..]].concat(),
            _ => {
                position += 1;
                continue;
            }
        };
        x.log.cookie[1] = b'R';
        let _ = x.response.fields.set_value_at(position, &value);
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
        // The server has no cookie of its own: the client must forget that of another.
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

/// A cookie in a `Cookie` field: where it starts, where it ends (without its semicolon), and where its value lies.
struct Found {
    start: usize,
    end: usize,
    value: (usize, usize),
}

/// The next cookie of that name, from `start` on.
fn find(header: &[u8], mut start: usize, name: &[u8]) -> Option<Found> {
    while start < header.len() {
        let end = start + end_of_cookie(&header[start..]);
        let skip = header[start..end].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let pair = &header[start + skip..end];
        if let Some(equals) = memchr::memchr(b'=', pair)
            && pair[..equals].trim_ascii_end() == name
        {
            let value = (start + skip + equals + 1, start + skip + pair.trim_ascii_end().len());
            return Some(Found { start, end, value });
        }
        start = end + 1;
    }
    None
}

/// The field without one of its cookies.
fn without(header: &[u8], start: usize, end: usize) -> Vec<u8> {
    if start == 0 {
        return header[(end + 1).min(header.len())..].trim_ascii_start().to_vec();
    }
    [&header[..start - 1], &header[end..]].concat()
}

/// Whether a `Set-Cookie` sets the cookie of that name.
fn names(header: &[u8], name: &[u8]) -> bool {
    memchr::memchr(b'=', header).is_some_and(|at| header[..at].trim_ascii() == name)
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

    #[test]
    fn a_cookie_is_found_among_others_and_taken_out_with_its_semicolon() {
        for (header, rest) in [
            ("SRV=a", ""),
            ("SRV=a; x=1", "x=1"),
            ("x=1; SRV=a", "x=1"),
            ("x=1; SRV=a; y=2", "x=1; y=2"),
            ("xSRV=b; SRV=a", "xSRV=b"),
        ] {
            let Found { start, end, value } = find(header.as_bytes(), 0, b"SRV").unwrap();
            assert_eq!(&header[value.0..value.1], "a");
            assert_eq!(without(header.as_bytes(), start, end), rest.as_bytes(), "{header}");
        }
        assert!(find(b"xSRV=b; SRVx=c; =d; SRV", 0, b"SRV").is_none());
        assert_eq!(find(b"SRV=a; SRV=b", 5, b"SRV").unwrap().start, 6);
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
