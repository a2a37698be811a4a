//! `show taps`.

use penstock_proxy::{Handle, TapState, TapView};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// The services in mode tap: a line each.
pub(super) fn show(handle: &Handle, json: bool) -> String {
    let taps = handle.shared().taps.view();
    if json {
        return format!("{}\n", taps.iter().map(object).collect::<Json>());
    }
    let mut out =
        String::from("# service state copied missed packets bytes dropped waiting buffer opened failed target\n");
    for tap in &taps {
        let (state, why) = words(&tap.state);
        let _ = write!(
            out,
            "{} {state} {} {} {} {} {} {} {} {} {} {}",
            tap.name,
            tap.begun,
            tap.missed,
            tap.packets,
            tap.written,
            tap.dropped,
            tap.used,
            tap.limit,
            tap.opened,
            tap.failed,
            tap.target
        );
        out.push_str(&why.map_or_else(String::new, |why| format!(": {}", why.replace(char::is_control, "?"))));
        out.push('\n');
    }
    out
}

fn object(tap: &TapView) -> Json {
    let (state, why) = words(&tap.state);
    json!({
        "service": *tap.name, "target": tap.target, "state": state, "error": why, "copied": tap.begun, "missed": tap.missed,
        "packets": tap.packets, "bytes": tap.written, "dropped": tap.dropped, "waiting": tap.used, "buffer": tap.limit,
        "opened": tap.opened, "failed": tap.failed,
    })
}

/// The state in a word, and why it is so.
fn words(state: &TapState) -> (&'static str, Option<&String>) {
    match state {
        TapState::Waiting => ("waiting", None),
        TapState::Writing => ("writing", None),
        TapState::Failed(why) => ("failed", Some(why)),
    }
}
