//! `show peers`.

use super::{Answer, Piece};
use penstock_control::Severity;
use penstock_proxy::{Handle, PeerView, PeersView, SharedTableView};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// Shows all sections, or the one with this name; with `dictionary` also the names that were exchanged.
pub(super) fn show(handle: &Handle, section: Option<String>, dictionary: bool, as_json: bool) -> Answer {
    let handle = handle.clone();
    Answer::beside("peers", move |pieces| {
        let names: Vec<String> = handle.shared().config.peers.iter().map(|section| section.name.clone()).collect();
        let wanted = |at: usize| section.as_ref().is_none_or(|name| names.get(at) == Some(name));
        if section.is_some() && !(0..names.len()).any(wanted) {
            pieces.say(Severity::Error, "No such peers");
            return;
        }
        let mut views = handle.peers();
        // A section that is disabled has no state.
        for at in 0..names.len() {
            if !views.iter().any(|view| view.section == at) {
                views.push(PeersView { section: at, resync: "off", ..PeersView::default() });
            }
        }
        views.retain(|view| wanted(view.section));
        views.sort_by_key(|view| view.section);
        if as_json {
            let all: Vec<Json> = views.iter().map(|view| object(view, &names[view.section], dictionary)).collect();
            pieces.give(Piece::Data(format!("{}\n", json!(all)).into_bytes()));
            return;
        }
        for view in &views {
            let text = text(view, &names[view.section], dictionary);
            if !pieces.give(Piece::Data(text.into_bytes())) {
                return;
            }
        }
    })
}

/// A section in HAProxy's form, without what only HAProxy's own code knows (addresses in memory, flags, counts of calls).
fn text(view: &PeersView, name: &str, dictionary: bool) -> String {
    let mut out = String::new();
    let disabled = u8::from(view.resync == "off");
    let left = match (view.resync, view.resync_left) {
        ("done" | "off", _) => "<PAST>".to_owned(),
        (_, Some(ms)) => seconds(ms),
        (_, None) => "<NEVER>".to_owned(),
    };
    let (resync, taught) = (view.resync, u8::from(view.is_taught));
    let _ =
        writeln!(out, "{name}: id={name} disabled={disabled} resync={resync} taught={taught} resync_timeout={left}");
    for peer in &view.peers {
        describe(peer, dictionary, &mut out);
    }
    out.push('\n');
    out
}

fn describe(peer: &PeerView, dictionary: bool, out: &mut String) {
    let place = if peer.is_local { "local" } else { "remote" };
    let state = if peer.is_connected { "active" } else { "inactive" };
    let address = peer.address.map_or_else(|| "-".to_owned(), |address| address.to_string());
    let time = |ms: Option<u64>| ms.map_or_else(|| "<NEVER>".to_owned(), seconds);
    let _ = writeln!(
        out,
        "  id={}({place},{state}) addr={address} last_status={} last_hdshk={}",
        peer.name,
        peer.status,
        time(peer.handshake_ago)
    );
    let _ = writeln!(
        out,
        "        reconnect={} heartbeat={} tx_hbt={} rx_hbt={} no_hbt={} new_conn={} proto_err={} coll={}",
        time(peer.reconnect_left),
        time(peer.heartbeat_left),
        peer.heartbeats.0,
        peer.heartbeats.1,
        peer.silent,
        peer.sessions,
        peer.protocol_errors,
        peer.collisions
    );
    let _ = writeln!(out, "        shared tables:");
    for table in peer.tables.iter().rev() {
        let SharedTableView { local_id, remote_id, remote_data, last_acked, last_pushed, last_get, update, .. } = table;
        let _ = writeln!(out, "          local_id={local_id} remote_id={remote_id} remote_data={remote_data:#x}");
        let _ = writeln!(
            out,
            "              last_acked={last_acked} last_pushed={last_pushed} last_get={last_get} update={update}"
        );
        let (newest, told) = table.newest;
        let _ = writeln!(out, "              table: id={} localupdate={newest} commitupdate={told}", table.name);
    }
    if !dictionary {
        let _ = writeln!(out, "        Dictionary cache not dumped (use \"show peers dict\")");
        return;
    }
    for (title, names) in ["TX", "RX"].into_iter().zip(&peer.names) {
        let _ = writeln!(out, "        {title} dictionary cache:");
        for (at, name) in names {
            let name: String = name.chars().flat_map(char::escape_default).collect();
            let _ = writeln!(out, "          {at:>3} -> {name}");
        }
    }
}

fn seconds(ms: u64) -> String {
    format!("{}s", ms / 1_000)
}

fn object(view: &PeersView, name: &str, dictionary: bool) -> Json {
    let peers: Vec<Json> = view.peers.iter().map(|peer| of_peer(peer, dictionary)).collect();
    json!({
        "id": name, "resync": view.resync, "resync_left_ms": view.resync_left, "taught": view.is_taught, "peers": peers,
    })
}

fn of_peer(peer: &PeerView, dictionary: bool) -> Json {
    let tables: Vec<Json> = peer
        .tables
        .iter()
        .map(|table| {
            json!({
                "table": table.name, "local_id": table.local_id, "remote_id": table.remote_id,
                "remote_data": table.remote_data, "last_acked": table.last_acked, "last_pushed": table.last_pushed,
                "last_get": table.last_get, "update": table.update, "localupdate": table.newest.0,
                "commitupdate": table.newest.1,
            })
        })
        .collect();
    let mut object = json!({
        "id": peer.name, "local": peer.is_local, "connected": peer.is_connected, "status": peer.status,
        "address": peer.address.map(|address| address.to_string()), "handshake_ms_ago": peer.handshake_ago,
        "reconnect_ms": peer.reconnect_left, "heartbeat_ms": peer.heartbeat_left, "tx_hbt": peer.heartbeats.0,
        "rx_hbt": peer.heartbeats.1, "no_hbt": peer.silent, "new_conn": peer.sessions,
        "proto_err": peer.protocol_errors, "coll": peer.collisions, "tables": tables,
    });
    if dictionary {
        let [sent, received] = &peer.names;
        object["tx_names"] = json!(sent);
        object["rx_names"] = json!(received);
    }
    object
}
