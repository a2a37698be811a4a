//! What a peer sends means the same however it arrives, is answered within bounds, and never ends more than its session.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_peers::{
    Definition, HelloReader, PeerKey, PeerTables, PeerUpdate, Acknowledged, PeerSession, SessionKind, PeerVersion, WireColumn,
};
use std::cell::RefCell;

struct Tables {
    definitions: Vec<Definition>,
    learned: RefCell<Vec<(usize, PeerUpdate)>>,
}

impl PeerTables for Tables {
    type Entry = ();
    fn definitions(&self) -> &[Definition] {
        &self.definitions
    }
    fn changes(&self, _: usize, after: u64, _: usize) -> (Vec<()>, u64) {
        (Vec::new(), after)
    }
    fn newest(&self, _: usize) -> u64 {
        7
    }
    fn part(&self, _: usize, part: usize) -> Option<Vec<()>> {
        (part < 2).then(|| vec![(); 3])
    }
    fn entry(&self, table: usize, (): &()) -> Option<PeerUpdate> {
        (table == 1).then(|| PeerUpdate { key: vec![1, 2, 3, 4], expire: Some(9), cells: Vec::new() })
    }
    fn learn(&self, table: usize, _: &Definition, update: PeerUpdate) {
        assert!(update.key.len() as u64 <= self.definitions[table].key_len);
        self.learned.borrow_mut().push((table, update));
    }
}

fn learn(input: &[u8], step: usize) -> (Vec<(usize, PeerUpdate)>, bool, Vec<u8>) {
    let column = |number, count, period| WireColumn { number, count, period };
    let table = |id, name: &str, key, key_len, columns| Definition { id, name: name.into(), key, key_len, expire: 0, columns };
    let tables = Tables {
        definitions: vec![
            table(1, "s", PeerKey::String, 33, vec![column(10, 1, 1), column(19, 1, 0), column(23, 2, 0)]),
            table(2, "i", PeerKey::Ipv4, 4, vec![]),
        ],
        learned: RefCell::default(),
    };
    let mut session = PeerSession::new(SessionKind::Remote, PeerVersion::V21, &Acknowledged::default(), &tables, 0);
    let failed = input.chunks(step).any(|piece| session.input(piece, &tables, 0).is_err());
    let mut out = Vec::new();
    if !failed {
        let mut rounds = 0;
        while session.produce(&tables, 4, true, 0, &mut out) {
            rounds += 1;
            assert!(rounds < 100_000, "it never stops");
        }
    }
    (tables.learned.into_inner(), failed, out)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = input;
    let _ = HelloReader::default().input(&mut &bytes[..]);
    let (learned, failed, out) = learn(bytes, bytes.len().max(1));
    let (in_pieces, failed_too, out_too) = learn(bytes, usize::from(step).max(1));
    assert_eq!((learned, failed), (in_pieces, failed_too));
    assert_eq!(out, out_too);
});
