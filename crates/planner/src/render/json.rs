//! For scripts: everything the other formats show.

use crate::{
    inputs::{ATTRIBUTION, INPUTS},
    plan::Fleet,
    report::Report,
    reproduce::Found,
};
use serde_json::{Map, Value, json};

/// The whole report.
pub fn render(report: &Report) -> Value {
    let mut inputs = Map::new();
    for input in INPUTS {
        inputs.insert(
            input.name.into(),
            json!({ "value": report.inputs.value(input), "unit": input.unit, "origin": report.inputs.origin(input).name(), "what": input.doc }),
        );
    }
    inputs.insert(
        ATTRIBUTION.into(),
        json!({ "value": report.inputs.attribution.name(), "origin": report.inputs.attribution_origin().name() }),
    );
    let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| match &row.fleet {
            Ok(fleet) => fleet_json(fleet, row.on_one_server),
            Err(problem) => {
                json!({ "level_tps": row.level, "engine": row.mode.name(), "problem": problem.to_string() })
            }
        })
        .collect();
    let rack: Vec<Value> = report.rack.iter().map(|p| {
        json!({ "cores_per_server": p.cores, "cards_per_server": p.cards, "servers": p.servers, "tps": p.tps, "free_cores": p.free_cores, "kw": p.kw })
    }).collect();
    let edge: Vec<Value> = report.edge.iter().map(|p| {
        json!({ "engine": p.mode.name(), "level_tps": p.level, "cores": p.cores.map(|c| c.0), "idle_share": p.cores.map(|c| c.1) })
    }).collect();
    let cost: Vec<Value> = report
        .cost
        .iter()
        .map(|p| json!({ "engine": p.mode.name(), "level_tps": p.level, "usd_per_1000_tps": p.usd_per_1000_tps }))
        .collect();
    let mut whole = json!({
        "rates": rates(report), "inputs": inputs, "plans": rows, "rack": rack, "edge": edge, "cost": cost,
    });
    if let Some((rows, search)) = &report.published {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                let figures =
                    |f: Option<(f64, f64)>| f.map(|(cores, idle)| json!({ "cores": cores, "idle_percent": idle }));
                json!({ "engine": row.row.mode.name(), "level_tps": row.row.level, "printed": figures(row.row.printed),
                "derived": figures(row.derived), "agrees": row.agrees, "remark": row.remark })
            })
            .collect();
        whole["published"] = json!({
            "rows": rows,
            "savings_percent": crate::published::SAVINGS,
            "gain": crate::published::GAIN,
            "combinations_tried": search.tried,
            "reproduced_by": search.hits.iter().map(found).collect::<Vec<_>>(),
            "reproduced_by_24_cores": search.hits_with_24.iter().map(found).collect::<Vec<_>>(),
            "nearest": search.nearest.as_ref().map(found),
            "gains": search.gains.iter().map(|g| json!({ "what": g.what, "ratio": g.ratio, "is_the_printed": g.hits() })).collect::<Vec<_>>(),
        });
    }
    whole
}

fn found(found: &Found) -> Value {
    let values: Map<String, Value> =
        found.values.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({ "values": values, "compares": found.reading.describe(), "savings_percent": found.savings, "off_points": found.off })
}

fn rates(report: &Report) -> Value {
    let points = |curve: &crate::Curve| -> Vec<Value> {
        curve.points().iter().map(|(cores, tps)| json!({ "cores": cores, "tps": tps })).collect()
    };
    let mut modes = Map::new();
    for (name, curve) in [("native", &report.rates.native), ("sw", &report.rates.sw)] {
        if let Some(curve) = curve {
            modes.insert(name.into(), json!({ "points": points(curve) }));
        }
    }
    if let Some(device) = &report.rates.hw {
        modes.insert("hw".into(), json!({ "points": points(&device.curve), "device_peak_tps": device.peak }));
    }
    json!({ "source": report.rates.source, "modes": modes })
}

fn fleet_json(fleet: &Fleet, on_one_server: bool) -> Value {
    let servers = f64::from(fleet.servers);
    json!({
        "level_tps": fleet.level,
        "engine": fleet.mode.name(),
        "servers": fleet.servers,
        "on_one_server": on_one_server,
        "server_max_tps": fleet.server_max,
        "cores_per_server": fleet.share.cores,
        "cores": fleet.share.cores * servers,
        "idle_share": fleet.idle,
        "beyond_measured": fleet.share.beyond_measured,
        "devices": f64::from(fleet.share.devices) * servers,
        "device_load": fleet.share.device_load,
        "software_tps_beside_devices": fleet.share.beside,
        "next": fleet.next,
        "kw": fleet.kw,
        "racks": fleet.racks,
        "usd_month": {
            "servers": fleet.cost.servers, "cards": fleet.cost.cards, "energy": fleet.cost.energy,
            "space": fleet.cost.space, "total": fleet.cost.total(),
        },
        "usd_per_1000_tps": fleet.usd_per_1000_tps(),
    })
}
