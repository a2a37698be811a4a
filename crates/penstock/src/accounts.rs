//! The users and groups that a configuration names: whether they exist, and becoming them.

use penstock_config::{
    Config, Diagnostics, Span,
    model::{Account, ExternalProgram, Global},
};
use std::io;

/// Checks that accounts exist, so that errors appear when the configuration is checked rather than in the background.
pub fn check(config: &Config, diagnostics: &mut Diagnostics) {
    let global = &config.global;
    for bind in config.proxies.iter().flat_map(|proxy| &proxy.binds) {
        let place = bind.addresses[0].span;
        exist(
            bind.user.as_ref().map(|user| (user, place)),
            bind.group.as_ref().map(|group| (group, place)),
            diagnostics,
        );
    }
    for socket in &global.stats_sockets {
        let place = socket.span;
        let user = socket.user.as_ref().map(|user| (user, place));
        exist(user, socket.group.as_ref().map(|group| (group, place)), diagnostics);
    }
    let user = global.user.as_ref().map(|user| (&user.value, user.span));
    exist(user, global.group.as_ref().map(|group| (&group.value, group.span)), diagnostics);
}

/// Adds an error for each account that a `program` section names and that does not exist.
pub fn check_program(program: &ExternalProgram, diagnostics: &mut Diagnostics) {
    let user = program.user.as_ref().map(|user| (&user.value, user.span));
    exist(user, program.group.as_ref().map(|group| (&group.value, group.span)), diagnostics);
}

/// Adds an error for each of the two that does not exist.
fn exist(user: Option<(&Account, Span)>, group: Option<(&Account, Span)>, diagnostics: &mut Diagnostics) {
    let group = group.map(|(account, span)| (group_id(account), span));
    let user = user.map(|(account, span)| (user_id(account), span));
    for (id, span) in group.into_iter().chain(user) {
        if let Err(why) = id {
            diagnostics.error(span, why);
        }
    }
}

/// The id of a user.
///
/// # Errors
///
/// A sentence that says what is wrong with the name.
pub fn user_id(account: &Account) -> Result<u32, String> {
    id("user", account, |name| Ok(penstock_sys::user(name)?.map(|user| user.uid)))
}

/// The id of a group.
///
/// # Errors
///
/// A sentence that says what is wrong with the name.
pub fn group_id(account: &Account) -> Result<u32, String> {
    id("group", account, |name| Ok(penstock_sys::group(name)?.map(|group| group.gid)))
}

/// The id of an account, which is looked up if it is given by name.
fn id(kind: &str, account: &Account, look_up: impl Fn(&str) -> io::Result<Option<u32>>) -> Result<u32, String> {
    match account {
        Account::Id(id) => Ok(*id),
        Account::Name(name) => match look_up(name) {
            Ok(Some(id)) => Ok(id),
            Ok(None) => Err(format!("there is no {kind} '{name}'")),
            Err(e) => Err(format!("cannot look up the {kind} '{name}': {e}")),
        },
    }
}

/// Applies `chroot`, then `group` and `user`.
///
/// # Errors
///
/// A sentence that says which of them failed, and why.
pub fn give_up_privileges(global: &Global) -> Result<(), String> {
    // Names are looked up while /etc can still be read.
    let gid = global.group.as_ref().map(|group| group_id(&group.value)).transpose()?;
    let uid = global.user.as_ref().map(|user| user_id(&user.value)).transpose()?;
    if let Some(root) = &global.chroot {
        penstock_sys::chroot(&root.value).map_err(|e| format!("cannot chroot to {}: {e}", root.value.display()))?;
    }
    // A process that may change its id at all has id 0 already.
    penstock_sys::drop_to(uid.filter(|id| *id != 0), gid.filter(|id| *id != 0))
        .map_err(|e| format!("cannot become the configured user and group: {e}"))
}
