//! The libraries and their functions.

use crate::{
    Unavailable,
    abi::{
        Bool, Capabilities, EcdsaSign, EventCallback, GenericPointMultiply, Handle, InstanceInfo, MontgomeryMultiply,
        PairCall, PointMultiply, RsaDecryptCall, StartCall, Status, Translation,
    },
    deflate::abi::{self as dc, CompressCall, InitSessionCall},
};
use std::{
    ffi::{CStr, CString, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// The two families: qatlib's, and that of the driver outside the kernel, which serves older cards. Crypto, memory.
const FAMILIES: [[&str; 2]; 2] = [["libqat.so.4", "libusdm.so.0"], ["libqat_s.so", "libusdm_drv_s.so"]];

/// Declares [`Library`] and how each of its fields is found.
macro_rules! functions {
    (
        crypto { $($field:ident: $type:ty = $symbol:literal;)* }
        memory { $($memory:ident: $memory_type:ty = $memory_symbol:literal;)* }
        optional { $($option:ident: $option_type:ty = $option_symbol:literal;)* }
        deflate { $($deflate:ident: $deflate_type:ty = $deflate_symbol:literal;)* }
    ) => {
        /// The functions for compression, where the library has all of them.
        #[derive(Clone, Copy)]
        pub struct Deflate {
            $(pub $deflate: $deflate_type,)*
        }

        impl Deflate {
            fn resolve(library: &Loaded) -> Result<Deflate, Unavailable> {
                // SAFETY: as in `Library::resolve`.
                unsafe {
                    Ok(Deflate {
                        $($deflate: std::mem::transmute::<*mut c_void, $deflate_type>(
                            library.required($deflate_symbol)?
                        ),)*
                    })
                }
            }
        }

        /// The functions of a family that has loaded. It stays loaded for as long as the process lives: it has threads and
        /// handlers of its own.
        #[derive(Clone, Copy)]
        pub struct Library {
            $(pub $field: $type,)*
            $(pub $memory: $memory_type,)*
            $(pub $option: Option<$option_type>,)*
            /// Compression.
            pub deflate: Option<Deflate>,
            /// The crypto library's name.
            pub name: &'static str,
        }

        impl Library {
            fn resolve(crypto: Loaded, memory: Loaded) -> Result<Library, Unavailable> {
                // SAFETY: each symbol is what the library's public headers declare it to be, with the type written here;
                // a pointer to a function and one to data have the same size on every system Linux runs on.
                unsafe {
                    Ok(Library {
                        $($field: std::mem::transmute::<*mut c_void, $type>(crypto.required($symbol)?),)*
                        $($memory: std::mem::transmute::<*mut c_void, $memory_type>(memory.required($memory_symbol)?),)*
                        $($option: crypto.symbol($option_symbol)
                            .map(|at| std::mem::transmute::<*mut c_void, $option_type>(at)),)*
                        deflate: Deflate::resolve(&crypto).ok(),
                        name: crypto.name,
                    })
                }
            }
        }
    };
}

functions! {
    crypto {
        is_available: unsafe extern "C" fn() -> Bool = c"icp_sal_userIsQatAvailable";
        start: StartCall = c"icp_sal_userStart";
        stop: unsafe extern "C" fn() -> Status = c"icp_sal_userStop";
        poll_events: unsafe extern "C" fn() -> Status = c"icp_sal_poll_device_events";
        count: unsafe extern "C" fn(*mut u16) -> Status = c"cpaCyGetNumInstances";
        instances: unsafe extern "C" fn(u16, *mut Handle) -> Status = c"cpaCyGetInstances";
        info: unsafe extern "C" fn(Handle, *mut InstanceInfo) -> Status = c"cpaCyInstanceGetInfo2";
        capabilities: unsafe extern "C" fn(Handle, *mut Capabilities) -> Status = c"cpaCyQueryCapabilities";
        set_translation: unsafe extern "C" fn(Handle, Translation) -> Status = c"cpaCySetAddressTranslation";
        start_instance: unsafe extern "C" fn(Handle) -> Status = c"cpaCyStartInstance";
        stop_instance: unsafe extern "C" fn(Handle) -> Status = c"cpaCyStopInstance";
        notify: unsafe extern "C" fn(Handle, EventCallback, *mut c_void) -> Status = c"cpaCyInstanceSetNotificationCb";
        poll: unsafe extern "C" fn(Handle, u32) -> Status = c"icp_sal_CyPollInstance";
        rsa_decrypt: RsaDecryptCall = c"cpaCyRsaDecrypt";
        ecdsa_sign: PairCall<EcdsaSign> = c"cpaCyEcdsaSignRS";
    }
    memory {
        allocate: unsafe extern "C" fn(usize, c_int, usize) -> *mut c_void = c"qaeMemAllocNUMA";
        free: unsafe extern "C" fn(*mut *mut c_void) = c"qaeMemFreeNUMA";
        translate: Translation = c"qaeVirtToPhysNUMA";
    }
    optional {
        // Of the two the newer is used where it is there; older drivers have only the other.
        generic_multiply: PairCall<GenericPointMultiply> = c"cpaCyEcGenericPointMultiply";
        point_multiply: PairCall<PointMultiply> = c"cpaCyEcPointMultiply";
        montgomery_multiply: PairCall<MontgomeryMultiply> = c"cpaCyEcMontEdwdsPointMultiply";
        count_compression: unsafe extern "C" fn(*mut u16) -> Status = c"cpaDcGetNumInstances";
    }
    deflate {
        count: unsafe extern "C" fn(*mut u16) -> Status = c"cpaDcGetNumInstances";
        instances: unsafe extern "C" fn(u16, *mut Handle) -> Status = c"cpaDcGetInstances";
        info: unsafe extern "C" fn(Handle, *mut InstanceInfo) -> Status = c"cpaDcInstanceGetInfo2";
        capabilities: unsafe extern "C" fn(Handle, *mut dc::Capabilities) -> Status = c"cpaDcQueryCapabilities";
        set_translation: unsafe extern "C" fn(Handle, Translation) -> Status = c"cpaDcSetAddressTranslation";
        intermediate_count: unsafe extern "C" fn(Handle, *mut u16) -> Status = c"cpaDcGetNumIntermediateBuffers";
        start_instance: dc::StartDeflateCall = c"cpaDcStartInstance";
        stop_instance: unsafe extern "C" fn(Handle) -> Status = c"cpaDcStopInstance";
        notify: unsafe extern "C" fn(Handle, EventCallback, *mut c_void) -> Status = c"cpaDcInstanceSetNotificationCb";
        list_size: unsafe extern "C" fn(Handle, u32, *mut u32) -> Status = c"cpaDcBufferListGetMetaSize";
        bound: unsafe extern "C" fn(Handle, u32, u32, *mut u32) -> Status = c"cpaDcDeflateCompressBound";
        session_size: unsafe extern "C" fn(Handle, *mut dc::SessionSetup, *mut u32, *mut u32) -> Status =
            c"cpaDcGetSessionSize";
        init_session: InitSessionCall = c"cpaDcInitSession";
        remove_session: unsafe extern "C" fn(Handle, *mut c_void) -> Status = c"cpaDcRemoveSession";
        compress: CompressCall = c"cpaDcCompressData2";
        poll: unsafe extern "C" fn(Handle, u32) -> Status = c"icp_sal_DcPollInstance";
    }
}

impl Library {
    /// Loads the first family that is there: from `directory`, or from where the system's loader looks.
    ///
    /// # Errors
    /// If there is none, or one lacks a symbol.
    pub fn load(directory: Option<&Path>) -> Result<Library, Unavailable> {
        for [crypto, memory] in FAMILIES {
            // The memory library first: the other one needs it, and would else look for it in the system's places.
            let memory = match Loaded::open(directory, memory) {
                Ok(memory) => memory,
                // Only where the other one is there as well is its absence the reason.
                Err(Absent::Missing) if Loaded::is_missing(directory, crypto) => continue,
                Err(Absent::Missing) => return Err(Unavailable::Unloadable(memory, "it is not there".into())),
                Err(Absent::Broken(why)) => return Err(Unavailable::Unloadable(memory, why)),
            };
            return match Loaded::open(directory, crypto) {
                Ok(crypto) => Library::resolve(crypto, memory),
                Err(Absent::Missing) => Err(other_generation(directory)),
                Err(Absent::Broken(why)) => Err(Unavailable::Unloadable(crypto, why)),
            };
        }
        Err(other_generation(directory))
    }
}

/// No library of ours: perhaps because there is one of another generation.
fn other_generation(directory: Option<&Path>) -> Unavailable {
    const PLACES: [&str; 5] =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/usr/lib"];
    let places = directory.map_or_else(|| PLACES.map(Path::new).to_vec(), |directory| vec![directory]);
    let names = places.into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    let mut found: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("libqat.so.") && !name.starts_with("libqat.so.4"))
        .collect();
    found.sort();
    found.pop().map_or(Unavailable::NoLibrary, Unavailable::Generation)
}

/// A library in this process.
#[derive(Clone, Copy)]
struct Loaded {
    handle: *mut c_void,
    name: &'static str,
}

enum Absent {
    Missing,
    Broken(String),
}

impl Loaded {
    fn open(directory: Option<&Path>, name: &'static str) -> Result<Loaded, Absent> {
        let path = directory.map_or_else(|| name.into(), |directory| directory.join(name));
        let Ok(text) = CString::new(path.as_os_str().as_bytes()) else { return Err(Absent::Missing) };
        // SAFETY: `text` is a string that lives through the call. Loading runs the library's initialisers, which is what
        // is asked for.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return Ok(Loaded { handle, name });
        }
        // SAFETY: after a failure it gives a string of the C library's, valid until the thread's next call of this family.
        let why = unsafe {
            let text = libc::dlerror();
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        let missing = match directory {
            Some(_) => !path.exists(),
            // The loader has no code for it, only a sentence, which names the library itself and no other.
            None => why.starts_with(name) && why.contains("No such file"),
        };
        Err(if missing { Absent::Missing } else { Absent::Broken(why) })
    }

    fn is_missing(directory: Option<&Path>, name: &'static str) -> bool {
        matches!(Loaded::open(directory, name), Err(Absent::Missing))
    }

    fn symbol(&self, symbol: &'static CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is that of a library that is never closed.
        let at = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        (!at.is_null()).then_some(at)
    }

    fn required(&self, symbol: &'static CStr) -> Result<*mut c_void, Unavailable> {
        self.symbol(symbol).ok_or(Unavailable::MissingSymbol(self.name, symbol.to_str().unwrap_or_default()))
    }
}
