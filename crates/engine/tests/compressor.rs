//! A worker's way to a device that compresses, through the device double.

use penstock_engine::hw::{Compressor, Deflation, Hardware, Options, PIECE_MAX, PieceId};
use penstock_qat_double::Double;
use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

fn opened(commands: &str) -> (Double, Arc<Hardware>, Compressor) {
    let double = Double::new(commands);
    let options = Options { directory: Some(double.path().to_owned()), ..Options::default() };
    let hardware = Hardware::open_for_compression(&options, 1).expect("the double is there");
    let compressor = Compressor::default();
    compressor.install(Some(&hardware), Some(Deflation { least: 1000, demanded: true }));
    (double, hardware, compressor)
}

fn answer(compressor: &Compressor, id: PieceId) -> Poll<Option<Vec<u8>>> {
    compressor.poll_answer(id, &mut Context::from_waker(Waker::noop()))
}

/// Collects until nothing is due.
fn settle(compressor: &Compressor) {
    let until = Instant::now() + Duration::from_secs(5);
    while compressor.turn(Instant::now()) {
        assert!(Instant::now() < until, "every piece ends");
    }
}

#[test]
fn pieces_of_no_fitting_length_are_compressed_here() {
    let (_double, _hardware, compressor) = opened("");
    assert!(compressor.submit(&[b'x'; 999]).is_none() && compressor.submit(&vec![b'x'; PIECE_MAX + 1]).is_none());
    for len in [1000, PIECE_MAX] {
        let id = compressor.submit(&vec![b'x'; len]).expect("it fits");
        settle(&compressor);
        assert!(matches!(answer(&compressor, id), Poll::Ready(Some(blocks)) if blocks.len() < len), "{len}");
        assert_eq!(answer(&compressor, id), Poll::Ready(None), "it is told once");
    }
    let counters = compressor.report().expect("it is configured").counters;
    assert_eq!((counters.pieces, counters.full, counters.failed), (2, 0, 0));
}

#[test]
fn a_device_that_hangs_is_left_alone_for_a_second_and_then_tried_again() {
    let (_double, _hardware, compressor) = opened("deflate_silent 16");
    let ids: Vec<_> = (0..17).filter_map(|_| compressor.submit(&[b'x'; 2000])).collect();
    assert_eq!(ids.len(), 16);
    settle(&compressor);
    for id in ids {
        assert_eq!(answer(&compressor, id), Poll::Ready(None));
    }
    let counters = compressor.report().expect("it is configured").counters;
    // All of them are late at once, and that is one reason.
    assert_eq!((counters.late, counters.benched, counters.full, counters.depth), (16, 1, 1, 0));
    assert!(compressor.submit(&[b'x'; 2000]).is_none(), "it is left alone");
    thread::sleep(Duration::from_millis(1100));
    let id = compressor.submit(&[b'x'; 2000]).expect("a second is over");
    settle(&compressor);
    assert!(matches!(answer(&compressor, id), Poll::Ready(Some(_))));
}

#[test]
fn a_wrong_answer_is_enough_and_the_time_alone_doubles() {
    let (_double, _hardware, compressor) = opened("");
    let piece = || compressor.submit(&[b'x'; 2000]);
    compressor.was_wrong();
    assert!(piece().is_none());
    thread::sleep(Duration::from_millis(1100));
    assert!(piece().is_some());
    compressor.was_wrong();
    // One that was given to it before is right, which proves nothing of the device as it is now.
    compressor.was_right(2000);
    thread::sleep(Duration::from_millis(1100));
    assert!(piece().is_none(), "two seconds, this time");
    thread::sleep(Duration::from_millis(1000));
    assert!(piece().is_some());
    let counters = compressor.report().expect("it is configured").counters;
    assert_eq!((counters.wrong, counters.benched, counters.bytes_device), (2, 2, 2000));
}

#[test]
fn pieces_nobody_waits_for_leave_nothing_and_those_of_a_device_that_goes_are_answered() {
    let (double, hardware, compressor) = opened("service_us 20000");
    let left = compressor.submit(&[b'x'; 2000]).expect("there is room");
    let kept = compressor.submit(&[b'y'; 2000]).expect("there is room");
    compressor.forget(left);
    assert_eq!(answer(&compressor, kept), Poll::Pending);
    compressor.install(None, Some(Deflation { least: 1000, demanded: true }));
    assert_eq!(answer(&compressor, kept), Poll::Ready(None), "software compresses it");
    assert!(compressor.submit(&[b'x'; 2000]).is_none() && !compressor.is_there());
    drop((compressor, hardware));
    assert_eq!(double.violations(), [""; 0]);
    assert_eq!(double.pinned(), Some(0), "{:?}", double.log());
}
