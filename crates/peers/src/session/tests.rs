use super::*;
use crate::{PeerKey, WireCell, WireColumn};
use std::{cell::RefCell, collections::BTreeMap};

/// Tables in memory: one with strings, one with addresses.
struct Memory {
    definitions: Vec<Definition>,
    entries: RefCell<Vec<BTreeMap<Vec<u8>, PeerUpdate>>>,
    changes: RefCell<Vec<Vec<Vec<u8>>>>,
}

fn column(number: u8, count: u32, period: u64) -> WireColumn {
    WireColumn { number, count, period }
}

fn memory() -> Memory {
    let strings = Definition {
        id: 1,
        name: "names".into(),
        key: PeerKey::String,
        key_len: 33,
        expire: 60_000,
        columns: vec![column(0, 1, 0), column(10, 1, 10_000), column(19, 1, 0), column(23, 3, 0)],
    };
    let addresses = Definition {
        id: 2,
        name: "addresses".into(),
        key: PeerKey::Ipv4,
        key_len: 4,
        expire: 0,
        columns: vec![column(2, 1, 0)],
    };
    Memory {
        definitions: vec![strings, addresses],
        entries: RefCell::new(vec![BTreeMap::new(), BTreeMap::new()]),
        changes: RefCell::new(vec![Vec::new(), Vec::new()]),
    }
}

impl Memory {
    fn set(&self, table: usize, key: &[u8], number: u64) {
        let cells = match table {
            0 => vec![
                WireCell::Number(number),
                WireCell::Rate { age: 3, current: number, previous: 1 },
                WireCell::Name(Some(format!("s{number}").into())),
                WireCell::Number(1),
                WireCell::Number(2),
                WireCell::Number(u64::MAX),
            ],
            _ => vec![WireCell::Number(number)],
        };
        let expire = (table == 0).then_some(5_000);
        self.entries.borrow_mut()[table].insert(key.to_vec(), PeerUpdate { key: key.to_vec(), expire, cells });
        self.changes.borrow_mut()[table].push(key.to_vec());
    }
    fn all(&self) -> Vec<BTreeMap<Vec<u8>, PeerUpdate>> {
        self.entries.borrow().clone()
    }
}

impl PeerTables for Memory {
    type Entry = Vec<u8>;
    fn definitions(&self) -> &[Definition] {
        &self.definitions
    }
    fn changes(&self, table: usize, after: u64, most: usize) -> (Vec<Vec<u8>>, u64) {
        let changes = &self.changes.borrow()[table];
        let some: Vec<_> = changes[after as usize..].iter().take(most).cloned().collect();
        let reached = after + some.len() as u64;
        (some, reached)
    }
    fn newest(&self, table: usize) -> u64 {
        self.changes.borrow()[table].len() as u64
    }
    fn part(&self, table: usize, part: usize) -> Option<Vec<Vec<u8>>> {
        (part == 0).then(|| self.entries.borrow()[table].keys().cloned().collect())
    }
    fn entry(&self, table: usize, entry: &Vec<u8>) -> Option<PeerUpdate> {
        self.entries.borrow()[table].get(entry).cloned()
    }
    fn learn(&self, table: usize, _: &Definition, update: PeerUpdate) {
        self.entries.borrow_mut()[table].insert(update.key.clone(), update);
    }
}

fn session(kind: SessionKind, tables: &Memory) -> PeerSession<Vec<u8>> {
    PeerSession::new(kind, PeerVersion::V21, &Acknowledged::default(), tables, 0)
}

/// Lets both sides talk, `step` bytes at a time, until neither has anything to say.
fn talk(
    one: (&mut PeerSession<Vec<u8>>, &Memory),
    two: (&mut PeerSession<Vec<u8>>, &Memory),
    step: usize,
) -> Vec<PeerEvent> {
    let mut events = Vec::new();
    for _ in 0..10_000 {
        let (mut from_one, mut from_two) = (Vec::new(), Vec::new());
        let more = one.0.produce(one.1, 7, true, 0, &mut from_one) | two.0.produce(two.1, 7, true, 0, &mut from_two);
        if !more && from_one.is_empty() && from_two.is_empty() {
            return events;
        }
        for piece in from_one.chunks(step) {
            events.extend(two.0.input(piece, two.1, 0).unwrap());
        }
        for piece in from_two.chunks(step) {
            events.extend(one.0.input(piece, one.1, 0).unwrap());
        }
    }
    panic!("they never stop");
}

#[test]
fn changes_reach_the_other_side_however_they_are_cut() {
    for step in [1, 2, 3, 5, 16, 100_000] {
        let (here, there) = (memory(), memory());
        let (mut one, mut two) = (session(SessionKind::Remote, &here), session(SessionKind::Remote, &there));
        for number in 0..50u8 {
            here.set(0, format!("key {number}").as_bytes(), number.into());
            there.set(1, &[10, 0, 0, number], number.into());
        }
        let events = talk((&mut one, &here), (&mut two, &there), step);
        assert_eq!(events, [], "nobody asked for everything");
        assert_eq!(here.all(), there.all());
        assert_eq!(one.shared[0].acknowledged, 50, "and it is acknowledged");
        assert_eq!((here.newest(1), there.newest(0)), (0, 0), "what was learned is no change");
        here.set(0, b"key 3", 99);
        talk((&mut one, &here), (&mut two, &there), step);
        assert_eq!(here.all(), there.all());
        assert_eq!(one.shared[0].acknowledged, 51);
    }
}

#[test]
fn one_that_asks_is_taught_everything_and_confirms() {
    let (here, there) = (memory(), memory());
    for number in 0..3_000u32 {
        here.set(1, &number.to_be_bytes(), number.into());
    }
    here.changes.borrow_mut()[1].clear();
    let (mut one, mut two) = (session(SessionKind::Remote, &here), session(SessionKind::Remote, &there));
    two.ask();
    let events = talk((&mut one, &here), (&mut two, &there), 1000);
    assert_eq!(events, [PeerEvent::Taught { finished: true }, PeerEvent::Confirmed]);
    assert_eq!(here.all(), there.all());
}

#[test]
fn a_successor_is_taught_without_asking_and_an_unfinished_teacher_says_so() {
    let (here, there) = (memory(), memory());
    here.set(0, b"a", 1);
    let (mut one, mut two) = (session(SessionKind::Successor, &here), session(SessionKind::Predecessor, &there));
    let mut out = Vec::new();
    while one.teaching.is_some() {
        one.produce(&here, 1, false, 0, &mut out);
    }
    assert_eq!(two.input(&out, &there, 0), Ok(vec![PeerEvent::Taught { finished: false }]));
    assert_eq!(here.all()[0], there.all()[0]);
    out.clear();
    assert!(!one.produce(&here, 200, true, 0, &mut out) && out.is_empty(), "what was taught is not sent again");
}

#[test]
fn an_interrupted_exchange_continues_where_it_was_acknowledged() {
    let (here, there) = (memory(), memory());
    let (mut one, mut two) = (session(SessionKind::Remote, &here), session(SessionKind::Remote, &there));
    here.set(1, &[1, 1, 1, 1], 1);
    talk((&mut one, &here), (&mut two, &there), 9);
    here.set(1, &[2, 2, 2, 2], 2);
    let mut lost = Vec::new();
    one.produce(&here, 200, true, 0, &mut lost);
    let mut again = PeerSession::new(SessionKind::Remote, PeerVersion::V20, &one.progress(), &here, 0);
    let mut out = Vec::new();
    again.produce(&here, 200, true, 0, &mut out);
    assert!(!out.windows(4).any(|four| four == [1, 1, 1, 1]) && out.windows(4).any(|four| four == [2, 2, 2, 2]));
}

#[test]
fn silence_is_filled_with_heartbeats_and_ends_a_session() {
    let tables = memory();
    let mut one = session(SessionKind::Remote, &tables);
    let mut out = Vec::new();
    one.produce(&tables, 200, true, 2_999, &mut out);
    assert!(out.is_empty() && one.left(2_999) == 1);
    one.produce(&tables, 200, true, 3_000, &mut out);
    assert_eq!(out, [0, 4]);
    assert!(!one.is_dead(4_999) && one.is_dead(5_000));
    one.input(&[0, 4], &tables, 4_999).unwrap();
    assert!(!one.is_dead(9_998));
    one.input(&[0], &tables, 9_998).unwrap();
    assert!(one.is_dead(9_999), "half a message is not a sign of life");
}

#[test]
fn what_breaks_the_protocol_ends_the_session() {
    let tables = memory();
    let mut defined = Vec::new();
    tables.definitions[1].write(&mut defined);
    let fails = |bytes: &[u8]| session(SessionKind::Remote, &tables).input(bytes, &tables, 0).unwrap_err();
    let after = |bytes: &[u8]| fails(&[&defined, bytes].concat());
    assert_eq!(fails(&[10, 128, 9, 0, 0, 0, 1, 1, 2, 3, 4, 7]), Flaw::NoTable);
    assert_eq!(fails(&[10, 131, 1, 9]), Flaw::NoTable);
    assert_eq!(after(&[10, 128, 8, 0, 0, 0, 1, 1, 2, 3, 4]), Flaw::Short);
    assert_eq!(after(&[10, 128, 3, 0, 0, 0]), Flaw::Short);
    assert_eq!(fails(&[1, 0]), Flaw::Reported);
    assert_eq!(fails(&[10, 128, 0xff, 0xff, 0xff, 0x7f]), Flaw::Long);
    assert_eq!((Flaw::Long.farewell(), Flaw::Short.farewell()), (&[1, 1][..], &[1, 0][..]));
    let mut many = Vec::new();
    for id in 0..=DEFINITIONS_MAX as u64 {
        Definition { id, ..tables.definitions[1].clone() }.write(&mut many);
    }
    assert_eq!(fails(&many), Flaw::Definitions);
    let mut long = Vec::new();
    tables.definitions[0].write(&mut long);
    long.extend([10, 128, 5, 0, 0, 0, 1, 34]);
    assert_eq!(fails(&long), Flaw::Key);
}

#[test]
fn acknowledgements_that_lie_change_nothing_else() {
    let tables = memory();
    let mut one = session(SessionKind::Remote, &tables);
    for message in [&[10, 132, 5, 1, 0, 0, 0, 77][..], &[10, 132, 5, 9, 0, 0, 0, 1], &[10, 132, 5, 0, 0, 0, 0, 1]] {
        assert_eq!(one.input(message, &tables, 0), Ok(vec![]));
    }
    assert_eq!(one.shared[0].acknowledged, 0);
    assert_eq!(nearest(5, 3), 3);
    assert_eq!(nearest((1 << 32) + 2, u32::MAX), u64::from(u32::MAX));
    assert_eq!(nearest(5, 7), 0, "not sent yet");
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Recorded between two HAProxys 2.6: everything, taught to one that asked, and then changes.
const LESSON: &str = concat!(
    "0a820b0605745f737472062004000a851b0000000600000000112f68656c6c6f2d776f726c642d6c6f6e6703",
    "0a82190305745f617272060bf0f1fe6ef8d51c160217031802f89d05",
    "0a8523000000090000ec680a2f68656c6c6f2d776f72004d000300fa8b8bae090000fc1e0300",
    "0a820e07036170700404f1f1fe00f0971c0a8512000000070000e8c87f000001010401027331",
    "0002",
    "0a820e07036170700404f1f1fe00f0971c0a800b000000077f000001010101",
);

#[test]
fn what_a_haproxy_said_is_learned_however_it_is_cut() {
    let table = |id, name: &str, key, key_len, columns| Definition {
        id,
        name: name.into(),
        key,
        key_len,
        expire: 60_000,
        columns,
    };
    let mut tables = memory();
    tables.definitions = vec![
        table(1, "app", PeerKey::Ipv4, 4, vec![column(0, 1, 0), column(19, 1, 0)]),
        table(2, "t_arr", PeerKey::String, 11, vec![column(22, 2, 0), column(23, 3, 0), column(24, 2, 13_000)]),
    ];
    let bytes = hex(LESSON);
    for cut in 0..bytes.len() {
        tables.entries = RefCell::new(vec![BTreeMap::new(), BTreeMap::new()]);
        let mut session = session(SessionKind::Remote, &tables);
        let mut events = session.input(&bytes[..cut], &tables, 0).unwrap();
        events.extend(session.input(&bytes[cut..], &tables, 0).unwrap());
        assert_eq!(events, [PeerEvent::Taught { finished: false }]);
        let learned = tables.all();
        let app = &learned[0][&[127, 0, 0, 1][..]];
        assert_eq!(app.cells, [WireCell::Number(1), WireCell::Name(Some("s1".into()))]);
        let array = &learned[1][&b"/hello-wor"[..]];
        assert_eq!(array.expire, Some(60_520));
        assert_eq!(array.cells[..5], [0, 77, 0, 3, 0].map(WireCell::Number));
        assert_eq!(array.cells[6], WireCell::Rate { age: 732, current: 3, previous: 0 });
        assert_eq!(session.tables().map(|view| view.last_get).collect::<Vec<_>>(), [7, 9]);
        let mut out = Vec::new();
        session.produce(&tables, 200, true, 0, &mut out);
        assert_eq!(out, hex("00030a840501000000070a84050200000009"), "confirmed and acknowledged");
    }
}
