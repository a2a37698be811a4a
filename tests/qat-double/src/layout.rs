//! The library's structures, written here once more from its headers: were they the program's own, a mistake in them would
//! agree with itself.

use std::ffi::c_void;

pub type Status = i32;
pub const SUCCESS: Status = 0;
pub const FAIL: Status = -1;
pub const RETRY: Status = -2;
pub const RESOURCE: Status = -3;
pub const INVALID: Status = -4;
pub const RESTARTING: Status = -7;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Flat {
    pub len: u32,
    pub data: *mut u8,
}

impl Flat {
    /// Its bytes.
    ///
    /// # Safety
    /// It describes memory that is there.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the caller's word.
        unsafe { std::slice::from_raw_parts(self.data, self.len as usize) }
    }
}

#[repr(C)]
pub struct RsaKey {
    pub version: u32,
    pub representation: u32,
    pub first: [Flat; 2],
    pub second: [Flat; 5],
}

#[repr(C)]
pub struct RsaOp {
    pub key: *const RsaKey,
    pub input: Flat,
}

#[repr(C)]
pub struct EcdsaOp {
    pub xg: Flat,
    pub yg: Flat,
    pub n: Flat,
    pub q: Flat,
    pub a: Flat,
    pub b: Flat,
    pub k: Flat,
    pub m: Flat,
    pub d: Flat,
    pub field_type: u32,
}

#[repr(C)]
pub struct PointOp {
    pub k: Flat,
    pub xg: Flat,
    pub yg: Flat,
    pub a: Flat,
    pub b: Flat,
    pub q: Flat,
    pub h: Flat,
    pub field_type: u32,
}

#[repr(C)]
pub struct Curve {
    pub kind: u32,
    /// The parameters are a structure of their own, which begins at a multiple of eight.
    pub padding: u32,
    pub field_type: u32,
    pub p: Flat,
    pub a: Flat,
    pub b: Flat,
    pub h: Flat,
}

#[repr(C)]
pub struct GenericOp {
    pub k: Flat,
    pub x: Flat,
    pub y: Flat,
    pub curve: *const Curve,
    pub generator: u32,
}

#[repr(C)]
pub struct MontgomeryOp {
    pub curve: u32,
    pub generator: u32,
    pub k: Flat,
    pub x: Flat,
    pub y: Flat,
}

/// Offsets within `CpaInstanceInfo2`, whose size is 932.
pub mod info {
    pub const SIZE: usize = 932;
    pub const SERVICE: usize = 0;
    pub const VENDOR: usize = 4;
    pub const PART: usize = 68;
    pub const VERSION: usize = 132;
    pub const NAME: usize = 196;
    pub const ID: usize = 260;
    pub const PACKAGE: usize = 388;
    pub const NODE: usize = 912;
    pub const STATE: usize = 916;
    pub const POLLED: usize = 924;
}

/// Places within `CpaCyCapabilitiesInfo`, an array of 19 booleans.
pub mod capability {
    pub const COUNT: usize = 19;
    pub const RSA: usize = 4;
    pub const EC: usize = 5;
    pub const ECDH: usize = 6;
    pub const ECDSA: usize = 7;
    pub const MONTGOMERY: usize = 17;
}

/// `CpaDcSessionSetupData`, an array of 13 numbers.
pub mod setup {
    pub const COUNT: usize = 13;
    pub const KIND: usize = 1;
    pub const HUFFMAN: usize = 2;
    pub const DIRECTION: usize = 4;
    pub const STATE: usize = 5;
}

/// Places within `CpaDcInstanceCapabilities`, an array of 38 numbers.
pub mod deflate_capability {
    pub const COUNT: usize = 38;
    pub const STATELESS: usize = 14;
    pub const DYNAMIC: usize = 23;
    pub const BUFFERS: usize = 24;
    pub const VERIFY: usize = 32;
    pub const RECOVER: usize = 34;
}

#[repr(C)]
pub struct List {
    pub count: u32,
    pub buffers: *mut Flat,
    pub user: *mut c_void,
    pub private: *mut c_void,
}

#[repr(C)]
pub struct DeflateOp {
    pub flush: u32,
    pub verify: u32,
    pub recover: u32,
    pub checks: [u32; 3],
    pub skip: [u32; 8],
    pub crc: *mut c_void,
}

#[repr(C)]
pub struct DeflateResults {
    pub status: i32,
    pub produced: u32,
    pub consumed: u32,
    pub checksum: u32,
    pub ended: u32,
    pub uncompressed: u32,
}
pub const OVERFLOW: i32 = -11;

pub type DeflateCallback = unsafe extern "C" fn(*mut c_void, Status);
pub type OneCallback = unsafe extern "C" fn(*mut c_void, Status, *mut c_void, *mut Flat);
pub type TwoCallback = unsafe extern "C" fn(*mut c_void, Status, *mut c_void, u32, *mut Flat, *mut Flat);
pub type EventCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, u32);
