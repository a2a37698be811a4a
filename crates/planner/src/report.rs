//! Everything that a plan shows, worked out once; the renderers only write it down.

use crate::{
    error::Problem,
    inputs::Inputs,
    plan::{Fleet, fleet, on_one_server},
    published,
    rates::{Mode, Rates},
    reproduce,
    views::{self, CostPoint, EdgePoint, RackPoint},
};

/// A plan with its views.
#[derive(Clone, Debug)]
pub struct Report {
    /// The constants it was made with.
    pub inputs: Inputs,
    /// The rates it was made with.
    pub rates: Rates,
    /// For each level, what serves it in each mode.
    pub rows: Vec<Row>,
    /// The view of a rack.
    pub rack: Vec<RackPoint>,
    /// The view of one server.
    pub edge: Vec<EdgePoint>,
    /// The cost of 1,000 TPS.
    pub cost: Vec<CostPoint>,
    /// The published figures beside what follows; only where the published rates were planned with.
    pub published: Option<(Vec<published::Compared>, reproduce::Search)>,
}

/// A level in a mode.
#[derive(Clone, Debug)]
pub struct Row {
    /// The engine.
    pub mode: Mode,
    /// The level in TPS.
    pub level: f64,
    /// The fleet that serves the level, or why there is none.
    pub fleet: Result<Fleet, Problem>,
    /// Whether one server is enough.
    pub on_one_server: bool,
    /// Whether this row repeats the one before under another name: hw+sw below a card's peak is hw.
    pub is_as_before: bool,
}

impl Report {
    /// Computes the plan and its views.
    ///
    /// # Errors
    /// A level is not a rate, or there are no rates at all.
    pub fn new(levels: &[f64], inputs: Inputs, rates: Rates) -> Result<Report, Problem> {
        if rates.modes().is_empty() {
            return Err(Problem::NoRates("any mode"));
        }
        let mut rows = Vec::new();
        for &level in levels {
            for mode in rates.modes() {
                let fleet = fleet(mode, level, &inputs, &rates);
                if let Err(problem @ Problem::BadValue { .. }) = fleet {
                    return Err(problem);
                }
                let on_one_server = matches!(on_one_server(mode, level, &inputs, &rates), Ok(Some(_)));
                let is_as_before = mode == Mode::HwSw && rows.last().is_some_and(|hw: &Row| same(&hw.fleet, &fleet));
                rows.push(Row { mode, level, fleet, on_one_server, is_as_before });
            }
        }
        if let Some(Row { fleet: Err(problem), .. }) = rows.iter().find(|row| row.fleet.is_err()) {
            return Err(problem.clone());
        }
        let is_published = rates == published::rates();
        let published = is_published.then(|| (published::compare(&inputs, &rates), reproduce::search(&inputs, &rates)));
        Ok(Report {
            rack: views::rack(&inputs, &rates),
            edge: views::edge(&inputs, &rates),
            cost: views::cost(levels, &inputs, &rates),
            rows,
            published,
            inputs,
            rates,
        })
    }

    /// The levels, in the order asked for.
    pub fn levels(&self) -> Vec<f64> {
        let mut levels: Vec<f64> = self.rows.iter().map(|row| row.level).collect();
        levels.dedup();
        levels
    }
}

/// Whether two plans are the same servers, cores and cards.
fn same(one: &Result<Fleet, Problem>, other: &Result<Fleet, Problem>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.servers == other.servers && one.share == other.share,
        _ => false,
    }
}
