//! Reads the states of servers saved in files (`load-server-state-from-file`), before anything runs.

use crate::server::{Backends, SavedError, SavedServer, UnusableServer, read_saved};
use penstock_config::{Config, Diagnostics, model::Proxy};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    time::Instant,
};

/// The servers found in files.
#[derive(Default)]
pub(crate) struct Saved {
    /// In the order in which they were found, which is that in which they are restored.
    servers: Vec<SavedServer>,
    /// Their places there, by the names of their backend and their own.
    places: HashMap<(String, String), usize>,
}

impl Saved {
    /// Reads the files that the configuration names. A file that cannot be read or understood has no effect but a warning.
    pub fn read(config: &Config, read: impl Fn(&Path) -> io::Result<String>, diagnostics: &mut Diagnostics) -> Saved {
        let mut saved = Saved::default();
        let wanting = |kind: &str| {
            let kind = kind.to_owned();
            config.proxies.iter().filter(move |proxy| {
                proxy.kind.has_backend() && proxy.load_server_state.as_deref() == Some(kind.as_str())
            })
        };
        let global = config.global.server_state_file.as_ref();
        if let Some(file) = global.filter(|_| wanting("global").next().is_some()) {
            let path = based(config, file);
            // Servers that are not in this configuration are reported.
            let wants = |backend: &str| {
                wanting("global").any(|proxy| proxy.name == backend)
                    || config.proxies.iter().all(|proxy| proxy.name != backend)
            };
            saved.add(&path, &read, wants, diagnostics);
        }
        for proxy in wanting("local") {
            let path = based(config, &local_name(proxy));
            saved.add(&path, &read, |backend| backend == proxy.name, diagnostics);
        }
        saved
    }

    fn add(
        &mut self,
        path: &Path,
        read: &impl Fn(&Path) -> io::Result<String>,
        wants: impl Fn(&str) -> bool,
        diagnostics: &mut Diagnostics,
    ) {
        let shown = path.display();
        let servers = match read(path) {
            Ok(text) => read_saved(&text),
            Err(e) => {
                diagnostics.warning(None, format!("the servers' state file '{shown}' cannot be read: {e}"));
                return;
            }
        };
        let wrong = match servers {
            Ok(servers) => {
                for server in servers {
                    match server {
                        Ok(server) if wants(&server.backend) => self.put(server),
                        Err(UnusableServer { line, backend, name, what }) if wants(&backend) => {
                            let which =
                                format!("the state of '{backend}/{name}' in line {line} of '{shown}' is not used");
                            let why = what.map_or("the line is cut".into(), |what| format!("'{what}' is invalid"));
                            diagnostics.warning(None, format!("{which}: {why}"));
                        }
                        Ok(_) | Err(_) => {}
                    }
                }
                return;
            }
            Err(SavedError::Version) => "it does not begin with the version 1".to_string(),
            Err(SavedError::Line(line)) => format!("line {line} describes no server"),
            Err(SavedError::Cut) => "it is cut before its first server".to_string(),
        };
        diagnostics.warning(None, format!("the servers' state file '{shown}' is not used: {wrong}"));
    }

    /// Adds a server. Of two states of one server the last counts.
    fn put(&mut self, server: SavedServer) {
        let place = *self.places.entry((server.backend.clone(), server.name.clone())).or_insert(self.servers.len());
        match self.servers.get_mut(place) {
            Some(before) => *before = server,
            None => self.servers.push(server),
        }
    }

    /// The saved state of a server.
    pub fn of(&self, backend: &str, server: &str) -> Option<&SavedServer> {
        self.places.get(&(backend.to_owned(), server.to_owned())).map(|place| &self.servers[*place])
    }

    /// Restores the saved states of servers. Returns those of servers that do not exist.
    pub fn restore(self, backends: &Backends) -> Unused {
        let now = Instant::now();
        let mut unused = Unused::default();
        for saved in self.servers {
            match backends.by_name(&saved.backend).and_then(|backend| backend.server(&saved.name)) {
                Some(server) => backends.restore(server.at, &saved, now),
                None => drop(unused.0.insert((saved.backend.clone(), saved.name.clone()), saved)),
            }
        }
        unused
    }
}

/// Saved states of servers that do not exist; changes that are made before the process serves may add them.
#[derive(Default)]
pub(crate) struct Unused(BTreeMap<(String, String), SavedServer>);

impl Unused {
    /// Takes the state of a server that is being added.
    pub fn take(&mut self, backend: &str, server: &str) -> Option<SavedServer> {
        self.0.remove(&(backend.to_owned(), server.to_owned()))
    }

    /// A sentence that names what is left; `None` if there is nothing.
    pub fn told(&self) -> Option<String> {
        let (backend, name) = self.0.keys().next()?;
        let which = match self.0.len() {
            1 => format!("a server that this configuration does not have: '{backend}/{name}'"),
            count => format!("{count} servers that this configuration does not have, such as '{backend}/{name}'"),
        };
        Some(format!("the servers' state files name {which}"))
    }
}

/// The path of a file, relative to `server-state-base` unless it is absolute or starts with `./` or `../`.
fn based(config: &Config, file: &Path) -> PathBuf {
    match &config.global.server_state_base {
        Some(base) if !file.starts_with("/") && !file.starts_with(".") && !file.starts_with("..") => base.join(file),
        _ => file.to_owned(),
    }
}

/// `server-state-file-name`, or the backend's own name.
fn local_name(proxy: &Proxy) -> PathBuf {
    PathBuf::from(proxy.server_state_file_name.as_deref().unwrap_or(&proxy.name))
}
