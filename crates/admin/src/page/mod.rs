//! The statistics page: HAProxy's tables and forms, with graphs of the history.
//!
//! It is complete without scripts. Where they run, `script.js` updates it from a stream of events; see [`crate::live`].

mod cells;
mod facts;
pub mod forms;
pub mod graphs;
mod table;
mod view;

pub use facts::FACTS;
pub use table::{changes, keys};
pub use view::{View, covers, decode};

use crate::{handshakes, html::Text};
use graphs::Shown;
use penstock_config::model::StatsPage;
use penstock_proxy::snapshot::{Row, Snapshot};
use std::fmt::Write as _;

/// The page's style sheet. The page's Content-Security-Policy contains its hash.
pub const STYLE: &str = include_str!("style.css");
/// The page's script. The page's Content-Security-Policy contains its hash.
pub const SCRIPT: &str = include_str!("script.js");

/// Everything that a page is rendered from.
pub struct Page<'a> {
    /// The state of the process.
    pub snapshot: &'a Snapshot,
    /// The page's settings in the configuration.
    pub config: &'a StatsPage,
    /// The options in the request.
    pub view: &'a View,
    /// The version to show.
    pub version: &'a str,
    /// The name of the proxy that serves the page.
    pub self_name: &'a str,
    /// The token of the page's forms; see [`FormKey::token`].
    pub token: &'a str,
    /// The graphs.
    pub shown: Shown,
}

impl Page<'_> {
    /// The rows that the page shows.
    pub fn rows(&self) -> Vec<&Row> {
        self.snapshot.rows.iter().filter(|row| self.view.shows(self.config, row, self.self_name)).collect()
    }

    /// Renders the whole page.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(64 * 1024);
        let rows = self.rows();
        self.head(&mut out, &rows);
        self.header(&mut out);
        out.push_str("<main>");
        facts::render(&mut out, self.snapshot);
        if let Some(done) = &self.view.done {
            let (class, text) = forms::outcome(done);
            let _ = write!(out, "<p class=\"done {class}\" role=\"status\">{text}</p>");
        }
        graphs::render(&mut out, &self.shown, self.view);
        table::legend(&mut out);
        for group in rows.chunk_by(|one, other| one.proxy == other.proxy) {
            table::section(&mut out, group, self);
        }
        if self.view.scope.is_empty() && self.config.scope.is_empty() {
            handshakes::render(&mut out, &self.snapshot.engine);
        }
        let _ = writeln!(
            out,
            "</main><footer>Underlined headings and cells show details on hover. Names link to their graphs.</footer><script>{SCRIPT}</script></body></html>"
        );
        out
    }

    fn node(&self) -> Option<&str> {
        let node = self.config.show_node.as_ref()?;
        Some(node.as_deref().unwrap_or(&self.snapshot.process.node))
    }

    /// Adds the head, with the data that the script needs: the address of the stream, and which rows there are.
    fn head(&self, out: &mut String, rows: &[&Row]) {
        let title = self.node().map(|node| format!(" on {node}")).unwrap_or_default();
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
             initial-scale=1\"><link rel=\"icon\" href=\"data:,\"><title>Statistics{}</title><style>{STYLE}</style></head>\
             <body data-stream=\"{}\" data-rows=\"{}\">",
            Text(&title),
            Text(&self.view.stream()),
            keys(rows)
        );
    }

    fn header(&self, out: &mut String) {
        let process = &self.snapshot.process;
        let version = if self.config.hide_version { String::new() } else { format!(" {}", self.version) };
        let description = self.config.show_desc.as_ref();
        let description = description.and_then(|text| text.as_deref().or(process.description.as_deref()));
        let parts =
            [self.node().map(str::to_string), description.map(str::to_string), Some(format!("pid {}", process.pid))];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let _ = write!(
            out,
            "<header><h1>penstock{}<small>{}</small><button id=\"live\" hidden></button></h1>",
            Text(&version),
            Text(&parts.join(" · "))
        );
        self.navigation(out);
        out.push_str("</header>");
    }

    fn navigation(&self, out: &mut String) {
        let view = self.view;
        out.push_str("<nav aria-label=\"View\">");
        let link = |out: &mut String, view: View, text: &str| {
            let _ = write!(out, "<a href=\"{}\">{text}</a>", Text(&view.link()));
        };
        let servers = if view.only_up { "Show all servers" } else { "Hide servers that are down" };
        link(out, View { only_up: !view.only_up, ..view.clone() }, servers);
        if self.config.refresh.is_some() {
            let text = match view.refresh(self.config) {
                0 => "Refresh by itself".into(),
                seconds => format!("Stop refreshing (every {seconds} s)"),
            };
            link(out, View { no_refresh: !view.no_refresh, ..view.clone() }, &text);
        }
        link(out, view.clone(), "Refresh now");
        for (kind, name) in [("csv", "CSV"), ("json", "JSON")] {
            let _ = write!(out, "<a href=\"{};{kind}\">{name}</a>", Text(&view.uri));
        }
        let _ = write!(
            out,
            "<form action=\"{}\" method=\"get\" role=\"search\"><label class=\"sr\" for=\"scope\">Proxies whose name has</label>\
             <input type=\"search\" id=\"scope\" name=\"scope\" placeholder=\"Filter proxies\" value=\"{}\"></form></nav>",
            Text(&view.uri),
            Text(&view.scope)
        );
    }
}
