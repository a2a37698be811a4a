//! `cargo bench -p penstock-lanes [-- [--quick] [--json FILE] [NAME...]]`, or `-- --dudect [--quick]`
//!
//! For every operation and every fill from 1 to 8: microseconds an operation, the ratio to aws-lc measured alternately
//! in the same run (and to Intel's crypto_mb where it is installed), the fill at which the lanes break even, and the
//! share of the processor's raw VPMADD52 throughput that is reached.

mod advance;
mod crypto_mb;
mod dudect;
mod measure;
mod operations;
mod peak;

use measure::Comparison;
use penstock_lanes::{LANES, Lanes};

/// A call of the other library: all of its time counts.
fn counts(call: &dyn Fn()) -> u64 {
    call();
    0
}

struct Row {
    name: &'static str,
    fill: usize,
    us_per_op: f64,
    ratio_native: f64,
    quartiles: (f64, f64),
    ratio_crypto_mb: Option<f64>,
    peak_share: f64,
}

fn main() {
    let mut json = None;
    let mut quick = false;
    let mut dudect = false;
    let mut names = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            "--json" => json = Some(arguments.next().expect("--json takes a file name")),
            "--quick" => quick = true,
            "--dudect" => dudect = true,
            "--bench" => {}
            name => names.push(name.to_owned()),
        }
    }
    let lanes = Lanes::detect();
    println!("{}", lanes.implementation());
    if dudect {
        std::process::exit(i32::from(!dudect::run(lanes, quick)));
    }
    let peak = peak::multiplications_per_us();
    match peak {
        Some(peak) => println!("raw VPMADD52 throughput: {peak:.0} vector multiplications a microsecond"),
        None => println!("no VPMADD52 here: peak shares are zero"),
    }
    println!("crypto_mb: {}\n", crypto_mb::description());
    if names.is_empty() || names.iter().any(|name| name == "advance") {
        advance::report(lanes);
    }
    println!(
        "{:<18}{:>5}{:>10}{:>10}{:>15}{:>9}{:>8}{:>10}{:>8}",
        "operation", "fill", "us/op", "x aws-lc", "quartiles", "x c_mb", "peak", "best us", "x"
    );

    let mut rows = Vec::new();
    for operation in operations::all(lanes) {
        if !names.is_empty() && !names.iter().any(|name| operation.name.contains(&name[..])) {
            continue;
        }
        let mut break_even = None;
        for fill in 1..=LANES {
            let Comparison { us, ratio, quartiles, best } =
                measure::compare(|| (operation.lanes)(fill), || counts(&operation.native), if quick { 5 } else { 15 });
            let us_per_op = us / fill as f64;
            let ratio_native = ratio * fill as f64;
            let quartiles = (quartiles.0 * fill as f64, quartiles.1 * fill as f64);
            let ratio_crypto_mb = operation.crypto_mb.as_ref().map(|other| {
                // One call of theirs computes eight lanes whatever the fill.
                measure::compare(|| (operation.lanes)(fill), || counts(other), if quick { 5 } else { 15 }).ratio
            });
            let peak_share = peak.map_or(0.0, |peak| (operation.multiplications)(fill) as f64 / peak / us);
            if ratio_native > 1.0 && break_even.is_none() {
                break_even = Some(fill);
            }
            println!(
                "{:<18}{fill:>5}{us_per_op:>10.2}{ratio_native:>10.2}{:>15}{:>9}{:>7.0}%{:>10.2}{:>8.2}",
                operation.name,
                format!("{:.2}-{:.2}", quartiles.0, quartiles.1),
                ratio_crypto_mb.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                100.0 * peak_share,
                best.0 / fill as f64,
                best.1 / best.0 * fill as f64,
            );
            rows.push(Row {
                name: operation.name,
                fill,
                us_per_op,
                ratio_native,
                quartiles,
                ratio_crypto_mb,
                peak_share,
            });
        }
        match break_even {
            Some(fill) => println!("{:<18}breaks even at {fill}\n", operation.name),
            None => println!("{:<18}does not break even\n", operation.name),
        }
    }
    if let Some(file) = json {
        let rows: Vec<serde_json::Value> = rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "op": row.name,
                    "fill": row.fill,
                    "us_per_op": row.us_per_op,
                    "ratio_native": row.ratio_native,
                    "ratio_native_quartiles": [row.quartiles.0, row.quartiles.1],
                    "ratio_crypto_mb": row.ratio_crypto_mb,
                    "peak_share": row.peak_share,
                })
            })
            .collect();
        let text = serde_json::to_string_pretty(&rows).expect("numbers and names are always JSON");
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}
