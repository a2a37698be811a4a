//! `show cache`.

use super::{Answer, Piece, answer::Pieces};
use penstock_proxy::{Cache, Collapses, EntryView, Handle};
use serde_json::json;
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// The caches with their entries, of which there may be millions: read on a thread of its own, and a page at a time.
pub(super) fn show(handle: &Handle, json: bool) -> Answer {
    let shared = handle.shared().clone();
    Answer::beside("caches", move |pieces| {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let caches = &shared.caches;
        let _ = if json { as_json(pieces, caches, now_s) } else { as_text(pieces, caches, now_s) };
    })
}

/// The unit in which HAProxy counts a cache's memory.
const BLOCK: usize = 1024;

/// Number of entries in each piece of an answer.
const PIECE: usize = 128;

/// The caches in HAProxy's format, with numbers in place of addresses in memory, which only an attacker could use; a line more for those
/// that have requests wait for each other. `None` once the client is gone.
fn as_text(pieces: &Pieces, caches: &[Arc<Cache>], now_s: u64) -> Option<()> {
    for (number, cache) in (1..).zip(caches) {
        let free = cache.limits().total.saturating_sub(cache.used()) / BLOCK;
        give(pieces, format!("{number:#x}: {} (shctx:{number:#x}, available blocks:{free})\n", cache.name()))?;
        if cache.limits().collapse_ms > 0 {
            let Collapses { collapsed, fetching, waiting } = cache.collapses();
            give(pieces, format!("collapsed:{collapsed} fetching:{fetching} waiting:{waiting}\n"))?;
        }
        let line = |(place, entry): (u64, EntryView)| {
            let EntryView { hash, variant, size, readers, .. } = entry;
            let (blocks, left) = (entry.cost.div_ceil(BLOCK as u64), left(&entry, now_s));
            format!(
                "{place:#x} hash:{hash} vary:0x{variant:024x} size:{size} ({blocks} blocks), refcount:{readers}, expire:{left}\n"
            )
        };
        in_pieces(pieces, (1..).zip(cache.entries()).map(line))?;
    }
    Some(())
}

fn as_json(pieces: &Pieces, caches: &[Arc<Cache>], now_s: u64) -> Option<()> {
    give(pieces, "[".into())?;
    for (number, cache) in caches.iter().enumerate() {
        let (name, total, used) = (json!(**cache.name()), cache.limits().total, cache.used());
        let comma = if number == 0 { "" } else { "," };
        let Collapses { collapsed, fetching, waiting } = cache.collapses();
        let counts = format!(r#""collapsed":{collapsed},"fetching":{fetching},"waiting":{waiting}"#);
        give(pieces, format!(r#"{comma}{{"name":{name},"size":{total},"used":{used},{counts},"entries":["#))?;
        let object = |(place, entry): (u64, EntryView)| {
            let comma = if place == 0 { "" } else { "," };
            let EntryView { hash, variant, size, cost, readers, .. } = entry;
            let left = left(&entry, now_s);
            format!(
                r#"{comma}{{"hash":{hash},"variant":{variant},"size":{size},"cost":{cost},"readers":{readers},"expires_in":{left}}}"#
            )
        };
        in_pieces(pieces, (0..).zip(cache.entries()).map(object))?;
        give(pieces, "]}".into())?;
    }
    give(pieces, "]\n".into())
}

/// Seconds until an entry expires; negative if it has.
fn left(entry: &EntryView, now_s: u64) -> i64 {
    entry.expires_s as i64 - now_s as i64
}

fn in_pieces(pieces: &Pieces, mut texts: impl Iterator<Item = String>) -> Option<()> {
    loop {
        let text: String = texts.by_ref().take(PIECE).collect();
        if text.is_empty() {
            return Some(());
        }
        give(pieces, text)?;
    }
}

fn give(pieces: &Pieces, text: String) -> Option<()> {
    pieces.give(Piece::Data(text.into_bytes())).then_some(())
}
