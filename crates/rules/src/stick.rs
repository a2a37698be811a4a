//! `stick on`, `stick match`, `stick store-request`, `stick store-response`.

use crate::{
    acl::{Acls, Condition},
    answer::Answer,
    context::Context,
    expr::Expr,
    hint,
    keyword::Places,
    link::{Linker, Scope},
    problem::Problem,
    table::{Data, Millis, StickTable},
    words::Words,
};
use penstock_config::{Config, Diagnostics, Line, Span, model::ProxyId};
use std::{collections::HashSet, sync::Arc};

/// A rule of persistence by a stick table.
#[derive(Clone, Debug)]
pub struct StickRule {
    /// Whether to look the key up when a server is chosen.
    pub matches: bool,
    /// Whether to store the server under the request's key once it is chosen.
    pub stores_request: bool,
    /// Whether to store the server under the response's key.
    pub stores_response: bool,
    expr: Expr,
    table: Arc<StickTable>,
    condition: Condition,
    /// Where the rule is in the configuration.
    pub span: Span,
}

/// A server as a table remembers it. The name or address comes first: a peer may have other numbers.
#[derive(Clone, Debug)]
pub struct Stuck {
    /// The server's number, 0 for none.
    pub id: u32,
    /// The server's name, or its address.
    pub key: Option<Arc<str>>,
    /// Whether `key` is the server's address.
    pub is_address: bool,
}

impl StickRule {
    /// The server that the request sticks to. Counts as a use of the entry.
    pub fn find(&self, ctx: &Context<'_>) -> Option<Stuck> {
        if !self.matches || self.condition.holds(ctx) != Answer::Yes {
            return None;
        }
        let now = ctx.now.mono;
        let entry = self.table.lookup(self.expr.eval(ctx).ok()?, now)?;
        self.table.touch(&entry, now);
        let id = self.table.value(&entry, Data::ServerId, 0, now).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        let key = self.table.server_key(&entry);
        (id != 0 || key.is_some()).then_some(Stuck { id, key, is_address: self.table.spec.server_key_is_address })
    }

    /// The key under which the server is to be stored, if the rule applies.
    pub fn key(&self, ctx: &Context<'_>) -> Option<Box<[u8]>> {
        if self.condition.holds(ctx) != Answer::Yes {
            return None;
        }
        self.table.spec.key.kept(self.expr.eval(ctx).ok()?)
    }

    /// Stores the server under a key: its number, and its name or address.
    pub fn store(&self, key: &[u8], now: Millis, server_id: u32, name: &str, address: impl Fn() -> Option<String>) {
        if let Some(entry) = self.table.get_or_insert_key(key, now) {
            let address = self.table.spec.server_key_is_address.then(address).flatten();
            self.table.set_server(&entry, server_id, address.as_deref().unwrap_or(name));
        }
    }
}

/// Names of the tables that store servers: those of proxies with `stick` lines, and those that the lines name.
pub(crate) fn tables_with_servers(config: &Config) -> HashSet<&str> {
    let mut names = HashSet::new();
    for proxy in &config.proxies {
        for line in &proxy.stick {
            let named = line.words.iter().position(|word| word.text == "table").and_then(|at| line.words.get(at + 1));
            names.insert(named.map_or(proxy.name.as_str(), |word| word.text.as_str()));
        }
    }
    names
}

const FORMS: &[&str] = &["match", "on", "store-request", "store-response"];

pub(crate) fn compile(
    linker: &mut Linker<'_>,
    acls: &mut Acls,
    proxy: ProxyId,
    line: &Line,
    diagnostics: &mut Diagnostics,
) -> Option<StickRule> {
    let mut words = Words::new(line);
    let form = words.next();
    let (matches, stores_request, stores_response) = match form.map(|word| word.text.as_str()) {
        Some("match") => (true, false, false),
        Some("on") => (true, true, false),
        Some("store-request") => (false, true, false),
        Some("store-response") => (false, false, true),
        other => {
            let span = form.map_or(line.span, |word| word.span);
            diagnostics.error(span, "'stick' needs one of match, on, store-request, store-response").hint =
                other.and_then(|word| hint::nearest(word, FORMS.iter().copied()));
            return None;
        }
    };
    let place = if stores_response { Places::RESPONSE } else { Places::REQUEST };
    let scope = Scope { proxy: Some(proxy), place };
    let Some(first) = words.next() else {
        diagnostics.error(words.last_span(), "'stick' needs a sample expression");
        return None;
    };
    // Converters may be written as separate words.
    let mut text = first.text.clone();
    while let Some(word) = words.peek().filter(|word| !matches!(word.text.as_str(), "table" | "if" | "unless")) {
        text.push(',');
        text.push_str(word);
        words.next();
    }
    let expr = match linker.expression_in(&text, 0, scope) {
        Ok((expr, end)) if end == text.len() => expr,
        Ok((_, end)) => {
            let problem = Problem::new(end..text.len(), format!("'{}' does not belong to an expression", &text[end..]));
            problem.report(first.span, &text, diagnostics);
            return None;
        }
        Err(problem) => {
            problem.report(first.span, &text, diagnostics);
            return None;
        }
    };
    let table = if words.take("table") {
        let Some(name) = words.next() else {
            diagnostics.error(words.last_span(), "'table' needs the name of a stick table");
            return None;
        };
        match linker.table(name, 0..name.len()) {
            Ok(table) => table,
            Err(problem) => {
                problem.report(name.span, name, diagnostics);
                return None;
            }
        }
    } else {
        let name = &linker.config.proxies[proxy].name;
        match linker.tables.get(name) {
            Some(table) => Arc::clone(table),
            None => {
                diagnostics.error(line.span, "'stick' needs a 'table': this section declares none of its own");
                return None;
            }
        }
    };
    if !expr.output().casts_to(table.spec.key.sample()) {
        let message =
            format!("the table '{}' has keys of type {}, not {}", table.name, table.spec.key.name(), expr.output());
        diagnostics.error(first.span, message);
        return None;
    }
    let condition = linker.condition(&mut words, acls, scope, diagnostics)?;
    Some(StickRule { matches, stores_request, stores_response, expr, table, condition, span: line.span })
}
