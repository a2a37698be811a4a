//! Compression by the device double: what becomes of pieces, of the memory that they are in, and of sessions. Every figure in here
//! would be the double's.

use penstock_qat::{Deflated, Deflater, Device, Options, Refused, Tag, Unavailable, deflate::PIECE_MAX};
use penstock_qat_double::Double;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use zlib_rs::{Inflate, InflateFlush};

const SOON: Duration = Duration::from_secs(5);
const OVERFLOW: i32 = -11;

fn open(double: &Double) -> Result<Arc<Device>, Unavailable> {
    Device::open(&Options { directory: Some(double.path().to_owned()), compression: true })
}

fn opened(commands: &str) -> (Double, Arc<Device>) {
    let double = Double::new(commands);
    let device = open(&double).expect("the double is there");
    (double, device)
}

fn deflater(device: &Arc<Device>, workers: usize) -> Deflater {
    device.deflater(workers, None).expect("it has an instance for compression")
}

/// Text that compresses, different for each seed.
fn text(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u32 + 1;
    let mut line = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("<li class=\"row\">{}</li>\n", state >> 20)
    };
    let mut text = Vec::new();
    while text.len() < len {
        text.extend_from_slice(line().as_bytes());
    }
    text.truncate(len);
    text
}

/// Of blocks that end on a flush, all that was put in.
fn inflated(blocks: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 2 * PIECE_MAX];
    let mut inflate = Inflate::new(false, 15);
    inflate.decompress(blocks, &mut out, InflateFlush::SyncFlush).expect("they are well formed");
    out.truncate(inflate.total_out() as usize);
    out
}

fn settle(deflater: &mut Deflater) -> BTreeMap<Tag, Deflated> {
    let (mut outcomes, until) = (BTreeMap::new(), Instant::now() + SOON);
    while deflater.depth() > 0 && Instant::now() < until {
        deflater.poll(Instant::now(), |tag, outcome| drop(outcomes.insert(tag, outcome)));
    }
    assert_eq!(deflater.depth(), 0, "every request ends");
    outcomes
}

fn submit(deflater: &mut Deflater, piece: &[u8], tag: Tag) {
    deflater.submit(piece, tag, Instant::now() + SOON).expect("there is room");
}

/// After the device has been let go of: everything was stopped, freed and wiped, and nothing was done out of order.
#[track_caller]
fn ended_well(double: &Double, unanswered: usize) {
    assert_eq!(double.violations(), [""; 0]);
    let log = double.log();
    assert!(log.contains(&format!("stop, {unanswered} unanswered")), "{log:?}");
    assert_eq!(double.pinned(), Some(0), "{log:?}");
}

#[test]
fn pieces_of_all_lengths_become_blocks_that_can_be_joined() {
    for double in [Double::new(""), Double::older(""), Double::new("deflate_buffers 3")] {
        let device = open(&double).expect("the double is there");
        let mut channel = deflater(&device, 1);
        let (mut whole, mut joined) = (Vec::new(), Vec::new());
        for len in [1, 2, 57, 1000, 16384, 40_000, PIECE_MAX - 1, PIECE_MAX] {
            let piece = text(len, len);
            submit(&mut channel, &piece, len as Tag);
            let Some(Deflated::Answered(blocks)) = settle(&mut channel).remove(&(len as Tag)) else { panic!("{len}") };
            assert!(inflated(&blocks) == piece, "{len}");
            assert!(blocks.ends_with(&[0, 0, 0xFF, 0xFF]) && (len < 1000 || blocks.len() < len / 2));
            whole.extend_from_slice(&piece);
            joined.extend_from_slice(&blocks);
        }
        let mut out = vec![0; whole.len() + 1];
        let mut inflate = Inflate::new(false, 15);
        inflate.decompress(&joined, &mut out, InflateFlush::SyncFlush).unwrap();
        out.truncate(inflate.total_out() as usize);
        assert!(out == whole, "joined");
        drop((channel, device));
        ended_well(&double, 0);
    }
}

#[test]
fn what_cannot_be_compressed_fits_nevertheless() {
    let (double, device) = opened("");
    let mut channel = deflater(&device, 1);
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(PIECE_MAX)
    .collect();
    submit(&mut channel, &noise, 1);
    let Some(Deflated::Answered(blocks)) = settle(&mut channel).remove(&1) else { panic!("no answer") };
    assert!(inflated(&blocks) == noise);
    drop((channel, device));
    ended_well(&double, 0);
}

#[test]
fn pieces_that_cannot_be_are_refused_before_the_device_sees_them() {
    let (double, device) = opened("");
    let mut channel = deflater(&device, 1);
    for piece in [vec![], vec![0; PIECE_MAX + 1]] {
        assert!(matches!(channel.submit(&piece, 1, Instant::now() + SOON), Err(Refused::Failed(_))));
    }
    drop((channel, device));
    ended_well(&double, 0);
}

#[test]
fn failures_say_what_they_are_and_leave_nothing_behind() {
    for (command, status) in [("deflate_fail 1", -1), ("deflate_overflow 1", OVERFLOW)] {
        let (double, device) = opened(command);
        let mut channel = deflater(&device, 1);
        submit(&mut channel, &text(1, 5000), 1);
        assert_eq!(settle(&mut channel).remove(&1), Some(Deflated::Failed(status)), "{command}");
        submit(&mut channel, &text(2, 5000), 2);
        assert!(matches!(settle(&mut channel).remove(&2), Some(Deflated::Answered(_))));
        drop((channel, device));
        ended_well(&double, 0);
    }
}

#[test]
fn wrong_answers_come_out_as_the_device_gave_them() {
    for command in ["deflate_wrong 1", "deflate_short 1"] {
        let (double, device) = opened(command);
        let mut channel = deflater(&device, 1);
        let piece = text(3, 30_000);
        submit(&mut channel, &piece, 1);
        submit(&mut channel, &piece, 2);
        let outcomes = settle(&mut channel);
        assert!(outcomes[&1] != outcomes[&2], "{command}: whoever asked is to find it");
        drop((channel, device));
        ended_well(&double, 0);
    }
}

#[test]
fn a_full_ring_refuses_and_takes_again_when_it_has_room() {
    let (double, device) = opened("ring 8\nservice_us 100000000");
    let mut channel = deflater(&device, 1);
    let piece = text(1, 1000);
    for tag in 0..8 {
        submit(&mut channel, &piece, tag);
    }
    assert_eq!(channel.submit(&piece, 8, Instant::now() + SOON), Err(Refused::Full));
    assert_eq!((channel.depth(), channel.times_full()), (8, 1));
    double.command("ring 64\nservice_us 100000000");
    for tag in 8..16 {
        submit(&mut channel, &piece, tag);
    }
    assert_eq!(channel.submit(&piece, 16, Instant::now() + SOON), Err(Refused::Full), "its own bound");
    drop(channel);
    drop(device);
    // The double was still at work when its library was stopped.
    ended_well(&double, 16);
}

#[test]
fn what_is_never_answered_is_kept_until_the_library_has_stopped() {
    let (double, device) = opened("deflate_silent 3");
    let mut channel = deflater(&device, 1);
    for tag in 0..4 {
        channel.submit(&text(tag as usize, 2000), tag, Instant::now() + Duration::from_millis(5)).unwrap();
    }
    let outcomes = settle(&mut channel);
    assert_eq!(outcomes.values().filter(|outcome| **outcome == Deflated::Late).count(), 3);
    drop(channel);
    assert_eq!(double.pinned(), Some(4), "three pieces, and the session they are in");
    drop(device);
    ended_well(&double, 3);
}

#[test]
fn an_answer_after_its_deadline_goes_nowhere_and_its_memory_serves_again() {
    let (double, device) = opened("deflate_late 1\nlate_ms 800");
    let mut channel = deflater(&device, 1);
    channel.submit(&text(1, 2000), 1, Instant::now() + Duration::from_millis(10)).unwrap();
    assert_eq!(settle(&mut channel).remove(&1), Some(Deflated::Late));
    std::thread::sleep(Duration::from_millis(800));
    channel.poll(Instant::now(), |_, _| panic!("nobody waits for it"));
    for tag in 2..40 {
        submit(&mut channel, &text(tag as usize, 2000), tag);
        assert_eq!(settle(&mut channel).len(), 1);
    }
    drop((channel, device));
    ended_well(&double, 0);
}

#[test]
fn lost_blocks_are_replaced_up_to_a_bound() {
    let (double, device) = opened("ring 1000\ndeflate_silent 1000");
    let mut channel = deflater(&device, 1);
    let (piece, mut taken) = (text(1, 100), 0);
    for _ in 0..8 {
        while channel.submit(&piece, 0, Instant::now()).is_ok() {
            taken += 1;
        }
        channel.poll(Instant::now(), |_, _| {});
    }
    assert_eq!((taken, channel.room()), (32, 0));
    drop((channel, device));
    ended_well(&double, 32);
}

#[test]
fn what_comes_late_makes_room_again_though_nobody_polls() {
    // A ring, and a channel's blocks, full of pieces that were given up.
    for (commands, most) in
        [("ring 8\nlate_ms 300\ndeflate_late 8", 8), ("ring 1000\nlate_ms 300\ndeflate_late 32", 32)]
    {
        let (double, device) = opened(commands);
        let mut channel = deflater(&device, 1);
        let (piece, mut taken) = (text(1, 100), 0);
        while taken < most {
            while channel.submit(&piece, 0, Instant::now()).is_ok() {
                taken += 1;
            }
            channel.poll(Instant::now(), |_, _| {});
        }
        assert_eq!((taken, channel.depth()), (most, 0), "{commands}");
        assert_eq!(channel.submit(&piece, 1, Instant::now() + SOON), Err(Refused::Full), "{commands}");
        std::thread::sleep(Duration::from_millis(500));
        submit(&mut channel, &piece, 1);
        assert_eq!(settle(&mut channel).len(), 1, "{commands}");
        drop((channel, device));
        ended_well(&double, 0);
    }
}

#[test]
fn a_reset_is_noticed_lived_through_and_ended() {
    let (double, device) = opened("service_us 7000000");
    let mut channel = deflater(&device, 1);
    submit(&mut channel, &text(1, 9000), 1);
    let wait = |channel: &mut Deflater, outcomes: &mut Vec<Deflated>, until: &dyn Fn(&Deflater) -> bool| {
        let end = Instant::now() + SOON;
        while !until(channel) && Instant::now() < end {
            channel.poll(Instant::now(), |_, outcome| outcomes.push(outcome));
        }
        assert!(until(channel));
    };
    let mut outcomes = Vec::new();
    double.command("restart 1");
    wait(&mut channel, &mut outcomes, &|channel| !channel.is_up());
    assert_eq!(channel.submit(&text(1, 9000), 2, Instant::now() + SOON), Err(Refused::Down));
    double.command("restart 2");
    wait(&mut channel, &mut outcomes, &Deflater::is_up);
    wait(&mut channel, &mut outcomes, &|channel| channel.depth() == 0);
    assert_eq!(outcomes, [Deflated::Failed(-1)], "what was in the ring is answered with an error");
    submit(&mut channel, &text(1, 9000), 3);
    assert!(matches!(settle(&mut channel).remove(&3), Some(Deflated::Answered(_))));
    drop((channel, device));
    ended_well(&double, 0);
}

#[test]
fn a_lost_device_takes_nothing_and_ends() {
    let (double, device) = opened("service_us 400000000");
    let mut channel = deflater(&device, 1);
    channel.submit(&text(1, 9000), 1, Instant::now() + Duration::from_millis(200)).unwrap();
    double.command("dead 1");
    assert_eq!(settle(&mut channel).remove(&1), Some(Deflated::Late));
    assert_eq!(channel.submit(&text(1, 9000), 2, Instant::now() + SOON), Err(Refused::Down));
    drop((channel, device));
    ended_well(&double, 1);
}

#[test]
fn workers_that_share_an_instance_get_their_own_answers() {
    let (double, device) = opened("service_us 100");
    let worker = |seed: usize| {
        let device = device.clone();
        move || {
            let mut channel = deflater(&device, 3);
            for round in 0..10 {
                let pieces: Vec<Vec<u8>> = (0..6).map(|at| text(seed * 100 + round * 10 + at, 3000 + at)).collect();
                for (tag, piece) in pieces.iter().enumerate() {
                    while channel.submit(piece, tag as Tag, Instant::now() + SOON).is_err() {
                        channel.poll(Instant::now(), |_, _| {});
                    }
                }
                let mut outcomes = settle(&mut channel);
                for (tag, piece) in pieces.iter().enumerate() {
                    let Some(Deflated::Answered(blocks)) = outcomes.remove(&(tag as Tag)) else { panic!("{tag}") };
                    assert!(inflated(&blocks) == *piece);
                }
            }
        }
    };
    let threads: Vec<_> = (1..4).map(|seed| std::thread::spawn(worker(seed))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(device);
    ended_well(&double, 0);
}

#[test]
fn a_device_for_compression_alone_opens_for_it_and_for_nothing_else() {
    let (double, device) = opened("instances 0\ncompression 2");
    assert_eq!((device.instances().len(), device.deflaters().len(), device.compression_instances()), (0, 2, 2));
    drop(device);
    ended_well(&double, 0);
    let options = Options { directory: Some(double.path().to_owned()), ..Options::default() };
    assert_eq!(Device::open(&options).err(), Some(Unavailable::NoInstance(0)));
}

#[test]
fn what_keeps_compression_from_the_device_keeps_nothing_else_from_it() {
    for double in [
        Double::new("compression 0"),
        Double::new("deflate_layout 1"),
        Double::new("").without("cpaDcCompressData2"),
        Double::new("").without("icp_sal_DcPollInstance"),
    ] {
        let device = open(&double).expect("it is there for handshakes");
        assert!(device.deflater(1, None).is_none() && !device.instances().is_empty());
        drop(device);
        ended_well(&double, 0);
    }
}
