//! The users and groups that a configuration names: whether they exist, and becoming them.

use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Account, ExternalProgram, Global},
};
use penstock_proxy::first_to_enter;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_keep_capabilities};
use std::io;

/// Checks that accounts exist, so that errors appear when the configuration is checked rather than in the background.
pub fn check(config: &Config, diagnostics: &mut Diagnostics) {
    let global = &config.global;
    for bind in config.proxies.iter().flat_map(|proxy| &proxy.binds) {
        let place = bind.addresses[0].span;
        // Those of 'unix-bind' are looked up where they stand.
        let own = |account: &&Account, usual: &Option<Spanned<Account>>| {
            usual.as_ref().is_none_or(|usual| usual.value != **account)
        };
        let user = bind.user.as_ref().filter(|user| own(user, &global.unix_bind_user));
        let group = bind.group.as_ref().filter(|group| own(group, &global.unix_bind_group));
        exist(user.map(|user| (user, place)), group.map(|group| (group, place)), diagnostics);
    }
    let user = global.unix_bind_user.as_ref().map(|user| (&user.value, user.span));
    exist(user, global.unix_bind_group.as_ref().map(|group| (&group.value, group.span)), diagnostics);
    for socket in &global.stats_sockets {
        let place = socket.span;
        let user = socket.user.as_ref().map(|user| (user, place));
        exist(user, socket.group.as_ref().map(|group| (group, place)), diagnostics);
    }
    let user = global.user.as_ref().map(|user| (&user.value, user.span));
    if let (Some(place), Some(_)) = (first_to_enter(config), user)
        && !global.capabilities.contains(&"cap_sys_admin")
    {
        let message = "connections in other network namespaces need a right that the process gives up with its user";
        diagnostics.error(place, message).hint("write 'setcap cap_sys_admin' in 'global'");
    }
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

/// Applies `set-dumpable`, `chroot`, then `group` and `user`.
///
/// # Errors
///
/// A sentence that says which of them failed, and why.
pub fn give_up_privileges(global: &Global) -> Result<(), String> {
    if global.dumpable {
        let unlimited = || Rlimit { current: None, maximum: None };
        for (resource, what) in [(Resource::Fsize, "files"), (Resource::Core, "core dumps")] {
            match setrlimit(resource, unlimited()) {
                Err(e) if global.strict_limits => {
                    return Err(format!("'set-dumpable' cannot lift the limit of the size of {what}: {e}"));
                }
                _ => {}
            }
        }
    }
    // Names are looked up while /etc can still be read.
    let gid = global.group.as_ref().map(|group| group_id(&group.value)).transpose()?;
    let uid = global.user.as_ref().map(|user| user_id(&user.value)).transpose()?;
    if let Some(root) = &global.chroot {
        penstock_sys::chroot(&root.value).map_err(|e| format!("cannot chroot to {}: {e}", root.value.display()))?;
    }
    // A process that may change its id at all has id 0 already.
    let (uid, gid) = (uid.filter(|id| *id != 0), gid.filter(|id| *id != 0));
    let kept = capabilities(global);
    let may_keep = !kept.is_empty() && penstock_sys::is_root() && uid.is_some();
    let failed = |e| format!("cannot keep the capabilities of 'setcap': {e}");
    if may_keep {
        set_keep_capabilities(true).map_err(|e| failed(io::Error::from(e)))?;
    }
    penstock_sys::drop_to(uid, gid).map_err(|e| format!("cannot become the configured user and group: {e}"))?;
    if may_keep || !kept.is_empty() && !penstock_sys::is_root() {
        keep(kept, may_keep).map_err(failed)?;
    }
    if global.dumpable {
        // A change of user takes it away.
        let allowed = set_dumpable_behavior(DumpableBehavior::Dumpable);
        allowed.map_err(|e| format!("cannot allow core dumps: {e}"))?;
    }
    Ok(())
}

/// What `setcap` names.
fn capabilities(global: &Global) -> CapabilitySet {
    let named = global.capabilities.iter().map(|name| match *name {
        "cap_net_raw" => CapabilitySet::NET_RAW,
        "cap_net_admin" => CapabilitySet::NET_ADMIN,
        "cap_net_bind_service" => CapabilitySet::NET_BIND_SERVICE,
        _ => CapabilitySet::SYS_ADMIN,
    });
    named.fold(CapabilitySet::empty(), CapabilitySet::union)
}

/// Makes capabilities effective, and the only ones if `alone`, as they are for a process that was root's: then all of them are
/// there. Another may have some by its program's file. Threads that are started from now on have the same.
fn keep(kept: CapabilitySet, alone: bool) -> io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    let here = now.permitted & kept;
    let sets = match alone {
        true => CapabilitySets { effective: here, permitted: here, inheritable: CapabilitySet::empty() },
        false => CapabilitySets { effective: now.effective | here, ..now },
    };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}
