//! What a configuration expects of this machine: accounts, directories, addresses, and leave to start programs.

use crate::accounts;
use penstock_config::{
    Config, Diagnostics,
    model::{CheckKind, ListenAddress},
};
use std::net::ToSocketAddrs;

/// Checks what can be known before the configuration is served. `is_trial` says that it will not be served (`-c`): the addresses, which
/// serving would open, are then checked here.
pub fn check(config: &Config, is_trial: bool, diagnostics: &mut Diagnostics) {
    accounts::check(config, diagnostics);
    programs(config, diagnostics);
    default_paths(config, diagnostics);
    if is_trial {
        addresses(config, diagnostics);
    }
}

/// Checks that the directories of `default-path` exist: a file that is missing in one might otherwise be found elsewhere later.
fn default_paths(config: &Config, diagnostics: &mut Diagnostics) {
    for origin in &config.global.default_path_origins {
        let why = match std::fs::metadata(&origin.value) {
            Ok(found) if found.is_dir() => continue,
            Ok(_) => "it is not a directory".to_owned(),
            Err(e) => e.to_string(),
        };
        let message = format!("paths cannot start from '{}': {why}", origin.value.display());
        diagnostics.error(origin.span, message).hint("name a directory that exists");
    }
}

/// Checks that descriptors to listen on (`fd@N`) are listening sockets, and that the names of addresses to listen on resolve.
/// When the configuration is served, opening them shows it.
fn addresses(config: &Config, diagnostics: &mut Diagnostics) {
    let binds = config.proxies.iter().filter(|proxy| !proxy.disabled).flat_map(|proxy| &proxy.binds);
    let binds = binds.flat_map(|bind| &bind.addresses).map(|address| (&address.value, address.span));
    let stats = config.global.stats_sockets.iter().map(|line| (&line.address, line.span));
    for (address, span) in binds.chain(stats) {
        if let ListenAddress::Fd(number) = address
            && let Err(e) = penstock_sys::adopt_listener(*number)
        {
            let why = if e.raw_os_error().is_some() { "is not open".to_owned() } else { e.to_string() };
            diagnostics.error(span, format!("cannot listen on fd@{number}: it {why}"));
        }
        if let ListenAddress::Host { host, first, .. } = address
            && let Err(e) = (host.as_str(), *first).to_socket_addrs()
        {
            diagnostics.error(span, format!("cannot listen on '{host}': {e}"));
        }
    }
}

/// Checks that there is a master for programs, and that their accounts exist.
fn programs(config: &Config, diagnostics: &mut Diagnostics) {
    // Known only here, since the command line may allow it too.
    for proxy in config
        .proxies
        .iter()
        .filter(|proxy| matches!(proxy.check, CheckKind::External) && !config.global.may_start_programs)
    {
        let message = format!("the external checks of '{}' will fail: the process may not start programs", proxy.name);
        diagnostics.warning(proxy.span, message).hint("add 'insecure-fork-wanted' to the global section");
    }
    for program in &config.programs {
        if !config.global.master_worker {
            let message = "a 'program' section needs a master: nobody would start the program";
            diagnostics.error(program.span, message).hint("start with -W or -Ws, or write 'master-worker' in 'global'");
        }
        accounts::check_program(program, diagnostics);
    }
}
