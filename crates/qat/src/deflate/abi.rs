//! The compression half of the library's interface, checked like the other: against the headers of qatlib 24.02 and 26.08,
//! x86-64, by a C program that printed sizes and offsets.

use crate::abi::{Bool, FlatBuffer, Handle, Status};
use std::ffi::c_void;

/// `CpaDcSessionSetupData`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct SessionSetup {
    pub level: u32,
    pub kind: u32,
    pub huffman: u32,
    pub select_best: u32,
    pub direction: u32,
    pub state: u32,
    /// Window, shortest match, and three settings of LZ4: zero, which is what a library without these fields has there.
    pub others: [u32; 5],
    pub checksum: u32,
    pub accumulate: Bool,
}

impl SessionSetup {
    /// Deflate without state, in one direction, at the device's fastest level. The checksums are ours.
    pub fn new(dynamic: bool) -> SessionSetup {
        const L1: u32 = 1;
        const DEFLATE: u32 = 3;
        const DYNAMIC: u32 = 2;
        const STATELESS: u32 = 1;
        let huffman = if dynamic { DYNAMIC } else { 0 };
        SessionSetup { level: L1, kind: DEFLATE, huffman, state: STATELESS, ..SessionSetup::default() }
    }
}

/// `CpaDcRqResults`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Results {
    /// 0, or why the request failed: -11 where the output has no room.
    pub status: i32,
    pub produced: u32,
    pub consumed: u32,
    pub checksum: u32,
    pub ended: Bool,
    pub uncompressed: Bool,
}

/// `CpaDcOpData`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct DeflateOperation {
    pub flush: u32,
    pub verify: Bool,
    pub recover: Bool,
    /// Checks of the way by CRC, which are off, and the size of a CRC.
    pub integrity: [u32; 3],
    /// What is skipped of input and output: nothing.
    pub skip: [[u32; 4]; 2],
    pub crc: *mut c_void,
}
/// `CPA_DC_FLUSH_FULL`: everything is handed out, and nothing that follows refers to it.
pub const FLUSH_FULL: u32 = 3;

/// `CpaBufferList`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct BufferList {
    pub count: u32,
    pub buffers: *mut FlatBuffer,
    pub user: *mut c_void,
    /// Room for the library's own description of the list, in pinned memory.
    pub private: *mut c_void,
}

/// `CpaDcInstanceCapabilities`: booleans, but for a few numbers that nothing here asks for.
pub type Capabilities = [u32; 38];
/// Places within [`Capabilities`].
#[allow(missing_docs)]
pub mod capability {
    pub const STATELESS_DEFLATE: usize = 14;
    pub const DYNAMIC_HUFFMAN: usize = 23;
    pub const INTERMEDIATE_BUFFERS: usize = 24;
    pub const VERIFY: usize = 32;
    pub const RECOVER: usize = 34;
}

/// The service of `CpaAccelerationServiceType` that an instance for compression has.
pub const SERVICES: [u32; 1] = [1];

/// `CpaDcCallbackFn`: tag, status.
pub type Callback = unsafe extern "C" fn(*mut c_void, Status);
/// `cpaDcStartInstance`.
pub type StartDeflateCall = unsafe extern "C" fn(Handle, u16, *mut *mut BufferList) -> Status;
/// `cpaDcInitSession`.
pub type InitSessionCall =
    unsafe extern "C" fn(Handle, *mut c_void, *mut SessionSetup, *mut BufferList, Callback) -> Status;
/// `cpaDcCompressData2`.
pub type CompressCall = unsafe extern "C" fn(
    Handle,
    *mut c_void,
    *mut BufferList,
    *mut BufferList,
    *mut DeflateOperation,
    *mut Results,
    *mut c_void,
) -> Status;

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<SessionSetup>() == 52 && offset_of!(SessionSetup, state) == 20);
    assert!(offset_of!(SessionSetup, checksum) == 44);
    assert!(size_of::<Results>() == 24 && offset_of!(Results, consumed) == 8);
    assert!(size_of::<DeflateOperation>() == 64 && offset_of!(DeflateOperation, recover) == 8);
    assert!(offset_of!(DeflateOperation, skip) == 24 && offset_of!(DeflateOperation, crc) == 56);
    assert!(size_of::<BufferList>() == 32 && offset_of!(BufferList, buffers) == 8);
    assert!(offset_of!(BufferList, private) == 24 && size_of::<Capabilities>() == 152);
};
