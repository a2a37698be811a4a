//! Does what a crypto library does only once, before any client waits for it.

use penstock_engine::{Curve, Op, compute};

/// Initialises the crypto library for this thread: its random generator is seeded per thread, and the first use of each
/// algorithm selects an implementation. To be called by each worker before it listens; the first handshake of a cold
/// thread took 35 to 48 ms, long enough for a queue to form.
pub fn warm_up() {
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        if let Ok(penstock_engine::Answer::Pair { public, .. }) = compute(&Op::KeyGen { curve }) {
            // Only the side effects of the computation matter.
            let _ = compute(&Op::Agree { curve, peer: public });
        }
    }
    if let Ok(penstock_engine::Answer::KemPair { public, .. }) = compute(&Op::KemKeyGen) {
        let _ = compute(&Op::KemEncapsulate { peer: public });
    }
}
