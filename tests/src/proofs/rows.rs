//! The rows that claim to be implemented, from the tables of the crates that implement them.

use penstock_admin::metrics::METRICS;
use penstock_config::{Support, manual};
use penstock_rules::{ACTIONS, Kind as Ruleset, Support as Works, conv, fetch, log};

/// What a row is about, which decides how it looks in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A line of its own in this kind of section; `proxy` stands for the four kinds of proxies.
    Line(&'static str),
    /// A setting of a `bind` or `server` line, with the least and the greatest number of words after it.
    Setting(&'static str, u8, u8),
    /// A sample fetch.
    Fetch,
    /// A converter.
    Converter,
    /// An action in a list of rules of this kind.
    Action(&'static str),
    /// An alias of log formats.
    Alias,
    /// A metric of HAProxy's exporter.
    Metric,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is about.
    pub kind: Kind,
    /// Its name, as the manual writes it.
    pub name: &'static str,
}

impl Row {
    /// The first column of `proofs.tsv`.
    pub fn table(&self) -> &'static str {
        match self.kind {
            Kind::Line(section) | Kind::Setting(section, ..) => section,
            Kind::Fetch => "fetch",
            Kind::Converter => "converter",
            Kind::Action(rules) => rules,
            Kind::Alias => "alias",
            Kind::Metric => "metric",
        }
    }
}

/// Every row that says implemented.
pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for entry in manual::keywords().into_iter().filter(|e| e.support == Support::Implemented) {
        let kind = match entry.section {
            "bind" | "server" => Kind::Setting(entry.section, entry.arity.min, entry.arity.max),
            section => Kind::Line(section),
        };
        rows.push(Row { kind, name: entry.name });
    }
    let fetches = fetch::sections().iter().flat_map(|(_, table)| *table);
    rows.extend(
        fetches.filter(|f| matches!(f.support, Works::Yes(_))).map(|f| Row { kind: Kind::Fetch, name: f.name }),
    );
    let converters = conv::sections().iter().flat_map(|(_, table)| *table);
    rows.extend(
        converters.filter(|c| matches!(c.support, Works::Yes(_))).map(|c| Row { kind: Kind::Converter, name: c.name }),
    );
    for action in ACTIONS.iter().filter(|a| a.is_implemented()) {
        let lists = Ruleset::ALL.iter().filter(|rules| action.allowed_in(**rules));
        rows.extend(lists.map(|rules| Row { kind: Kind::Action(rules.name()), name: action.name }));
    }
    rows.extend(log::ALIASES.iter().map(|a| Row { kind: Kind::Alias, name: a.name }));
    rows.extend(METRICS.iter().map(|m| Row { kind: Kind::Metric, name: m.name }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_rows_have_one_name() {
        let mut names: Vec<_> = all().iter().map(|r| (r.table(), r.name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count > 700, "{count} rows");
    }
}
