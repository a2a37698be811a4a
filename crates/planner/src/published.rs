//! The published model of an eight-server rack: its figures as printed, and which of them follow from its inputs.

use crate::{
    inputs::Inputs,
    plan::on_one_server,
    rates::{Curve, Device, Mode, Rates},
};

/// A row of the published table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The engine: software is [`Mode::Native`], accelerated [`Mode::Hw`].
    pub mode: Mode,
    /// TPS.
    pub level: f64,
    /// Cores allocated and idle share in percent; `None` where software does not reach the level.
    pub printed: Option<(f64, f64)>,
}

const fn row(mode: Mode, level: f64, printed: Option<(f64, f64)>) -> Row {
    Row { mode, level, printed }
}

/// The published table.
pub const TABLE: [Row; 8] = [
    row(Mode::Native, 5_000.0, Some((8.0, 69.0))),
    row(Mode::Native, 9_000.0, Some((12.0, 54.0))),
    row(Mode::Native, 18_000.0, Some((26.0, 8.0))),
    row(Mode::Native, 30_000.0, None),
    row(Mode::Hw, 5_000.0, Some((2.0, 92.0))),
    row(Mode::Hw, 9_000.0, Some((2.0, 92.0))),
    row(Mode::Hw, 18_000.0, Some((4.0, 92.0))),
    row(Mode::Hw, 30_000.0, Some((4.0, 85.0))),
];

/// The design points, TPS.
pub const LEVELS: [f64; 4] = [5_000.0, 9_000.0, 18_000.0, 30_000.0];
/// The savings that were published, percent.
pub const SAVINGS: [f64; 3] = [84.0, 85.0, 86.0];
/// The gain that was published.
pub const GAIN: f64 = 9.6;

/// The rates behind the table: software reaches 5K, 9K and 18K with 8, 12 and 26 cores; a card reaches 9K with 2 cores and
/// 30K, taken for its peak because no row goes above, with 4. The other accelerated rows are no points of the curve: they are
/// what it is tested with.
pub fn rates() -> Rates {
    let curve = |name, points: &[(f64, f64)]| Curve::new(name, points.to_vec()).expect("rising points, tested below");
    let hw = curve("hw", &[(2.0, 9_000.0), (4.0, 30_000.0)]);
    Rates {
        native: Some(curve("native", &[(8.0, 5_000.0), (12.0, 9_000.0), (26.0, 18_000.0)])),
        sw: None,
        hw: Some(Device { curve: hw, peak: 30_000.0, peak_is_highest_measured: false }),
        source: "the published design points of an eight-server rack".into(),
    }
}

/// A row beside what follows from the inputs.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The row as printed.
    pub row: Row,
    /// The row as derived on one server: cores, and the idle share in percent.
    pub derived: Option<(f64, f64)>,
    /// Whether both agree, the share to the whole percent as printed.
    pub agrees: bool,
    /// What differs and by how much, and what would give the printed figure.
    pub remark: String,
}

/// Every row beside what follows from these inputs and rates.
pub fn compare(inputs: &Inputs, rates: &Rates) -> Vec<Compared> {
    TABLE.iter().map(|row| compared(*row, inputs, rates)).collect()
}

fn compared(row: Row, inputs: &Inputs, rates: &Rates) -> Compared {
    let share = on_one_server(row.mode, row.level, inputs, rates).ok().flatten();
    let total = inputs.cores_per_server;
    let idle = |cores: f64| (1.0 - cores / total) * 100.0;
    let derived = share.map(|share| (share.cores, idle(share.cores)));
    let mut remarks = Vec::new();
    let agrees = match (row.printed, derived) {
        (None, None) => true,
        (Some((cores, share)), Some((own_cores, own_idle))) => {
            if cores != own_cores {
                remarks.push(format!("{own_cores} cores follow, {cores} were printed"));
            }
            if share != own_idle.round() {
                let implied = total * (1.0 - share / 100.0);
                remarks.push(format!(
                    "{own_idle:.1} % idle follow from {own_cores} of {total} cores, {share} % were printed ({:+.1} points): what {} cores leave",
                    share - own_idle,
                    implied.round()
                ));
            }
            remarks.is_empty()
        }
        (printed, _) => {
            let reached = |is| if is { "reached on one server" } else { "not reached on one server" };
            remarks.push(format!(
                "printed as {}, derived as {}",
                reached(printed.is_some()),
                reached(derived.is_some())
            ));
            false
        }
    };
    Compared { row, derived, agrees, remark: remarks.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_rows_derive_and_the_two_of_18k_do_not() {
        let rows = compare(&Inputs::default(), &rates());
        let failing: Vec<_> = rows.iter().filter(|r| !r.agrees).map(|r| (r.row.mode, r.row.level)).collect();
        assert_eq!(failing, [(Mode::Native, 18_000.0), (Mode::Hw, 18_000.0)]);
        let derived: Vec<_> = rows.iter().map(|r| r.derived.map(|(cores, idle)| (cores, idle.round()))).collect();
        assert_eq!(
            derived,
            [
                Some((8.0, 69.0)),
                Some((12.0, 54.0)),
                Some((26.0, 0.0)),
                None,
                Some((2.0, 92.0)),
                Some((2.0, 92.0)),
                Some((4.0, 85.0)),
                Some((4.0, 85.0))
            ]
        );
        assert!(
            rows[2].remark.contains("0.0 % idle follow from 26 of 26") && rows[2].remark.contains("24 cores leave")
        );
        assert!(
            rows[6].remark.contains("+7.4 points") && rows[6].remark.contains("2 cores leave"),
            "{}",
            rows[6].remark
        );
    }

    /// Why cores-per-server is 26: with any other count more rows fail.
    #[test]
    fn only_26_cores_give_the_other_shares() {
        for cores in 20..=40 {
            let mut inputs = Inputs::default();
            inputs.set("cores-per-server", &cores.to_string()).unwrap();
            let failing = compare(&inputs, &rates()).iter().filter(|r| !r.agrees).count();
            assert_eq!(failing == 2, cores == 26, "{cores} cores: {failing} rows fail");
        }
    }

    #[test]
    fn the_published_curves_are_curves() {
        let rates = rates();
        let native = rates.native.unwrap();
        assert!(Curve::new("native", native.points().to_vec()).is_ok());
        let hw = rates.hw.unwrap();
        assert!(Device::new(hw.curve, Some(hw.peak)).is_ok());
    }
}
