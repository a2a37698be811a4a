//! Lines of the configuration, made from the rows of its keyword tables.

use std::sync::LazyLock;

use penstock_config::{Support, manual};
use penstock_rules::Kind;

use super::case::Section;
use super::dice::Dice;
use super::grammar::expand;
use super::speech::{self, Moment, filler};

/// What may follow a keyword of the proxy sections that needs arguments, in the notation of [`super::grammar`].
/// Keywords without arguments, timeouts and `balance`, whose own table has examples, need no row here.
pub const ARGUMENTS: &[(&str, &str)] = &[
    ("acl", "{a1 | a2} <test>"),
    ("capture cookie", "{sid len 5 | a= len 20}"),
    ("capture request header", "<name> len <len>"),
    ("capture response header", "<name> len <len>"),
    (
        "cookie",
        "{sid | A} {insert | rewrite | prefix | insert indirect | insert indirect nocache} [postonly] [preserve] [httponly] [secure] [domain .h.example] [attr SameSite=Lax]",
    ),
    ("declare capture request", "len <len>"),
    ("declare capture response", "len <len>"),
    ("default-server", "[weight 3] [maxconn 10] [error-limit 2] [observe layer7]"),
    ("error-log-format", "<logfmt>"),
    ("errorfile", "<errcode> {<dir>/404.http | <dir>/503.http}"),
    ("errorfiles", "pages [404] [503]"),
    ("errorloc", "<errcode> /sorry"),
    ("errorloc302", "<errcode> http://h.example/sorry"),
    ("errorloc303", "<errcode> /sorry"),
    ("force-persist", "if <test-braced>"),
    ("ignore-persist", "if <test-braced>"),
    ("fullconn", "{1 | 100}"),
    ("backlog", "{1 | 100}"),
    ("hash-balance-factor", "{0 | 150}"),
    ("hash-type", "{map-based | consistent} [{sdbm | djb2 | wt6 | crc32}] [avalanche]"),
    ("http-error", "status <errcode> <reply>"),
    ("http-reuse", "{never | safe | aggressive | always}"),
    ("http-send-name-header", "{x-server | host | }"),
    ("log-format", "<logfmt>"),
    ("max-keep-alive-queue", "{-1 | 0 | 3}"),
    ("maxconn", "{1 | 100}"),
    ("monitor fail", "if <test-braced>"),
    ("monitor-uri", "{/monitor | /a/b}"),
    ("option forwardfor", "[except 10.0.0.0/8] [header X-Client] [if-none]"),
    ("option originalto", "[except 10.0.0.0/8] [header X-Dst]"),
    ("option http-restrict-req-hdr-names", "{preserve | delete | reject}"),
    ("option httplog", "[clf]"),
    ("option redispatch", "[{1 | -1 | 2}]"),
    ("rate-limit sessions", "1000"),
    ("redirect", "<redirection><cond-rule>"),
    ("retries", "{0 | 1 | 3}"),
    (
        "retry-on",
        "{none | {conn-failure | empty-response | junk-response | response-timeout | 0rtt-rejected | 404 | 503 | all-retryable-errors} [503]}",
    ),
    ("source", "{0.0.0.0 | 127.0.0.2 | 127.0.0.1:0}"),
    ("stick match", "<expr>"),
    ("stick on", "{src | <expr>}"),
    ("stick store-request", "<expr>"),
    ("stick store-response", "<expr>"),
    (
        "stick-table",
        "type {ip | ipv6 | integer | string len 20 | binary len 8} size 100 [expire 1m] [store gpc0,gpc1,gpt0,http_req_cnt,http_req_rate(1m),conn_cnt,http_err_cnt,http_fail_cnt,bytes_in_cnt,bytes_out_cnt,sess_cnt] [nopurge]",
    ),
    ("clitcpka-cnt", "{1 | 9}"),
    ("clitcpka-idle", "{10 | 1m}"),
    ("clitcpka-intvl", "{10 | 1m}"),
    ("srvtcpka-cnt", "{1 | 9}"),
    ("srvtcpka-idle", "{10 | 1m}"),
    ("srvtcpka-intvl", "{10 | 1m}"),
    ("tcp-request inspect-delay", "{100ms | 300}"),
    ("tcp-response inspect-delay", "{100ms | 300}"),
    ("unique-id-format", "<fmt>"),
    ("unique-id-header", "x-id"),
    ("use-server", "{s1 | s2} if <test-braced>"),
    ("use_backend", "k§<cond-rule>"),
    ("description", "some words"),
    ("option httpchk", "{ | OPTIONS /health | GET /health HTTP/1.1}"),
    ("option smtpchk", ""),
];

/// Rows that are not generated, and why.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("bind", "each case has one"),
    ("server", "made with its own words"),
    ("mode", "decides what a case is"),
    ("default_backend", "each case has one"),
    ("disabled", "nothing would listen"),
    ("enabled", "as without it"),
    ("email-alert from", "no mail server is there"),
    ("email-alert level", "no mail server is there"),
    ("email-alert mailers", "no mail server is there"),
    ("email-alert myhostname", "no mail server is there"),
    ("email-alert to", "no mail server is there"),
    ("id", "numbers must differ across cases"),
    ("guid", "HAProxy 2.6 does not know it"),
    ("timeout client-hs", "HAProxy 2.6 does not know it"),
    ("load-server-state-from-file", "reads a file that an earlier process left"),
    ("server-state-file-name", "reads a file that an earlier process left"),
    ("log", "the suite's receiver is the only one"),
    ("log-tag", "the transcript knows lines by their tag"),
    ("log-format-sd", "only for a log in RFC 5424's format, which the suite does not ask for"),
    ("compression algo", "some cases are given it at last, with steps that decode"),
    ("compression type", "as `compression algo`, without which it has no effect"),
    ("compression algo-req", "HAProxy 2.6 does not know it"),
    ("compression algo-res", "HAProxy 2.6 does not know it"),
    ("compression direction", "HAProxy 2.6 does not know it"),
    ("compression minsize-req", "HAProxy 2.6 does not know it"),
    ("compression minsize-res", "HAProxy 2.6 does not know it"),
    ("compression type-req", "HAProxy 2.6 does not know it"),
    ("compression type-res", "HAProxy 2.6 does not know it"),
    ("dispatch", "a section has it in place of servers"),
    ("filter bwlim-in", "HAProxy 2.6 does not know it"),
    ("filter bwlim-out", "HAProxy 2.6 does not know it"),
    ("filter cache", "what is stored lives on from case to case"),
    ("filter comp-req", "HAProxy 2.6 does not know it"),
    ("filter comp-res", "HAProxy 2.6 does not know it"),
    ("filter spoe", "it asks for an agent, and for a file with its sections"),
    ("server-template", "its servers resolve names"),
    ("http-request", "made from the table of actions"),
    ("http-response", "made from the table of actions"),
    ("http-after-response", "made from the table of actions"),
    ("tcp-request connection", "made from the table of actions"),
    ("tcp-request client-hello", "HAProxy does not have it"),
    ("reqmod", "HAProxy does not have it"),
    ("respmod", "HAProxy does not have it"),
    ("tap", "HAProxy does not have it"),
    ("tap-buffer", "HAProxy does not have it"),
    ("tap-port", "HAProxy does not have it"),
    ("device", "HAProxy does not have it"),
    ("on-failure", "HAProxy does not have it"),
    ("max-body", "HAProxy does not have it"),
    ("tcp-request session", "made from the table of actions"),
    ("tcp-request content", "made from the table of actions"),
    ("tcp-response content", "made from the table of actions"),
    ("option transparent", "connections would go to the proxy itself"),
    ("transparent", "connections would go to the proxy itself"),
    ("option forwarded", "HAProxy 2.6 has it not"),
    ("option httpslog", "no TLS in these cases"),
    ("option ldap-check", "the origins speak HTTP"),
    ("option external-check", "it starts programs"),
    ("external-check command", "it names a program"),
    ("external-check path", "it is the environment of a program"),
    ("option mysql-check", "the origins speak HTTP"),
    ("option pgsql-check", "the origins speak HTTP"),
    ("option redis-check", "the origins speak HTTP"),
    ("option ssl-hello-chk", "the origins speak HTTP"),
    ("option tcp-check", "the origins speak HTTP"),
    ("http-check comment", "checks run on their own time"),
    ("http-check connect", "checks run on their own time"),
    ("http-check disable-on-404", "checks run on their own time"),
    ("http-check expect", "checks run on their own time"),
    ("http-check send", "checks run on their own time"),
    ("http-check send-state", "checks run on their own time"),
    ("http-check set-var", "checks run on their own time"),
    ("http-check set-var-fmt", "checks run on their own time"),
    ("http-check unset-var", "checks run on their own time"),
    ("tcp-check comment", "checks run on their own time"),
    ("tcp-check connect", "checks run on their own time"),
    ("tcp-check expect", "checks run on their own time"),
    ("tcp-check send", "checks run on their own time"),
    ("tcp-check send-binary", "checks run on their own time"),
    ("tcp-check send-binary-lf", "checks run on their own time"),
    ("tcp-check send-lf", "checks run on their own time"),
    ("tcp-check set-var", "checks run on their own time"),
    ("tcp-check set-var-fmt", "checks run on their own time"),
    ("tcp-check unset-var", "checks run on their own time"),
    ("stats admin", "the pages are not HAProxy's"),
    ("stats auth", "the pages are not HAProxy's"),
    ("stats enable", "the pages are not HAProxy's"),
    ("stats hide-version", "the pages are not HAProxy's"),
    ("stats http-request", "the pages are not HAProxy's"),
    ("stats realm", "the pages are not HAProxy's"),
    ("stats refresh", "the pages are not HAProxy's"),
    ("stats scope", "the pages are not HAProxy's"),
    ("stats show-desc", "the pages are not HAProxy's"),
    ("stats show-legends", "the pages are not HAProxy's"),
    ("stats show-node", "the pages are not HAProxy's"),
    ("stats uri", "the pages are not HAProxy's"),
];

/// Words of a server's line.
pub const SERVER: &[&str] = &[
    "backup",
    "cookie c1",
    "cookie {s1 | A}",
    "weight {0 | 1 | 5 | 256}",
    "maxconn {1 | 10}",
    "maxqueue 1",
    "disabled",
    "send-proxy",
    "send-proxy-v2",
    "send-proxy-v2 proxy-v2-options unique-id",
    "source 127.0.0.2",
    "observe layer7",
    "observe layer7 error-limit 1 on-error mark-down",
    "max-reuse {0 | 1 | 3}",
    "pool-max-conn {0 | 1}",
    "pool-low-conn 2",
    "minconn 1",
    "slowstart 1s",
    "enabled",
    "no-backup",
    "pool-purge-delay 100ms",
    "no-check",
    "no-send-proxy",
    "on-marked-down shutdown-sessions",
    "ws {h1 | auto}",
    "tfo",
    "init-addr none",
    "check inter 10s",
];

fn usable() -> &'static [manual::Entry] {
    static ROWS: LazyLock<Vec<manual::Entry>> = LazyLock::new(|| {
        let rows = manual::keywords().into_iter().filter(|e| e.section == "proxy" && e.support == Support::Implemented);
        rows.filter(|e| !LEFT_OUT.iter().any(|(n, _)| *n == e.name)).collect()
    });
    &ROWS
}

/// A keyword's pattern, if it can be generated.
fn pattern(entry: &manual::Entry) -> Option<&'static str> {
    static BALANCE: LazyLock<String> =
        LazyLock::new(|| format!("{{{}}}", penstock_config::balance_examples().collect::<Vec<_>>().join(" | ")));
    match ARGUMENTS.iter().find(|(n, _)| *n == entry.name) {
        Some((_, pattern)) => Some(pattern),
        None if entry.name == "balance" => Some(&BALANCE),
        // None of them is a time of servers: see `case::BASE`.
        None if ["timeout client", "timeout client-fin", "timeout http-request"].contains(&entry.name) => {
            Some("{250ms | 900 | 600 | 1800}")
        }
        None if entry.name.starts_with("timeout ") => Some("{200ms | 1s | 700 | 2s}"),
        None if entry.arity.min == 0 => Some(""),
        None => None,
    }
}

/// A line of the frontend or the backend other than a rule.
pub fn keyword(section: Section, dice: &mut Dice) -> Option<String> {
    use penstock_config::Places;
    let place = match section {
        Section::Defaults => Places::DEFAULTS,
        Section::Front => Places::FRONTEND,
        Section::Back => Places::BACKEND,
    };
    let rows: Vec<_> = usable().iter().filter(|e| e.places.has(place)).collect();
    let entry = rows[dice.below(rows.len())];
    let moment =
        Moment::Rule(if dice.chance(70) || section != Section::Back { Kind::HttpRequest } else { Kind::HttpResponse });
    let moment = if entry.name.contains("response") { Moment::Rule(Kind::HttpResponse) } else { moment };
    let arguments = expand(pattern(entry)?, dice, &mut |slot, dice| match slot {
        "test-braced" => format!("{{ {} }}", speech::test(moment, dice)),
        slot => filler(slot, moment, dice).unwrap_or_else(|| format!("<{slot}>")),
    });
    let no = if entry.negatable && dice.chance(15) { "no " } else { "" };
    Some(format!("{no}{} {arguments}", entry.name).trim_end().to_owned())
}

/// A rule.
pub fn rule(kind: Kind, dice: &mut Dice) -> String {
    let action = speech::action(kind, dice);
    format!("{} {action}{}", kind.name(), speech::condition(Moment::Rule(kind), dice))
}

/// The words after a server's address.
pub fn server_words(dice: &mut Dice) -> String {
    let mut out = String::new();
    for _ in 0..3 {
        if dice.chance(15) {
            out.push(' ');
            out.push_str(&expand(dice.pick(SERVER), dice, &mut |_, _| String::new()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new row of the proxy sections needs a pattern for its arguments, or a reason to be left out.
    #[test]
    fn every_row_is_generated_or_left_out_for_a_reason() {
        for entry in usable() {
            assert!(
                pattern(entry).is_some(),
                "`{}` needs its arguments in ARGUMENTS, or a reason in LEFT_OUT",
                entry.name
            );
        }
        let names: Vec<&str> = manual::keywords().into_iter().map(|e| e.name).collect();
        for name in ARGUMENTS.iter().chain(LEFT_OUT).map(|(n, _)| n) {
            assert!(names.contains(name), "there is no keyword `{name}`");
        }
    }

    #[test]
    fn every_slot_of_a_pattern_is_filled() {
        for seed in 0..3000 {
            for section in [Section::Front, Section::Back] {
                if let Some(line) = keyword(section, &mut Dice::new(seed)) {
                    assert!(!line.contains("<cond") && !line.contains("<test") && !line.contains("<redir"), "{line}");
                }
            }
        }
    }
}
