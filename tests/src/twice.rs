//! `config/twice` asks HAProxy and penstock about two lines of each keyword that takes a value: which keywords it leaves out.

#[cfg(test)]
mod tests {
    use penstock_config::{Support, manual};

    /// Why a keyword of these names is not among the scenario's rows; `*` stands for the rest of a name.
    const LEFT_OUT: &[(&str, &str)] = &[
        ("http-request", "any number of rules may stand"),
        ("http-response", "any number of rules may stand"),
        ("http-after-response", "any number of rules may stand"),
        ("tcp-request connection", "any number of rules may stand"),
        ("tcp-request content", "any number of rules may stand"),
        ("tcp-request session", "any number of rules may stand"),
        ("tcp-response content", "any number of rules may stand"),
        ("tcp-request client-hello", "HAProxy 2.6 does not know it"),
        ("answer-ranges", "HAProxy does not know it"),
        ("collapse", "HAProxy does not know it"),
        ("setcap", "HAProxy 2.6 does not know it"),
        ("compression algo-*", "HAProxy 2.6 does not know it"),
        ("compression direction", "HAProxy 2.6 does not know it"),
        ("compression minsize-*", "HAProxy 2.6 does not know it"),
        ("compression type-*", "HAProxy 2.6 does not know it"),
        ("filter comp-*", "HAProxy 2.6 does not know it"),
        ("dispatch", "the section of these rows has servers"),
        ("filter bwlim-*", "HAProxy 2.6 does not know it"),
        ("filter spoe", "it names a file with sections of its own"),
        ("guid", "HAProxy 2.6 does not know it"),
        ("http-err-codes", "HAProxy 2.6 does not know it"),
        ("http-fail-codes", "HAProxy 2.6 does not know it"),
        ("option forwarded", "HAProxy 2.6 does not know it"),
        ("max-body", "HAProxy 2.6 does not know it"),
        ("device", "HAProxy does not know it"),
        ("on-failure", "HAProxy 2.6 does not know it"),
        ("reqmod", "HAProxy 2.6 does not know it"),
        ("respmod", "HAProxy 2.6 does not know it"),
        ("tap", "HAProxy does not know it"),
        ("tap-buffer", "HAProxy does not know it"),
        ("tap-port", "HAProxy does not know it"),
        ("ssl-default-server-curves", "HAProxy 2.6 does not know it"),
        ("runtime-changes-file", "HAProxy 2.6 does not know it"),
        ("stats-file", "HAProxy 2.6 does not know it"),
        ("tune.cli.*", "HAProxy 2.6 does not know it"),
        ("tune.compression.*", "HAProxy does not know it"),
        ("tune.crypto.*", "HAProxy 2.6 does not know it"),
        ("tune.h2.be.*", "HAProxy 2.6 does not know it"),
        ("tune.h2.fe.*", "HAProxy 2.6 does not know it"),
        ("tune.stick-counters", "HAProxy 2.6 does not know it"),
        ("harden.reject-privileged-ports.tcp", "HAProxy 2.6 does not know it"),
        ("timeout client-hs", "HAProxy 2.6 does not know it"),
        ("ssl-provider", "Debian's HAProxy does not know it"),
        ("ssl-engine", "Debian's HAProxy does not know it"),
        ("errorfiles", "it names a section of its own"),
        ("external-check *", "it asks for 'external-check' in the global section"),
        ("tune.http.cookielen", "as tune.http.logurilen"),
    ];

    fn left_out(name: &str) -> bool {
        LEFT_OUT.iter().any(|(left, _)| left.strip_suffix('*').map_or(*left == name, |stem| name.starts_with(stem)))
    }

    #[test]
    fn every_keyword_with_a_value_is_written_twice_or_left_out_for_a_reason() {
        let scenario = include_str!("../scenarios/config/twice.scn");
        let (rows, _) = scenario.split_once("[file ask.sh]").expect("the rows come first");
        let written = |kind: &[&str], name: &str| {
            rows.lines().filter_map(|row| row.split_once('|')).filter(|(k, _)| kind.contains(k)).any(|(_, lines)| {
                lines.match_indices(name).any(|(at, _)| {
                    let before = lines[..at].chars().next_back();
                    let behind = lines[at + name.len()..].chars().next();
                    before.is_none_or(|c| matches!(c, ' ' | '|')) && behind.is_none_or(|c| matches!(c, ' ' | '|' | '('))
                })
            })
        };
        let mut missing = Vec::new();
        for entry in manual::keywords().into_iter().filter(|e| e.support == Support::Implemented && e.arity.max > 0) {
            let kinds: &[&str] = match entry.section {
                "global" => &["global"],
                "proxy" => &["frontend", "backend"],
                "resolvers" => &["resolvers"],
                "cache" => &["cache"],
                "userlist" => &["userlist"],
                _ => continue,
            };
            if !written(kinds, entry.name) && !left_out(entry.name) {
                missing.push(entry.name);
            }
        }
        assert!(missing.is_empty(), "`config/twice` has no row for {missing:?}");
    }
}
