//! What the parsers of keywords share: diagnostics, the environment, and where they are in the files.

use crate::{
    diagnostic::Diagnostics,
    env::{Env, SPEAKS_HAPROXY},
    model::{Account, Config, Ring, Source},
    words::Variables,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The state that keyword parsers share.
pub(crate) struct Surroundings {
    pub(crate) diagnostics: Diagnostics,
    /// The environment, as modified by `setenv` and similar directives.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) crt_base: Option<PathBuf>,
    pub(crate) ca_base: Option<PathBuf>,
    pub(crate) default_path: DefaultPath,
    pub(crate) file_name: String,
    pub(crate) section: String,
    /// The word that started the section.
    pub(crate) section_kind: &'static str,
    pub(crate) line: u32,
    /// Whether a `peers` section was read: the name of this peer cannot change any more.
    pub(crate) has_peers: bool,
    /// Whether this peer's name was given on the command line.
    pub(crate) named_peer: bool,
    /// Whether a `bind` line is being parsed.
    pub(crate) on_bind: bool,
    /// `unix-bind`: what the `bind` lines that follow start from.
    pub(crate) unix_bind: UnixBind,
    /// Whether `.diag` lines are shown (`-dD`).
    pub(crate) diagnostic_mode: bool,
    /// The rings of `log` lines that name a server over TCP.
    pub(crate) rings: Vec<Ring>,
}

/// Settings of listening unix sockets for `bind` lines that say nothing of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnixBind {
    /// What stands before each path.
    pub prefix: Option<String>,
    pub mode: Option<u32>,
    pub user: Option<Account>,
    pub group: Option<Account>,
}

/// `default-path`: the directory that relative paths are relative to.
#[derive(Clone, Debug, Default)]
pub(crate) enum DefaultPath {
    /// The working directory.
    #[default]
    Current,
    /// The directory of the file that is being read.
    Config,
    /// The parent of the directory of the file that is being read.
    Parent,
    /// This directory.
    Origin(PathBuf),
}

impl Variables for Surroundings {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            ".FILE" => Some(self.file_name.clone()),
            ".LINE" => Some(self.line.to_string()),
            ".SECTION" => Some(self.section.clone()),
            name => self.variables.get(name).cloned(),
        }
    }
}

impl Surroundings {
    /// The state for parsing words that arrive at run time.
    pub(crate) fn of_command(config: &Config) -> Self {
        let around = Surroundings::new(&[], &Env::default());
        let (crt_base, ca_base) = (config.global.crt_base.clone(), config.global.ca_base.clone());
        Surroundings { crt_base, ca_base, variables: config.environment.clone(), ..around }
    }

    pub(crate) fn new(files: &[Source], env: &Env<'_>) -> Self {
        let mut variables = env.variables.clone();
        let names: Vec<&str> = files.iter().map(|f| f.name.as_str()).collect();
        variables.insert("HAPROXY_CFGFILES".into(), names.join(";"));
        variables.insert("HAPROXY_LOCALPEER".into(), env.local_peer.clone());
        variables.insert("HAPROXY_STARTUP_VERSION".into(), SPEAKS_HAPROXY.into());
        Surroundings {
            diagnostics: Diagnostics::default(),
            variables,
            crt_base: None,
            ca_base: None,
            default_path: DefaultPath::Current,
            file_name: String::new(),
            section: String::new(),
            section_kind: "",
            has_peers: false,
            named_peer: env.names_peer,
            line: 0,
            on_bind: false,
            unix_bind: UnixBind::default(),
            diagnostic_mode: env.diagnostic_mode,
            rings: Vec::new(),
        }
    }

    /// Makes a relative path relative to the directory that `default-path` selects.
    pub(crate) fn default_path(&self, path: &str) -> PathBuf {
        let folder = || Path::new(&self.file_name).parent().unwrap_or(Path::new(""));
        match &self.default_path {
            DefaultPath::Current => PathBuf::from(path),
            // join() keeps an absolute path as it is.
            DefaultPath::Config => folder().join(path),
            DefaultPath::Parent => folder().join("..").join(path),
            DefaultPath::Origin(origin) => origin.join(path),
        }
    }
}
