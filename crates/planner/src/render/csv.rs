//! For a spreadsheet: one line a level and mode.

use crate::report::Report;
use std::fmt::Write;

/// The plan's rows.
pub fn render(report: &Report) -> String {
    let mut out = String::from(
        "level_tps,engine,servers,cores_per_server,cores,idle_share,devices,device_load,software_tps_beside_devices,beyond_measured,\
         server_max_tps,kw,racks,usd_servers,usd_cards,usd_energy,usd_space,usd_month,usd_per_1000_tps,on_one_server,problem\n",
    );
    for row in &report.rows {
        // Writing to a String does not fail.
        let _ = match &row.fleet {
            Ok(f) => writeln!(
                out,
                "{},{},{},{},{},{:.4},{},{:.4},{:.1},{},{:.1},{:.3},{},{:.2},{:.2},{:.2},{:.2},{:.2},{:.4},{},",
                row.level,
                row.mode.name(),
                f.servers,
                f.share.cores,
                f.share.cores * f64::from(f.servers),
                f.idle,
                u64::from(f.share.devices) * u64::from(f.servers),
                f.share.device_load,
                f.share.beside,
                f.share.beyond_measured,
                f.server_max,
                f.kw,
                f.racks,
                f.cost.servers,
                f.cost.cards,
                f.cost.energy,
                f.cost.space,
                f.cost.total(),
                f.usd_per_1000_tps(),
                row.on_one_server,
            ),
            Err(problem) => {
                let why = problem.to_string().replace('"', "\"\"");
                writeln!(out, "{},{}{}\"{why}\"", row.level, row.mode.name(), ",".repeat(19))
            }
        };
    }
    out
}
