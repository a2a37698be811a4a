//! The functions that are looked for in libqat and libusdm, under their names.

// What each does and when it may be called is the library's manual's to say; pointers are as that says, or a test is wrong.
#![allow(clippy::missing_safety_doc)]

use crate::{
    arithmetic,
    commands::Kind,
    device::{Callback, Request, device, log, place, violation},
    layout::{
        Curve, EcdsaOp, EventCallback, FAIL, Flat, GenericOp, INVALID, MontgomeryOp, OneCallback, PointOp, RESOURCE,
        RsaOp, SUCCESS, Status, TwoCallback, capability, info,
    },
};
use std::ffi::{c_char, c_int, c_void};

#[unsafe(no_mangle)]
extern "C" fn icp_sal_userIsQatAvailable() -> u32 {
    u32::from(device().commands.available > 0)
}

#[unsafe(no_mangle)]
extern "C" fn icp_sal_userStart(_: *const c_char) -> Status {
    eprintln!("the double talks as much as libqat does");
    let mut device = device();
    if device.commands.starts == 0 {
        eprintln!("Failed to open /dev/vfio for locking: errno=2");
        return FAIL;
    }
    if device.started {
        violation("the library started twice");
    }
    log("start");
    device.started = true;
    let has = device.claim();
    let [crypto, all] = [device.commands.instances, device.commands.instances + device.commands.compression];
    device.crypto = if has { crypto as usize } else { 0 };
    device.instances.resize_with(if has { all as usize } else { 0 }, Default::default);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn icp_sal_userStop() -> Status {
    device().stop();
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn icp_sal_poll_device_events() -> Status {
    let events = device().events();
    for (event, callback, instance, tag) in events {
        log(&format!("event {event}"));
        // SAFETY: what the caller asked to be called with.
        unsafe { callback(instance as *mut c_void, tag as *mut c_void, event) };
    }
    device().events_polled();
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyGetNumInstances(count: *mut u16) -> Status {
    // SAFETY: the caller's pointer.
    unsafe { *count = device().crypto as u16 };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyGetInstances(count: u16, handles: *mut *mut c_void) -> Status {
    if usize::from(count) != device().crypto {
        return RESOURCE;
    }
    for at in 0..usize::from(count) {
        // SAFETY: the caller has room for as many as it says.
        unsafe { *handles.add(at) = (at + 1) as *mut c_void };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyInstanceGetInfo2(handle: *mut c_void, out: *mut c_void) -> Status {
    // SAFETY: the caller's pointer.
    unsafe { describe(handle, false, out) }
}

/// Describes an instance, for crypto or for compression.
pub unsafe fn describe(handle: *mut c_void, compresses: bool, out: *mut c_void) -> Status {
    let (device, place) = (device(), place(handle));
    if place >= device.instances.len() || (place >= device.crypto) != compresses {
        return INVALID;
    }
    let mut bytes = [0; info::SIZE + 8];
    let mut text = |at: usize, text: &str| bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
    text(info::VENDOR, "penstock");
    text(info::PART, "double");
    text(info::VERSION, "26.8");
    text(info::NAME, &format!("double{place}"));
    text(info::ID, &format!("double{place}"));
    let mut number = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    number(info::SERVICE, u32::from(compresses));
    number(info::PACKAGE, place as u32 / 2);
    number(info::NODE, place as u32 % device.commands.nodes.max(1) as u32);
    number(info::STATE, 1);
    number(info::POLLED, 1);
    // A later structure has a field more before these.
    let (from, size) = if device.commands.layout > 0 { (4, info::SIZE + 4) } else { (0, info::SIZE) };
    // SAFETY: the caller has room for the structure, and for a larger one if it expects that.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast::<u8>().add(from), size) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyQueryCapabilities(handle: *mut c_void, out: *mut u32) -> Status {
    let device = device();
    if place(handle) >= device.crypto {
        return INVALID;
    }
    let (commands, mut has) = (&device.commands, [0; capability::COUNT]);
    has[capability::RSA] = commands.rsa as u32;
    has[capability::EC] = commands.ecdh as u32;
    has[capability::ECDH] = commands.ecdh as u32;
    has[capability::ECDSA] = commands.ecdsa as u32;
    has[capability::MONTGOMERY] = commands.x25519 as u32;
    // SAFETY: the caller has room for the structure.
    unsafe { std::ptr::copy_nonoverlapping(has.as_ptr(), out, has.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cpaCySetAddressTranslation(
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
extern "C" fn cpaCyStartInstance(handle: *mut c_void) -> Status {
    match device().instances.get_mut(place(handle)) {
        Some(instance) => instance.started = true,
        None => return INVALID,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cpaCyStopInstance(handle: *mut c_void) -> Status {
    match device().instances.get_mut(place(handle)) {
        Some(instance) => instance.started = false,
        None => return INVALID,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cpaCyInstanceSetNotificationCb(handle: *mut c_void, callback: EventCallback, tag: *mut c_void) -> Status {
    device().notify(handle, callback, tag)
}

#[unsafe(no_mangle)]
extern "C" fn icp_sal_CyPollInstance(handle: *mut c_void, _quota: u32) -> Status {
    let Some(done) = device().done(handle) else { return INVALID };
    // The state is not locked meanwhile: what is called back may call.
    done.into_iter().for_each(Request::answer);
    device().polled(handle);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyRsaDecrypt(
    handle: *mut c_void,
    callback: OneCallback,
    tag: *mut c_void,
    operation: *const RsaOp,
    output: *mut Flat,
) -> Status {
    fn compute(request: &Request) -> Option<[Vec<u8>; 2]> {
        // SAFETY: the caller keeps its operation until it is called back.
        unsafe {
            let operation = &*(request.operation as *const RsaOp);
            let numbers = (*operation.key).second.map(|number| number.bytes());
            Some([arithmetic::rsa(numbers, operation.input.bytes())?, Vec::new()])
        }
    }
    // SAFETY: the caller's operation.
    let (inputs, len) = unsafe {
        let key = &*(*operation).key;
        if (key.version, key.representation) != (1, 2) {
            return INVALID;
        }
        let mut inputs = key.second.to_vec();
        inputs.push((*operation).input);
        (inputs, (*operation).input.len as usize)
    };
    let callback = Callback::One(callback);
    let outputs = [output, std::ptr::null_mut()];
    let request = Request::new(Kind::Rsa(len), callback, tag, operation.cast(), outputs, &inputs, compute);
    device().submit(handle, request)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyEcdsaSignRS(
    handle: *mut c_void,
    callback: TwoCallback,
    tag: *mut c_void,
    operation: *const EcdsaOp,
    _valid: *mut u32,
    r: *mut Flat,
    s: *mut Flat,
) -> Status {
    fn compute(request: &Request) -> Option<[Vec<u8>; 2]> {
        // SAFETY: the caller keeps its operation until it is called back.
        unsafe {
            let op = &*(request.operation as *const EcdsaOp);
            let base = (op.xg.bytes(), op.yg.bytes());
            arithmetic::ecdsa(base, op.n.bytes(), op.k.bytes(), op.m.bytes(), op.d.bytes()).map(|(r, s)| [r, s])
        }
    }
    // SAFETY: the caller's operation.
    let op = unsafe { &*operation };
    if op.field_type != 1 {
        return INVALID;
    }
    let inputs = [op.xg, op.yg, op.n, op.q, op.a, op.b, op.k, op.m, op.d];
    let callback = Callback::Two(callback);
    device().submit(handle, Request::new(Kind::Ecdsa, callback, tag, operation.cast(), [r, s], &inputs, compute))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyEcGenericPointMultiply(
    handle: *mut c_void,
    callback: TwoCallback,
    tag: *mut c_void,
    operation: *const GenericOp,
    _valid: *mut u32,
    x: *mut Flat,
    y: *mut Flat,
) -> Status {
    fn compute(request: &Request) -> Option<[Vec<u8>; 2]> {
        // SAFETY: the caller keeps its operation until it is called back.
        let op = unsafe { &*(request.operation as *const GenericOp) };
        // SAFETY: as above.
        unsafe { arithmetic::multiply(op.k.bytes(), op.x.bytes(), op.y.bytes()).map(|(x, y)| [x, y]) }
    }
    // SAFETY: the caller's operation and curve.
    let (op, curve): (&GenericOp, &Curve) = unsafe { (&*operation, &*(*operation).curve) };
    if (curve.kind, curve.field_type, op.generator) != (1, 1, 0) {
        return INVALID;
    }
    let inputs = [op.k, op.x, op.y, curve.p, curve.a, curve.b, curve.h];
    let callback = Callback::Two(callback);
    device().submit(handle, Request::new(Kind::Multiply, callback, tag, operation.cast(), [x, y], &inputs, compute))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyEcPointMultiply(
    handle: *mut c_void,
    callback: TwoCallback,
    tag: *mut c_void,
    operation: *const PointOp,
    _valid: *mut u32,
    x: *mut Flat,
    y: *mut Flat,
) -> Status {
    fn compute(request: &Request) -> Option<[Vec<u8>; 2]> {
        // SAFETY: the caller keeps its operation until it is called back.
        let op = unsafe { &*(request.operation as *const PointOp) };
        // SAFETY: as above.
        unsafe { arithmetic::multiply(op.k.bytes(), op.xg.bytes(), op.yg.bytes()).map(|(x, y)| [x, y]) }
    }
    // SAFETY: the caller's operation.
    let op = unsafe { &*operation };
    if op.field_type != 1 {
        return INVALID;
    }
    let inputs = [op.k, op.xg, op.yg, op.a, op.b, op.q, op.h];
    let callback = Callback::Two(callback);
    device().submit(handle, Request::new(Kind::Multiply, callback, tag, operation.cast(), [x, y], &inputs, compute))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cpaCyEcMontEdwdsPointMultiply(
    handle: *mut c_void,
    callback: TwoCallback,
    tag: *mut c_void,
    operation: *const MontgomeryOp,
    _valid: *mut u32,
    x: *mut Flat,
    y: *mut Flat,
) -> Status {
    fn compute(request: &Request) -> Option<[Vec<u8>; 2]> {
        // SAFETY: the caller keeps its operation until it is called back.
        let op = unsafe { &*(request.operation as *const MontgomeryOp) };
        // SAFETY: as above.
        let (k, x) = unsafe { (op.k.bytes(), op.x.bytes()) };
        Some([arithmetic::x25519(k, (op.generator == 0).then_some(x))?, Vec::new()])
    }
    // SAFETY: the caller's operation.
    let op = unsafe { &*operation };
    if op.curve != 1 || op.k.len != 32 || (op.generator == 0 && op.x.len != 32) || !y.is_null() {
        return INVALID;
    }
    let callback = Callback::Two(callback);
    let request = Request::new(Kind::X25519, callback, tag, operation.cast(), [x, y], &[op.k, op.x], compute);
    device().submit(handle, request)
}

#[unsafe(no_mangle)]
extern "C" fn qaeMemAllocNUMA(size: usize, _node: c_int, alignment: usize) -> *mut c_void {
    let mut device = device();
    if device.commands.unpinnable > 0 {
        return std::ptr::null_mut();
    }
    let mut memory = std::ptr::null_mut();
    // SAFETY: it writes one pointer; an alignment it does not like is refused.
    if unsafe { libc::posix_memalign(&raw mut memory, alignment.max(64), size) } != 0 {
        return std::ptr::null_mut();
    }
    device.pin(memory as usize, size);
    memory
}

#[unsafe(no_mangle)]
unsafe extern "C" fn qaeMemFreeNUMA(memory: *mut *mut c_void) {
    // SAFETY: the caller's pointer to what `qaeMemAllocNUMA` gave; anything else is not freed.
    unsafe {
        let mut device = device();
        if device.unpin(*memory as usize) {
            libc::free(*memory);
            *memory = std::ptr::null_mut();
        }
        log(&format!("pinned {}", device.pinned()));
    }
}

#[unsafe(no_mangle)]
extern "C" fn qaeVirtToPhysNUMA(memory: *mut c_void) -> u64 {
    memory as u64
}
