//! A proxy's table, row by row, and the changes to it since a viewer last received it.

use super::{
    Page,
    cells::{GROUPS, columns, state},
    forms, graphs,
};
use crate::html::{Text, without_ages};
use penstock_proxy::snapshot::{Kind, Row};
use std::{
    fmt::Write as _,
    hash::{DefaultHasher, Hash, Hasher},
};

/// Adds the legend: the colour of each state.
pub fn legend(out: &mut String) {
    out.push_str("<p class=\"legend\">");
    for (class, pill, text) in [
        ("up", "UP", "takes requests"),
        ("turning", "UP 1/3", "going up or down"),
        ("down", "DOWN", "down"),
        ("maint", "MAINT", "in maintenance, or paused"),
        ("drain", "DRAIN", "draining, or no new clients"),
        ("unchecked", "no check", "not checked, taken to be up"),
    ] {
        let _ = write!(out, "<span><span class=\"state {class}\">{pill}</span> {text}</span>");
    }
    out.push_str("</p>");
}

/// Adds the section of a proxy: its heading, its table, and its form if actions are allowed.
pub fn section(out: &mut String, rows: &[&Row], page: &Page<'_>) {
    let Some(first) = rows.first() else { return };
    let acts = page.view.admin && rows.iter().any(|row| row.kind == Kind::Server);
    let _ = write!(out, "<section aria-labelledby=\"p{}\">", first.proxy.0);
    if acts {
        forms::open(out, page.view);
    }
    let name = Text(&first.proxy_name);
    let details = details(rows, page).join(" · ");
    let _ = write!(
        out,
        "<h2 id=\"p{}\">{name}<small>{}</small></h2><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-labelledby=\"p{}\">\
         <table class=\"proxy\"><caption class=\"sr\">Statistics of {name}</caption>",
        first.proxy.0,
        Text(&details),
        first.proxy.0
    );
    head(out, acts);
    out.push_str("<tbody>");
    for row in rows {
        body_row(out, row, page, acts);
    }
    out.push_str("</tbody></table></div>");
    if acts {
        forms::close(out, page, first);
    }
    out.push_str("</section>");
}

fn details(rows: &[&Row], page: &Page<'_>) -> Vec<String> {
    let mut details = Vec::new();
    if page.config.show_desc.is_some() {
        details.extend(rows[0].description.clone());
    }
    if page.config.show_legends {
        details.push(format!("mode {}", if rows[0].http { "http" } else { "tcp" }));
        let algorithm = rows.iter().find_map(|row| row.algorithm);
        details.extend(algorithm.map(|algorithm| format!("balance {algorithm}")));
        details.push(format!("id {}", rows[0].iid));
    }
    details
}

fn head(out: &mut String, acts: bool) {
    out.push_str("<thead><tr>");
    if acts {
        out.push_str("<th rowspan=\"2\"><span class=\"sr\">Select</span></th>");
    }
    out.push_str("<th rowspan=\"2\" scope=\"col\" class=\"name\"><span class=\"sr\">Name</span></th>");
    for (group, columns) in GROUPS {
        let _ = write!(out, "<th colspan=\"{}\" scope=\"colgroup\">{group}</th>", columns.len());
    }
    out.push_str("</tr><tr>");
    for (column, begins) in columns() {
        let _ = write!(
            out,
            "<th{} scope=\"col\"><abbr title=\"{}\">{}</abbr></th>",
            class(column.text, begins),
            column.legend,
            column.name.replace('/', "/<wbr>")
        );
    }
    out.push_str("</tr></thead>");
}

fn class(text: bool, begins: bool) -> &'static str {
    match (text, begins) {
        (false, false) => "",
        (false, true) => " class=\"edge\"",
        (true, false) => " class=\"left\"",
        (true, true) => " class=\"edge left\"",
    }
}

fn body_row(out: &mut String, row: &Row, page: &Page<'_>, acts: bool) {
    let side = matches!(row.kind, Kind::Frontend | Kind::Backend);
    let state = state(&row.status);
    let _ = write!(out, "<tr id=\"{}\" class=\"{}{state}\">", key(row), if side { "side " } else { "" });
    if acts {
        let name = Text(&row.name);
        let _ = match row.kind {
            Kind::Server => {
                write!(out, "<td><input type=\"checkbox\" name=\"s\" value=\"{name}\" aria-label=\"{name}\"></td>")
            }
            _ => write!(out, "<td></td>"),
        };
    }
    let name = match row.kind {
        Kind::Frontend => "Frontend",
        Kind::Backend => "Backend",
        Kind::Server | Kind::Listener => row.name.as_str(),
    };
    let _ = write!(out, "<th scope=\"row\" class=\"name\" title=\"{}\">", Text(&tip(row, page).join(", ")));
    let _ = match row.kind {
        Kind::Listener => write!(out, "<span>{}</span>", Text(name)),
        _ => write!(out, "<a href=\"{}\">{}</a>", Text(&graphs::link(page.view, row)), Text(name)),
    };
    let _ = write!(out, "<span class=\"state mini {state}\">{}</span></th>", Text(&row.status));
    for (column, begins) in columns() {
        let _ = write!(out, "<td{}>{}</td>", class(column.text, begins), (column.cell)(row));
    }
    out.push_str("</tr>");
}

fn tip(row: &Row, page: &Page<'_>) -> Vec<String> {
    let mut tip = Vec::new();
    if page.config.show_legends {
        tip.extend(row.address.clone());
        if let Some(server) = &row.server {
            tip.extend(server.address.clone());
            tip.extend(row.cookie.as_ref().map(|cookie| format!("cookie {cookie}")));
            tip.push(format!("id {}", row.sid));
        }
    }
    tip
}

/// Identifies a row for the script.
fn key(row: &Row) -> String {
    match (row.kind, row.at) {
        (Kind::Frontend, _) => format!("f{}", row.proxy.0),
        (Kind::Backend, _) => format!("b{}", row.proxy.0),
        (Kind::Server, Some(at)) => format!("s{}.{}.{}", row.proxy.0, at.server.slot, at.server.generation),
        (Kind::Server | Kind::Listener, _) => format!("l{}.{}", row.proxy.0, row.index),
    }
}

/// A hash of all rows' keys: it changes when rows are added, removed or reordered.
pub fn keys(rows: &[&Row]) -> String {
    let mut hasher = DefaultHasher::new();
    rows.iter().for_each(|row| key(row).hash(&mut hasher));
    format!("{:016x}", hasher.finish())
}

/// A changed cell: the key of its row, its column, and its new content.
pub type Change = (String, usize, String);

/// Bytes that sending a change takes besides its key and content.
const AROUND: usize = 24;

/// The cells that have changed since they were recorded in `seen`, starting at row `next` and wrapping around, up to about `room`
/// bytes. Changes that do not fit are returned by later calls.
pub fn changes(rows: &[&Row], seen: &mut Vec<u32>, next: &mut usize, mut room: usize) -> Vec<Change> {
    let width = columns().count();
    seen.resize(rows.len() * width, 0);
    let mut changes = Vec::new();
    for _ in 0..rows.len() {
        if room == 0 {
            break;
        }
        let at = *next % rows.len();
        *next = at + 1;
        for ((place, (column, _)), seen) in columns().enumerate().zip(&mut seen[at * width..(at + 1) * width]) {
            let cell = without_ages((column.cell)(rows[at]));
            let mut hasher = DefaultHasher::new();
            cell.hash(&mut hasher);
            let hash = hasher.finish() as u32 | 1;
            if hash != *seen {
                *seen = hash;
                let key = key(rows[at]);
                room = room.saturating_sub(cell.len() + key.len() + AROUND);
                changes.push((key, place, cell));
            }
        }
    }
    changes
}
