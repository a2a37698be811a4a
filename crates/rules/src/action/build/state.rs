//! Arguments of actions that change what outlives the rule: variables, captures, counters, lists and maps.

use super::{Build, Slot};
use crate::{
    Kind,
    action::{Action, Amount},
    hint,
    log::Purpose,
    problem::Problem,
    table::Data,
    value::Type,
    vars::{Condition, VarRef},
};
use penstock_config::{Word, model::ProxyKind};

impl<'l> Build<'_, 'l, '_> {
    /// Reads `(txn.x,ifnotset)`.
    fn variable(&mut self) -> Option<(VarRef, Box<[Condition]>)> {
        let mut parts = self.inside.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let var = match self.linker.var(name) {
            Ok(var) => var,
            Err(problem) => {
                let at = self.word.text.find('(').map_or(0, |at| at + 1);
                self.problem(self.word, Problem { at: at..at + name.len(), ..problem });
                return None;
            }
        };
        let mut conditions = Vec::new();
        for part in parts {
            match Condition::parse(part) {
                Some(condition) => conditions.push(condition),
                None => {
                    self.error(self.word.span, format!("unknown condition '{part}' of an assignment"), None);
                    return None;
                }
            }
        }
        Some((var, conditions.into()))
    }

    pub(crate) fn set_var(&mut self) -> Option<Action> {
        let (var, conditions) = self.variable()?;
        Some(Action::SetVar { var, conditions, expr: Box::new(self.expr()?) })
    }

    pub(crate) fn set_var_fmt(&mut self) -> Option<Action> {
        let (var, conditions) = self.variable()?;
        // The one format that may be empty, as in HAProxy. An empty word at the end of a line is not there.
        let empty = Word { text: String::new(), span: self.words.last_span() };
        let word = match self.words.peek() {
            None => &empty,
            Some(word) if word.text.is_empty() => self.words.next().unwrap_or(&empty),
            Some(_) => self.next("a format")?,
        };
        Some(Action::SetVarFmt { var, conditions, value: self.format_of(word, Purpose::Text)? })
    }

    /// Reads `(txn.ip,dns,ipv4) EXPR`.
    pub(crate) fn resolve(&mut self) -> Option<Action> {
        let whole = std::mem::take(&mut self.inside);
        let mut parts = whole.split(',').map(str::trim);
        self.inside = parts.next().unwrap_or_default();
        let (var, _) = self.variable()?;
        let name = parts.next().unwrap_or_default();
        let sections = &self.linker.config.resolvers;
        let Some(section) = sections.iter().position(|section| section.name == name) else {
            let hint = hint::nearest(name, sections.iter().map(|section| section.name.as_str()));
            let hint = hint.or_else(|| Some("do-resolve(VARIABLE,RESOLVERS) EXPRESSION".to_owned()));
            self.error(self.word.span, format!("there is no resolvers section '{name}'"), hint);
            return None;
        };
        let prefers_ipv4 = match parts.next() {
            None | Some("ipv6") => false,
            Some("ipv4") => true,
            Some(other) => {
                self.error(self.word.span, format!("'ipv4' or 'ipv6' is expected, not '{other}'"), None);
                return None;
            }
        };
        if let Some(more) = parts.next() {
            self.error(self.word.span, format!("unexpected argument '{more}'"), None);
            return None;
        }
        Some(Action::Resolve { var, section, prefers_ipv4, expr: self.typed_expr(Type::Str)? })
    }

    pub(crate) fn unset_var(&mut self) -> Option<Action> {
        self.variable().map(|(var, _)| Action::UnsetVar(var))
    }

    pub(crate) fn capture(&mut self) -> Option<Action> {
        let expr = self.typed_expr(Type::Str)?;
        let keyword = self.next("'len' or 'id'")?;
        let value = self.value_of(keyword)?;
        let Ok(n) = value.parse::<usize>() else {
            self.error(value.span, format!("'{}' is not a number", value.text), None);
            return None;
        };
        let content = self.kind == Kind::TcpContent;
        let proxy = self.scope.proxy.and_then(|id| self.linker.config.proxies.get(id));
        let in_backend = proxy.is_some_and(|proxy| proxy.kind == ProxyKind::Backend);
        let refusal = match keyword.text.as_str() {
            "len" if self.kind.is_response() => Some((
                "a response is kept in a slot that is declared: 'id' is expected",
                "write 'declare capture response len LENGTH' in the frontend, and 'id SLOT' here",
            )),
            "id" if content => Some(("these rules make a slot of their own: 'len' is expected", "write 'len LENGTH'")),
            "len" if in_backend => Some((
                "a backend has no slots of its own",
                "write 'declare capture request len LENGTH' in the frontend, and 'id SLOT' here",
            )),
            _ => None,
        };
        if let Some((message, hint)) = refusal {
            self.error(keyword.span, message.to_owned(), Some(hint.to_owned()));
            return None;
        }
        let slots = if self.kind.is_response() { &mut self.captures.response } else { &mut self.captures.request };
        match keyword.text.as_str() {
            "len" => {
                if n == 0 {
                    self.error(value.span, "nothing can be kept in 0 bytes".to_owned(), None);
                    return None;
                }
                let here = |slot: &Slot| (slot.at.file, slot.at.line) == (value.span.file, value.span.line);
                let slot = slots.iter().position(here).unwrap_or_else(|| {
                    slots.push(Slot { header: None, len: n, at: value.span });
                    slots.len() - 1
                });
                Some(Action::Capture { expr, slot, len: n, declared: false })
            }
            "id" => {
                // A backend may fill a slot that only the frontend before it declares.
                let len = slots.get(n).map_or(usize::from(u16::MAX), |slot| slot.len);
                self.captures.named.push((self.kind.is_response(), n, value.span));
                Some(Action::Capture { expr, slot: n, len, declared: true })
            }
            other => {
                self.error(keyword.span, format!("'len' or 'id' is expected, not '{other}'"), None);
                None
            }
        }
    }

    pub(crate) fn track(&mut self) -> Option<Action> {
        let counters = self.counters();
        let counter = self.inside.parse::<usize>().ok().filter(|counter| *counter < counters);
        let Some(counter) = counter else {
            let message = format!("there is no counter '{}': 'tune.stick-counters' is {counters}", self.word.text);
            self.error(self.word.span, message, Some("sc0 is the first".to_owned()));
            return None;
        };
        let word = self.words.peek();
        let expr = self.expr()?;
        let table = if self.words.take("table") {
            let name = self.next("the name of a stick table")?;
            self.linker.table(name, 0..name.len()).map_err(|problem| self.problem(name, problem)).ok()?
        } else {
            let own = self.scope.proxy.and_then(|id| self.linker.config.proxies.get(id));
            match own.and_then(|proxy| self.linker.tables.get(&proxy.name)) {
                Some(table) => std::sync::Arc::clone(table),
                None => {
                    let message =
                        format!("'{}' needs a 'table': this section declares none of its own", self.word.text);
                    self.error(self.word.span, message, None);
                    return None;
                }
            }
        };
        if !expr.output().casts_to(table.spec.key.sample()) {
            let span = word.map_or(self.word.span, |word| word.span);
            let message =
                format!("the table '{}' has keys of type {}, not {}", table.name, table.spec.key.name(), expr.output());
            self.error(span, message, None);
            return None;
        }
        Some(Action::Track { counter, expr: Box::new(expr), table })
    }

    /// How many counters there are.
    fn counters(&self) -> usize {
        self.linker.config.global.tune.stick_counters as usize
    }

    /// Reads `(<idx>,<sc>)` or `(<sc>)`.
    fn counter(&mut self, indexed: bool) -> Option<(usize, usize)> {
        let numbers: Option<Vec<usize>> = self.inside.split(',').map(|n| n.trim().parse().ok()).collect();
        let found = match (numbers.as_deref(), indexed) {
            (Some(&[index, counter]), true) => Some((index, counter)),
            (Some(&[counter]), false) => Some((0, counter)),
            _ => None,
        };
        let counters = self.counters();
        match found.filter(|(index, counter)| *counter < counters && *index < 100) {
            Some(found) => Some(found),
            None => {
                let form = if indexed { "(<index>,<counter>)" } else { "(<counter>)" };
                let message = format!("'{}' needs {form} after its name, one of {counters} counters", self.word.text);
                self.error(self.word.span, message, None);
                None
            }
        }
    }

    pub(crate) fn increment(&mut self, fixed: Option<usize>) -> Option<Action> {
        let (index, counter) = self.counter(fixed.is_none())?;
        let (data, rate) = match fixed {
            Some(0) => (Data::Gpc0, Data::Gpc0Rate),
            Some(_) => (Data::Gpc1, Data::Gpc1Rate),
            None => (Data::Gpc, Data::GpcRate),
        };
        Some(Action::AddGpc { counter, data, rate, index, value: Amount::Fixed(1) })
    }

    pub(crate) fn add_gpc(&mut self) -> Option<Action> {
        let (index, counter) = self.counter(true)?;
        let value = self.amount(unsigned)?;
        Some(Action::AddGpc { counter, data: Data::Gpc, rate: Data::GpcRate, index, value })
    }

    pub(crate) fn set_gpt(&mut self, first: bool) -> Option<Action> {
        let (index, counter) = self.counter(!first)?;
        let value = self.amount(unsigned)?;
        Some(Action::SetGpt { counter, data: if first { Data::Gpt0 } else { Data::Gpt }, index, value })
    }

    /// Reads `add-acl(file) key`, `set-map(file) key value` and the actions that undo them.
    pub(crate) fn pattern(&mut self, map: bool, remove: bool) -> Option<Action> {
        let file = self.linker.file_named(self.inside);
        let key = self.next("a key")?;
        let key = self.format_of(key, Purpose::Text)?;
        let value = if map && !remove {
            let value = self.next("a value")?;
            Some(self.format_of(value, Purpose::Text)?)
        } else {
            None
        };
        Some(Action::Pattern { file, key, value, remove })
    }
}

/// A number of 32 bits.
fn unsigned(word: &str) -> Option<u32> {
    word.parse().ok()
}
