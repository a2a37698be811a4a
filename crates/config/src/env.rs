//! What the parser may know of the world outside the configuration's text: variables and files, provided by the caller.

use std::{collections::BTreeMap, io, path::Path};

/// The version of HAProxy whose language is implemented: what `version_atleast()` and `version_before()` compare with.
pub const SPEAKS_HAPROXY: &str = "3.0.11";

/// The OpenSSL whose features the TLS settings correspond to, for `openssl_version_atleast()`.
pub const SPEAKS_OPENSSL: &str = "3.0.0";

/// The features for which `feature()` is true, under the names HAProxy gives them in `haproxy -vv`.
pub const FEATURES: &[&str] = &[
    "ACCEPT4",
    "BACKTRACE",
    "CPU_AFFINITY",
    "CRYPT_H",
    "ENGINE",
    "EPOLL",
    "GETADDRINFO",
    "LIBCRYPT",
    "LINUX_CAP",
    "LINUX_TPROXY",
    "NETFILTER",
    "NS",
    "OPENSSL",
    "OPENSSL_AWSLC",
    "PRCTL",
    "PROMEX",
    "SSL",
    "SYSTEMD",
    "TFO",
    "THREAD",
    "THREAD_DUMP",
    "TPROXY",
    "ZLIB",
];

/// Reads files that a configuration names and whose contents belong to it, such as error files.
pub trait Files {
    /// The contents of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

impl<F: Fn(&Path) -> io::Result<Vec<u8>>> Files for F {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self(path)
    }
}

/// A [`Files`] in which no file exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The environment in which a configuration is read.
#[derive(Clone)]
pub struct Env<'a> {
    /// The environment variables; `setenv` and its relatives change a copy, which ends up in [`crate::Config::environment`].
    pub variables: BTreeMap<String, String>,
    /// Reads the files that the configuration names.
    pub files: &'a dyn Files,
    /// The name of the local peer: `-L`, or the host's name.
    pub local_peer: String,
    /// Whether that is `-L`, which then takes precedence over `localpeer`.
    pub names_peer: bool,
    /// Whether `.diag` lines are reported: `-dD`.
    pub diagnostic_mode: bool,
}

impl Default for Env<'_> {
    fn default() -> Self {
        Env {
            variables: BTreeMap::new(),
            files: &NoFiles,
            local_peer: "localhost".into(),
            names_peer: false,
            diagnostic_mode: false,
        }
    }
}
