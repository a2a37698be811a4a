//! Signing keys in the form a device computes with.

use crate::{KeyKind, Secret, SigningKey};
use penstock_qat::RsaNumbers;
use std::sync::OnceLock;

/// A key in a device's form.
pub(crate) enum DeviceKey {
    Rsa(RsaNumbers),
    /// The private scalar of an elliptic curve, big-endian.
    Scalar(Secret),
}

/// What is kept beside a [`SigningKey`] for devices: a form of the key.
#[derive(Default)]
struct Apart(OnceLock<Option<DeviceKey>>);

impl DeviceKey {
    /// The key, if a device can use it. The first time it is parsed, which takes microseconds.
    pub fn of(key: &SigningKey) -> Option<&DeviceKey> {
        key.form::<Apart>().0.get_or_init(|| take_apart(key)).as_ref()
    }
}

fn take_apart(key: &SigningKey) -> Option<DeviceKey> {
    let KeyKind::Rsa { bits } = key.kind() else { return key.scalar().map(DeviceKey::Scalar) };
    key.with_rsa_numbers(|[_n, _e, _d, p, q, dp, dq, qinv]| {
        RsaNumbers::new(bits as usize / 8, [p, q, dp, dq, qinv]).map(DeviceKey::Rsa)
    })
}
