//! For a spreadsheet: one table, a line a row.

use super::text::View;
use crate::{
    inputs::{ATTRIBUTION, INPUTS},
    report::Report,
};
use std::fmt::Write;

/// One view as a table.
pub fn render(report: &Report, view: View) -> String {
    let lines: Vec<String> = match view {
        View::Plan => return plan(report),
        View::Rack => {
            let line = |p: &crate::views::RackPoint| {
                format!("{},{},{},{:.1},{},{:.3}", p.cores, p.cards, p.servers, p.tps, p.free_cores, p.kw)
            };
            let head = "cores_per_server,cards_per_server,servers,tps,free_cores,kw".to_owned();
            std::iter::once(head).chain(report.rack.iter().map(line)).collect()
        }
        View::Edge => {
            let line = |p: &crate::views::EdgePoint| {
                let cores = p.cores.map_or(",".into(), |(cores, idle)| format!("{cores},{idle:.4}"));
                format!("{},{},{cores}", p.level, p.mode.name())
            };
            std::iter::once("level_tps,engine,cores,idle_share".to_owned())
                .chain(report.edge.iter().map(line))
                .collect()
        }
        View::Cost => {
            let line = |p: &crate::views::CostPoint| format!("{},{},{:.4}", p.level, p.mode.name(), p.usd_per_1000_tps);
            std::iter::once("level_tps,engine,usd_per_1000_tps".to_owned())
                .chain(report.cost.iter().map(line))
                .collect()
        }
        View::Inputs => {
            let line = |i: &crate::inputs::Input| {
                format!("{},{},{},{}", i.name, report.inputs.value(i), i.unit, report.inputs.origin(i).name())
            };
            let attribution = &report.inputs.attribution;
            let last = format!("{ATTRIBUTION},{},,{}", attribution.name(), report.inputs.attribution_origin().name());
            let head = "name,value,unit,source".to_owned();
            std::iter::once(head).chain(INPUTS.iter().map(line)).chain([last]).collect()
        }
    };
    lines.join("\n") + "\n"
}

fn plan(report: &Report) -> String {
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
