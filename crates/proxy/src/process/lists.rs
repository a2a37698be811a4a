//! Lists, maps and stick tables, as operators see them.

use super::handle::Handle;
use penstock_rules::{
    patterns::Reference,
    table::{Millis, StickTable},
};
use std::{io, sync::Arc, thread, time::Duration};

/// How often lists and maps that have changed are reorganised.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reorganises lists and maps on a thread of its own for as long as there are workers: frees contents that are no longer read, and
/// builds indexes. The time this takes is proportional to their size, so no worker does it.
pub(crate) fn keep_tidy(handle: Handle) -> io::Result<()> {
    if handle.references().is_empty() {
        return Ok(());
    }
    let thread = thread::Builder::new().name("lists".into());
    let work = move || {
        while !handle.has_ended() {
            for list in handle.references().iter().filter(|list| list.is_untidy()) {
                list.tidy();
            }
            thread::sleep(INTERVAL);
        }
    };
    thread.spawn(work).map(drop)
}

impl Handle {
    /// The lists and maps that rules read, by number.
    pub fn references(&self) -> &[Arc<Reference>] {
        &self.shared().program.references
    }

    /// The stick tables, last declared first, as HAProxy lists them.
    pub fn tables(&self) -> Vec<Arc<StickTable>> {
        let (config, tables) = (&self.shared().config, &self.shared().program.tables);
        let declared = config.proxies.iter().rev().filter(|proxy| proxy.stick_table.is_some());
        let of_peers =
            config.peers.iter().rev().flat_map(|section| {
                section.tables.iter().rev().map(|(name, _)| format!("{}/{}", section.name, name.text))
            });
        let names = declared.map(|proxy| proxy.name.clone()).chain(of_peers);
        names.filter_map(|name| tables.get(&name).cloned()).collect()
    }

    /// The clock by which entries of stick tables expire.
    pub fn table_time(&self) -> Millis {
        self.shared().backends.started().elapsed().as_millis() as Millis
    }
}
