//! `set-bandwidth-limit`: puts a bandwidth filter in force.

use super::{Action, Amount, Build, Outcome};
use crate::{
    context::Context,
    expr::Expr,
    hint,
    keyword::Places,
    link::{Linker, Scope},
    problem::Problem,
    sample::Missing,
    table::{Bandwidth, Data, FilterId, Millis, Seen, Share, StickTable},
    words::{parse_size, parse_time_ms},
};
use penstock_config::{
    Span,
    model::{BandwidthFilter, BandwidthShare},
};
use std::sync::Arc;

/// The filter, and what the rule says of it.
#[derive(Clone, Debug)]
pub(crate) struct LimitBandwidth {
    filter: FilterId,
    download: bool,
    min_size: u64,
    limit: Bounded,
    share: ShareOf,
}

/// What a rule says of the filter's limit or period, and what the filter says, which holds if the rule's expression gives nothing.
#[derive(Clone, Debug)]
struct Bounded {
    amount: Option<Amount>,
    usual: u64,
}

#[derive(Clone, Debug)]
enum ShareOf {
    Own { period: Bounded },
    Entry { key: Box<Expr>, table: Arc<StickTable>, data: Data },
}

impl Bounded {
    fn eval(&self, ctx: &Context<'_>) -> Result<u64, Missing> {
        match self.amount.as_ref().map(|amount| amount.eval(ctx)) {
            Some(Ok(n)) => Ok(u64::try_from(n).unwrap_or(self.usual)),
            Some(Err(Missing::NotYet)) => Err(Missing::NotYet),
            None | Some(Err(Missing::Absent)) => Ok(self.usual),
        }
    }
}

impl LimitBandwidth {
    /// Puts the limit in force, in place of what an earlier rule has set by the same filter.
    pub(super) fn run(&self, ctx: &mut Context<'_>) -> Outcome {
        let found = self.limit.eval(ctx).and_then(|limit| Ok((limit, self.seen(ctx)?)));
        match found {
            Ok((limit, seen)) => {
                let Self { filter, download, min_size, .. } = *self;
                ctx.txn.bandwidth.retain(|other| other.filter != filter);
                ctx.txn.bandwidth.push(Bandwidth { filter, download, limit, min_size, seen });
                Outcome::Next
            }
            Err(Missing::NotYet) => Outcome::NotYet,
            Err(Missing::Absent) => Outcome::Next,
        }
    }

    fn seen(&self, ctx: &Context<'_>) -> Result<Seen, Missing> {
        let now: Millis = ctx.now.mono;
        match &self.share {
            ShareOf::Own { period } => Ok(Seen::Own { rate: [now, 0, 0], period: period.eval(ctx)?.max(1) }),
            ShareOf::Entry { key, table, data } => {
                let entry = table.get_or_insert(key.eval(ctx)?, now).ok_or(Missing::Absent)?;
                Ok(Seen::Shared(Arc::new(Share::new(Arc::clone(table), entry, *data))))
            }
        }
    }
}

impl Linker<'_> {
    /// The table of a filter with a key in the section `own`, and what counts there.
    pub(crate) fn table_of(
        &self,
        filter: &BandwidthFilter,
        own: &str,
    ) -> Result<(Arc<StickTable>, Data), (Span, Problem)> {
        let given = match &filter.share {
            BandwidthShare::Entry { table, .. } => table.as_ref(),
            BandwidthShare::Own(_) => None,
        };
        let (name, span) = given.map_or((own, filter.name.span), |table| (table.text.as_str(), table.span));
        let table = self.table(name, 0..name.len()).map_err(|problem| (span, problem))?;
        let data = if filter.download { Data::BytesOutRate } else { Data::BytesInRate };
        if !table.spec.schema.has(data) {
            let message = format!("the stick table '{name}' does not store '{}'", data.name());
            let hint = format!("add '{}(1s)' to what it stores", data.name());
            return Err((span, Problem::new(0..name.len(), message).hint(hint)));
        }
        Ok((table, data))
    }
}

impl Build<'_, '_, '_> {
    pub(crate) fn bandwidth(&mut self) -> Option<Action> {
        let word = self.next("the name of a bandwidth filter")?;
        let id = self.scope.proxy?;
        let filters = &self.linker.config.proxies.get(id)?.bandwidth_filters;
        let Some(place) = filters.iter().position(|filter| filter.name.value == word.text) else {
            let near = hint::nearest(&word.text, filters.iter().map(|filter| filter.name.value.as_str()));
            self.error(word.span, format!("the section has no bandwidth filter '{}'", word.text), near);
            return None;
        };
        let filter = &filters[place];
        let (mut limit, mut period) = (None, None);
        while let Some(word) = self.words.peek().filter(|word| matches!(word.text.as_str(), "limit" | "period")) {
            self.words.next();
            if !matches!(filter.share, BandwidthShare::Own(_)) {
                let message = format!("'{}' is not for a filter with a key, whose limit all share", word.text);
                self.error(word.span, message, None);
                return None;
            }
            match word.text.as_str() {
                "limit" => limit = Some(self.amount(parse_size)?),
                _ => period = Some(self.amount(parse_time_ms)?),
            }
        }
        let share = match &filter.share {
            BandwidthShare::Own(usual) => {
                ShareOf::Own { period: Bounded { amount: period, usual: usual.as_millis() as u64 } }
            }
            BandwidthShare::Entry { key, table } => {
                let own = &self.linker.config.proxies.get(id)?.name;
                let name = table.as_ref().map_or(own, |table| &table.text);
                // What is wrong with it is reported with the filter.
                let (table, data) = self.linker.table_of(filter, own).ok()?;
                let key_word = key.words.first()?;
                let scope = Scope { place: self.scope.place.or(Places::REQUEST), ..self.scope };
                match self.linker.expression_in(&key_word.text, 0, scope) {
                    Ok((key, end)) if end == key_word.text.len() && key.output().casts_to(table.spec.key.sample()) => {
                        ShareOf::Entry { key: Box::new(key), table, data }
                    }
                    Ok((key, _)) => {
                        let wanted = table.spec.key.name();
                        let message = format!("the key gives {}, and the table '{name}' has {wanted}", key.output());
                        self.error(key_word.span, message, None);
                        return None;
                    }
                    Err(problem) => {
                        self.problem(key_word, problem);
                        return None;
                    }
                }
            }
        };
        let (download, min_size) = (filter.download, filter.min_size);
        let limit = Bounded { amount: limit, usual: filter.limit };
        Some(Action::Bandwidth(Box::new(LimitBandwidth { filter: (id, place), download, min_size, limit, share })))
    }
}
