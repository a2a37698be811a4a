//! The library's interface: layouts and numbers, as its public headers have them (qatlib 24.02 and 26.08, x86-64).
//!
//! Sizes and offsets were printed by a C program over those headers; the assertions at the end hold them.

use std::ffi::{c_char, c_void};

/// What a call returns.
pub type Status = i32;
/// The operation is done, or was taken on.
pub const SUCCESS: Status = 0;
/// The operation cannot be done; the library gives no reason.
pub const FAIL: Status = -1;
/// The ring is full: try again later.
pub const RETRY: Status = -2;
/// The device is being reset.
pub const RESTARTING: Status = -7;

/// The handle of an instance in the library.
pub type Handle = *mut c_void;
/// `CpaBoolean`.
pub type Bool = u32;

/// `CpaFlatBuffer`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FlatBuffer {
    /// Length of the buffer in bytes.
    pub len: u32,
    /// Pointer to the buffer, in pinned memory.
    pub data: *mut u8,
}

impl FlatBuffer {
    /// No buffer.
    pub const NONE: FlatBuffer = FlatBuffer { len: 0, data: std::ptr::null_mut() };
}

/// `CpaCyRsaPrivateKey` with two primes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RsaPrivateKey {
    /// [`RSA_TWO_PRIME`].
    pub version: u32,
    /// [`RSA_CRT`].
    pub form: u32,
    /// Modulus and private exponent: not used in this form.
    pub plain: [FlatBuffer; 2],
    /// p, q, d mod (p-1), d mod (q-1), 1/q mod p.
    pub crt: [FlatBuffer; 5],
}
/// `CPA_CY_RSA_VERSION_TWO_PRIME`.
pub const RSA_TWO_PRIME: u32 = 1;
/// `CPA_CY_RSA_PRIVATE_KEY_REP_TYPE_2`.
pub const RSA_CRT: u32 = 2;

/// `CpaCyRsaDecryptOpData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RsaDecrypt {
    /// The key to use.
    pub key: *const RsaPrivateKey,
    /// The input, as long as the modulus.
    pub input: FlatBuffer,
}

/// `CpaCyEcdsaSignRSOpData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct EcdsaSign {
    pub base_x: FlatBuffer,
    pub base_y: FlatBuffer,
    pub order: FlatBuffer,
    pub prime: FlatBuffer,
    pub a: FlatBuffer,
    pub b: FlatBuffer,
    pub nonce: FlatBuffer,
    pub digest: FlatBuffer,
    pub private: FlatBuffer,
    pub field: u32,
}
/// `CPA_CY_EC_FIELD_TYPE_PRIME`, and `CPA_CY_EC_CURVE_TYPE_WEIERSTRASS_PRIME`.
pub const PRIME: u32 = 1;

/// `CpaCyEcPointMultiplyOpData`: the deprecated call's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct PointMultiply {
    pub scalar: FlatBuffer,
    pub x: FlatBuffer,
    pub y: FlatBuffer,
    pub a: FlatBuffer,
    pub b: FlatBuffer,
    pub prime: FlatBuffer,
    pub cofactor: FlatBuffer,
    pub field: u32,
}

/// `CpaCyEcCurve`, of which the only kind is Weierstrass'.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct WeierstrassCurve {
    pub kind: u32,
    pub parameters: WeierstrassParameters,
}

/// `CpaCyEcCurveParametersWeierstrass`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct WeierstrassParameters {
    pub field: u32,
    pub prime: FlatBuffer,
    pub a: FlatBuffer,
    pub b: FlatBuffer,
    pub cofactor: FlatBuffer,
}

/// `CpaCyEcGenericPointMultiplyOpData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GenericPointMultiply {
    pub scalar: FlatBuffer,
    pub x: FlatBuffer,
    pub y: FlatBuffer,
    pub curve: *const WeierstrassCurve,
    pub generator: Bool,
}

/// `CpaCyEcMontEdwdsPointMultiplyOpData`. Numbers are big-endian here too, unlike RFC 7748's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MontgomeryMultiply {
    pub curve: u32,
    pub generator: Bool,
    pub scalar: FlatBuffer,
    pub x: FlatBuffer,
    pub y: FlatBuffer,
}
/// `CPA_CY_EC_MONTEDWDS_CURVE25519_TYPE`.
pub const CURVE25519: u32 = 1;

/// `CpaInstanceInfo2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct InstanceInfo {
    pub service: u32,
    pub vendor: [u8; 64],
    pub part: [u8; 64],
    pub version: [u8; 64],
    pub name: [u8; 64],
    pub id: [u8; 128],
    /// Package, accelerator, engine, bus address.
    pub physical: [u16; 4],
    pub key_protection: u32,
    pub cores: [u32; 128],
    pub node: u32,
    /// [`UP`] or 0.
    pub state: u32,
    pub contiguous_memory: Bool,
    pub polled: Bool,
    pub offloaded: Bool,
}
/// `CPA_OPER_STATE_UP`.
pub const UP: u32 = 1;
/// Services of `CpaAccelerationServiceType` that an instance of crypto may have: all, asymmetric, symmetric.
pub const SERVICES: [u32; 3] = [0, 5, 6];

/// `CpaCyCapabilitiesInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Capabilities {
    pub symmetric: [Bool; 2],
    pub dh: Bool,
    pub dsa: Bool,
    pub rsa: Bool,
    pub ec: Bool,
    pub ecdh: Bool,
    pub ecdsa: Bool,
    /// Key derivation, large numbers, primes, random numbers (3), key protection, HKDF, chains.
    pub others: [Bool; 9],
    pub montgomery: Bool,
    pub sm2: Bool,
}

/// `CpaInstanceEvent`.
pub mod event {
    /// A reset of the device begins.
    pub const RESTARTING: u32 = 0;
    /// The reset is over.
    pub const RESTARTED: u32 = 1;
    /// The device is lost.
    pub const FATAL: u32 = 2;
}

/// `CpaCyGenFlatBufCbFunc`: tag, status, operation, output.
pub type FlatBufferCallback = unsafe extern "C" fn(*mut c_void, Status, *mut c_void, *mut FlatBuffer);
/// `CpaCyEcPointMultiplyCbFunc` and `CpaCyEcdsaSignRSCbFunc`: tag, status, operation, whether the result is valid, and both
/// outputs.
pub type PairCallback = unsafe extern "C" fn(*mut c_void, Status, *mut c_void, Bool, *mut FlatBuffer, *mut FlatBuffer);
/// `CpaCyInstanceNotificationCbFunc`: instance, tag, event.
pub type EventCallback = unsafe extern "C" fn(Handle, *mut c_void, u32);
/// `CpaVirtualToPhysical`.
pub type Translation = unsafe extern "C" fn(*mut c_void) -> u64;

/// `cpaCyRsaDecrypt`.
pub type RsaDecryptCall =
    unsafe extern "C" fn(Handle, FlatBufferCallback, *mut c_void, *const RsaDecrypt, *mut FlatBuffer) -> Status;
/// The calls that take an operation `T` and give two numbers.
pub type PairCall<T> = unsafe extern "C" fn(
    Handle,
    PairCallback,
    *mut c_void,
    *const T,
    *mut Bool,
    *mut FlatBuffer,
    *mut FlatBuffer,
) -> Status;
/// `icp_sal_userStart`.
pub type StartCall = unsafe extern "C" fn(*const c_char) -> Status;

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<FlatBuffer>() == 16);
    assert!(size_of::<RsaPrivateKey>() == 120 && offset_of!(RsaPrivateKey, crt) == 40);
    assert!(size_of::<RsaDecrypt>() == 24);
    assert!(size_of::<EcdsaSign>() == 152 && offset_of!(EcdsaSign, field) == 144);
    assert!(size_of::<PointMultiply>() == 120 && offset_of!(PointMultiply, field) == 112);
    assert!(size_of::<WeierstrassCurve>() == 80 && offset_of!(WeierstrassCurve, parameters) == 8);
    assert!(size_of::<WeierstrassParameters>() == 72 && offset_of!(WeierstrassParameters, cofactor) == 56);
    assert!(size_of::<GenericPointMultiply>() == 64 && offset_of!(GenericPointMultiply, generator) == 56);
    assert!(size_of::<MontgomeryMultiply>() == 56);
    assert!(size_of::<InstanceInfo>() == 932 && offset_of!(InstanceInfo, part) == 68);
    assert!(offset_of!(InstanceInfo, physical) == 388 && offset_of!(InstanceInfo, cores) == 400);
    assert!(offset_of!(InstanceInfo, node) == 912 && offset_of!(InstanceInfo, polled) == 924);
    assert!(size_of::<Capabilities>() == 76 && offset_of!(Capabilities, montgomery) == 68);
};
