//! What a crypto library does only once, done before anybody waits for it.

use penstock_engine::{Curve, Op, compute};

/// Takes the first steps of the crypto library on this thread: its random generator is seeded per thread, and the first use
/// of each algorithm picks its implementation. To be called by each worker before it listens; the first handshake of a
/// cold thread took 35 to 48 ms, which is a queue by the time it is done.
pub fn warm_up() {
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        if let Ok(penstock_engine::Answer::Pair { public, .. }) = compute(&Op::KeyGen { curve }) {
            // The result is of no use to anybody; that it was computed is.
            let _ = compute(&Op::Agree { curve, peer: public });
        }
    }
    if let Ok(penstock_engine::Answer::KemPair { public, .. }) = compute(&Op::KemKeyGen) {
        let _ = compute(&Op::KemEncapsulate { peer: public });
    }
}
