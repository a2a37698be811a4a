//! Bodies of which some pieces were compressed elsewhere, by a device for one.

use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use penstock_compression::{Encoder, EncoderCall, Verifier};
use penstock_config::model::CompressionAlgorithm;
use std::io::Read as _;
use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

/// An empty block, the last of its stream.
const LAST_BLOCK: &[u8] = &[0x03, 0x00];

fn decoded(algorithm: CompressionAlgorithm, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let read = match algorithm {
        CompressionAlgorithm::Gzip => GzDecoder::new(bytes).read_to_end(&mut out),
        CompressionAlgorithm::Deflate => ZlibDecoder::new(bytes).read_to_end(&mut out),
        _ => DeflateDecoder::new(bytes).read_to_end(&mut out),
    };
    read.expect("a whole message, with the right checksum");
    out
}

fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|n: u32| format!("<p>{}</p>", n.wrapping_mul(2_654_435_761) >> 22).into_bytes()).take(len).collect()
}

fn deflated(input: &[u8], flush: DeflateFlush) -> Vec<u8> {
    let (mut encoder, mut out) = (Deflate::new(1, false, 15), vec![0; 2 * input.len() + 64]);
    encoder.compress(input, &mut out, flush).unwrap();
    out.truncate(encoder.total_out() as usize);
    out
}

/// One block that is not the last, and ends wherever it ends.
fn unaligned(input: &[u8]) -> Vec<u8> {
    let mut blocks = deflated(input, DeflateFlush::Finish);
    blocks[0] &= !1;
    blocks
}

#[test]
fn pieces_end_where_another_may_begin() {
    let mut verifier = Verifier::default();
    let (mut joined, mut whole, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for len in 1..400 {
        let input = text(len);
        for mut blocks in [deflated(&input, DeflateFlush::FullFlush), unaligned(&input)] {
            let before = blocks.len();
            assert!(verifier.verify(&mut blocks, &input), "{len}");
            lengths.push(blocks.len() - before);
            joined.extend_from_slice(&blocks);
            whole.extend_from_slice(&input);
        }
    }
    assert!([0, 4, 5].iter().all(|joint| lengths.contains(joint)), "each joint is needed at times");
    joined.extend_from_slice(LAST_BLOCK);
    let mut out = vec![0; whole.len()];
    let mut inflate = Inflate::new(false, 15);
    assert_eq!(inflate.decompress(&joined, &mut out, InflateFlush::Finish), Ok(Status::StreamEnd));
    assert!(out == whole);
}

#[test]
fn whatever_is_wrong_with_a_piece_is_found() {
    let (mut verifier, input) = (Verifier::default(), text(20_000));
    let right = deflated(&input, DeflateFlush::FullFlush);
    for place in 0..right.len() {
        let mut wrong = right.clone();
        wrong[place] ^= 1 << (place % 8);
        let found = verifier.verify(&mut wrong, &input);
        // A bit that changes nothing does no harm: there is none, but for what pads the last bits before the flush.
        assert!(!found || wrong.len() == right.len() && place + 5 >= right.len(), "{place}");
    }
    // Without its flush it is whole nevertheless.
    for len in 0..right.len() - 5 {
        assert!(!verifier.verify(&mut right[..len].to_vec(), &input), "{len} bytes of it");
    }
    let mut longer = right.clone();
    longer.push(0x55);
    let mut last = deflated(&input, DeflateFlush::Finish);
    let mut two = [right.clone(), deflated(b"more", DeflateFlush::FullFlush)].concat();
    for wrong in [&mut longer, &mut last, &mut two, &mut vec![0; 300], &mut Vec::new()] {
        assert!(!verifier.verify(wrong, &input));
    }
    assert!(verifier.verify(&mut right.clone(), &input), "and it goes on after that");
}

/// Pieces of a message change hands: some are encoded here, some elsewhere, some while the message is paused.
#[test]
fn pieces_that_were_compressed_elsewhere_are_joined() {
    for algorithm in [CompressionAlgorithm::Gzip, CompressionAlgorithm::Deflate, CompressionAlgorithm::RawDeflate] {
        assert!(Encoder::may_join(algorithm));
        for pattern in 0..81_u32 {
            let (input, mut out, mut buffer) = (text(40_000), Vec::new(), vec![0; 1 << 16]);
            let mut encoder = Encoder::new(algorithm, 1 + pattern % 9);
            for (index, piece) in input.chunks(10_000).enumerate() {
                let header = match pattern / 3_u32.pow(index as u32) % 3 {
                    0 => {
                        let progress = encoder.run(piece, &mut buffer, EncoderCall::Flush).unwrap();
                        assert!(progress.complete);
                        out.extend_from_slice(&buffer[..progress.produced]);
                        continue;
                    }
                    1 => encoder.join(piece),
                    _ => {
                        let mut paused = encoder.pause();
                        let header = paused.join(piece);
                        encoder.resume(paused);
                        header
                    }
                };
                out.extend_from_slice(header);
                out.extend_from_slice(&deflated(piece, DeflateFlush::FullFlush));
            }
            let progress = encoder.run(b"", &mut buffer, EncoderCall::Finish).unwrap();
            assert!(progress.complete);
            out.extend_from_slice(&buffer[..progress.produced]);
            assert!(decoded(algorithm, &out) == input, "{algorithm:?} {pattern}");
        }
    }
}
