//! Compression: the library's functions for it, and what an instance makes of a piece, by zlib-rs.

// As in `exports`.
#![allow(clippy::missing_safety_doc)]

use crate::{
    commands::Kind,
    device::{Callback, Device, Request, device, place, violation},
    exports::describe,
    layout::{
        DeflateCallback, DeflateOp, DeflateResults, EventCallback, FAIL, Flat, INVALID, List, OVERFLOW, RESOURCE,
        RETRY, SUCCESS, Status, deflate_capability, setup,
    },
};
use std::ffi::c_void;
use zlib_rs::{Deflate, DeflateFlush};

/// Bytes that it wants for a list of buffers, and for a session: any numbers would do that are not those of others.
const LIST_BYTES: u32 = 208;
const SESSION_BYTES: u32 = 1344;

fn count(device: &Device) -> usize {
    device.instances.len() - device.crypto
}

/// Whether a handle is that of an instance for compression.
fn is_one(device: &Device, handle: *mut c_void) -> bool {
    (device.crypto..device.instances.len()).contains(&place(handle))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcGetNumInstances(out: *mut u16) -> Status {
    // SAFETY: the caller's pointer.
    unsafe { *out = count(&device()) as u16 };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcGetInstances(room: u16, handles: *mut *mut c_void) -> Status {
    let device = device();
    if usize::from(room) != count(&device) {
        return RESOURCE;
    }
    for at in 0..usize::from(room) {
        // SAFETY: the caller has room for as many as it says.
        unsafe { *handles.add(at) = (device.crypto + at + 1) as *mut c_void };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcInstanceGetInfo2(handle: *mut c_void, out: *mut c_void) -> Status {
    // SAFETY: the caller's pointer.
    unsafe { describe(handle, true, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcQueryCapabilities(handle: *mut c_void, out: *mut u32) -> Status {
    let device = device();
    if !is_one(&device, handle) {
        return INVALID;
    }
    let mut has = [0; deflate_capability::COUNT + 1];
    has[deflate_capability::STATELESS] = 1;
    has[deflate_capability::DYNAMIC] = 1;
    has[deflate_capability::BUFFERS] = u32::from(device.commands.deflate_buffers > 0);
    has[deflate_capability::VERIFY] = 1;
    has[deflate_capability::RECOVER] = 1;
    // A later structure has a field more.
    let fields = deflate_capability::COUNT + usize::from(device.commands.deflate_layout > 0);
    // SAFETY: the caller has room for the structure, and for a larger one if it expects that.
    unsafe { std::ptr::copy_nonoverlapping(has.as_ptr(), out, fields) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cpaDcSetAddressTranslation(
    handle: *mut c_void,
    translation: Option<unsafe extern "C" fn(*mut c_void) -> u64>,
) -> Status {
    match device().instances.get_mut(place(handle)) {
        Some(instance) if translation.is_some() => instance.translated = true,
        _ => return INVALID,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcGetNumIntermediateBuffers(_: *mut c_void, out: *mut u16) -> Status {
    // SAFETY: the caller's pointer.
    unsafe { *out = device().commands.deflate_buffers as u16 };
    SUCCESS
}

/// The places of a list's memory that must be pinned; says so where they are not, or where something is missing.
unsafe fn checked(device: &Device, list: *const List) -> Option<Flat> {
    // SAFETY: the caller's list.
    let list = unsafe { list.as_ref() }?;
    if list.count != 1 || list.buffers.is_null() {
        violation("a list of buffers without its buffer");
        return None;
    }
    if list.private.is_null() || !device.is_pinned(list.private as usize, LIST_BYTES as usize) {
        violation("a list of buffers without room for its description");
        return None;
    }
    // SAFETY: the one buffer it has.
    let flat = unsafe { *list.buffers };
    if !device.is_pinned(flat.data as usize, flat.len as usize) {
        violation("a buffer that is not in pinned memory");
        return None;
    }
    Some(flat)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcStartInstance(handle: *mut c_void, buffers: u16, lists: *mut *mut List) -> Status {
    let mut device = device();
    if u64::from(buffers) != device.commands.deflate_buffers || !is_one(&device, handle) {
        return INVALID;
    }
    for at in 0..usize::from(buffers) {
        // SAFETY: as many lists as the caller says.
        if unsafe { checked(&device, *lists.add(at)) }.is_none() {
            return INVALID;
        }
    }
    match device.instances.get_mut(place(handle)) {
        Some(instance) if instance.translated => instance.started = true,
        _ => return INVALID,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cpaDcStopInstance(handle: *mut c_void) -> Status {
    match device().instances.get_mut(place(handle)) {
        Some(instance) => instance.started = false,
        None => return INVALID,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cpaDcInstanceSetNotificationCb(handle: *mut c_void, callback: EventCallback, tag: *mut c_void) -> Status {
    device().notify(handle, callback, tag)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcBufferListGetMetaSize(_: *mut c_void, buffers: u32, out: *mut u32) -> Status {
    // SAFETY: the caller's pointer.
    unsafe { *out = LIST_BYTES * buffers };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcDeflateCompressBound(_: *mut c_void, _huffman: u32, input: u32, out: *mut u32) -> Status {
    // SAFETY: the caller's pointer.
    unsafe { *out = input + input / 8 + 64 };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcGetSessionSize(
    _: *mut c_void,
    _: *const u32,
    session: *mut u32,
    context: *mut u32,
) -> Status {
    // SAFETY: the caller's pointers.
    unsafe { (*session, *context) = (SESSION_BYTES, 0) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcInitSession(
    handle: *mut c_void,
    session: *mut c_void,
    settings: *const u32,
    context: *mut c_void,
    callback: Option<DeflateCallback>,
) -> Status {
    let mut device = device();
    // SAFETY: the structure the caller points to.
    let settings = unsafe { std::slice::from_raw_parts(settings, setup::COUNT) };
    let asked = [setup::KIND, setup::DIRECTION, setup::STATE].map(|place| settings[place]);
    let Some(callback) = callback.filter(|_| asked == [3, 0, 1] && context.is_null()) else { return INVALID };
    let started = device.instances.get(place(handle)).is_some_and(|instance| instance.started);
    if !started || !is_one(&device, handle) {
        violation("a session with an instance that has not been started");
        return INVALID;
    }
    if !device.is_pinned(session as usize, SESSION_BYTES as usize) {
        violation("a session that is not in pinned memory");
        return INVALID;
    }
    device.sessions.insert(session as usize, (place(handle), callback, settings[setup::HUFFMAN] == 2));
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cpaDcRemoveSession(_: *mut c_void, session: *mut c_void) -> Status {
    let mut device = device();
    if device.in_progress(session as usize) > 0 {
        return RETRY;
    }
    if device.sessions.remove(&(session as usize)).is_none() {
        violation("a session removed that was none");
        return INVALID;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaDcCompressData2(
    handle: *mut c_void,
    session: *mut c_void,
    source: *mut List,
    target: *mut List,
    operation: *mut DeflateOp,
    results: *mut DeflateResults,
    tag: *mut c_void,
) -> Status {
    let mut device = device();
    let Some((_, callback, _)) =
        device.sessions.get(&(session as usize)).copied().filter(|known| known.0 == place(handle))
    else {
        violation("a session used that is none of this instance's");
        return INVALID;
    };
    // SAFETY: the caller's operation and lists.
    let (op, from, to) = unsafe { (&*operation, checked(&device, source), checked(&device, target)) };
    let (Some(from), Some(to)) = (from, to) else { return INVALID };
    // Without state only these flushes are right; a device of today does not compress without verifying.
    if ![1, 3].contains(&op.flush) || op.verify != 1 || from.len == 0 || to.len < 1026 {
        return INVALID;
    }
    let kind = Kind::Deflate(from.len as usize);
    // SAFETY: the caller keeps its lists until it is called back.
    let outputs = unsafe { [(*target).buffers, (*source).buffers] };
    let mut request =
        Request::new(kind, Callback::Deflate(callback), tag, results.cast_const().cast(), outputs, &[], |_| None);
    request.session = session as usize;
    device.submit(handle, request)
}

#[unsafe(no_mangle)]
extern "C" fn icp_sal_DcPollInstance(handle: *mut c_void, _quota: u32) -> Status {
    let Some(done) = device().done(handle) else { return INVALID };
    // As for crypto.
    done.into_iter().for_each(Request::answer);
    device().polled(handle);
    SUCCESS
}

/// Compresses a piece, or does what it was told instead, and writes the results.
pub fn deflate(request: &Request) -> Status {
    // SAFETY: the caller keeps results, lists and buffers until it is called back.
    unsafe {
        let [target, source] = request.outputs.map(|flat| *(flat as *const Flat));
        let results = &mut *(request.operation as *mut DeflateResults);
        let input = source.bytes();
        let output = std::slice::from_raw_parts_mut(target.data, target.len as usize);
        if request.fails || request.overflows {
            results.status = if request.overflows { OVERFLOW } else { 0 };
            (results.produced, results.consumed) = (0, 0);
            return FAIL;
        }
        let mut encoder = Deflate::new(1, false, 15);
        let flush = if request.unaligned { DeflateFlush::Finish } else { DeflateFlush::FullFlush };
        if encoder.compress(input, output, flush).is_err() || encoder.total_in() < input.len() as u64 {
            results.status = OVERFLOW;
            return FAIL;
        }
        let produced = encoder.total_out() as usize;
        if request.unaligned {
            // Of a piece that is one block: no longer the last one, and without what would follow.
            output[0] &= !1;
        }
        output[produced / 2] ^= u8::from(request.wrong);
        results.status = 0;
        results.consumed = input.len() as u32;
        results.produced = (produced - usize::from(request.short)) as u32;
    }
    SUCCESS
}
