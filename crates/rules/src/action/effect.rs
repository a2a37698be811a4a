//! The effects of actions on a message, a variable, a counter or a list: one function each, in the order of
//! [`super::Action`].

use super::{
    Amount, Outcome, PacketField, Part, Side, Timeout, append, changed, fields, normalize::Normalizer, respond, tracked,
};
use crate::{
    context::{Context, EarlyHint},
    expr::Expr,
    facts::PacketFields,
    kind::Kind,
    link::Named,
    log::LogFormat,
    patterns::Which,
    regexes::Regex,
    sample::Missing,
    table::Data,
    value::{Type, Value},
    vars::{Condition, VarRef},
    verdict::{Reply, Why},
};
use penstock_config::Span;
use penstock_http::TargetForm;

pub(super) fn add_header(kind: Kind, ctx: &mut Context<'_>, name: &[u8], value: &LogFormat) -> Outcome {
    let value = value.to_bytes(ctx);
    if ctx.txn.logins.has_claim() {
        // The rule will run again, and must not add twice.
        return Outcome::Next;
    }
    let most = ctx.world.head_bytes();
    let done = fields(kind, ctx).map_or(Outcome::Next, |fields| append(fields, name, &value, most));
    follow_host(kind, ctx, name);
    done
}

pub(super) fn set_header(kind: Kind, ctx: &mut Context<'_>, name: &[u8], value: &LogFormat) -> Outcome {
    let (value, most) = (value.to_bytes(ctx), ctx.world.head_bytes());
    let done = fields(kind, ctx).map_or(Outcome::Next, |fields| {
        fields.remove(name);
        append(fields, name, &value, most)
    });
    follow_host(kind, ctx, name);
    done
}

/// After a rule has written a field of this name: the target names the host that `Host` names.
pub(super) fn follow_host(kind: Kind, ctx: &mut Context<'_>, name: &[u8]) {
    if !kind.is_response()
        && name.eq_ignore_ascii_case(b"host")
        && let Some(head) = ctx.request.as_deref_mut()
    {
        head.put_host_into_target();
    }
}

pub(super) fn del_header(kind: Kind, ctx: &mut Context<'_>, name: &super::HeaderName) -> Outcome {
    if let Some(fields) = fields(kind, ctx) {
        name.remove_from(fields);
    }
    Outcome::Next
}

/// Fields of rules that follow each other share a response, up to one with a condition.
pub(super) fn early_hint(ctx: &mut Context<'_>, rule: usize, follows: bool, name: &[u8], value: &LogFormat) -> Outcome {
    let (value, name) = (value.to_bytes(ctx), name.to_vec());
    let hints = &mut ctx.txn.early_hints;
    let joins = follows && hints.last().is_some_and(|last| last.rule + 1 == rule);
    hints.push(EarlyHint { rule, joins, name, value });
    Outcome::Next
}

pub(super) fn replace_target(ctx: &mut Context<'_>, part: Part, regex: &Regex, by: &LogFormat) -> Outcome {
    let Some(head) = ctx.request.as_deref() else { return Outcome::Next };
    // `*` is no path.
    if head.form() == TargetForm::Asterisk && matches!(part, Part::Path | Part::PathAndQuery) {
        return Outcome::Next;
    }
    let old = match part {
        Part::Path => head.path(),
        Part::PathAndQuery => head.path_and_query(),
        _ => head.target(),
    };
    // Where nothing matches, the format is not evaluated, so that nothing in it is counted either.
    let mut new = Vec::with_capacity(old.len());
    if regex.rewrite_with(old, || by.to_bytes(ctx), &mut new) { part.set(ctx, &new) } else { Outcome::Next }
}

pub(super) fn normalize(ctx: &mut Context<'_>, normalizer: &Normalizer, span: Span) -> Outcome {
    let Some(head) = ctx.request.as_deref_mut() else { return Outcome::Next };
    match normalizer.apply(head.path_and_query()) {
        Ok(Some(new)) => changed(head.set_path_and_query(&new)),
        Ok(None) => Outcome::Next,
        Err(()) => respond(Why::Deny, Reply::error_page(400, span)),
    }
}

pub(super) fn set_status(ctx: &mut Context<'_>, status: u16, reason: Option<&[u8]>) -> Outcome {
    let Some(head) = ctx.response.as_deref_mut() else { return Outcome::Next };
    head.set_status(status);
    // As in HAProxy 3.0, for `txn.status` of the rules behind it.
    ctx.txn.status = Some(status);
    reason.map_or(Outcome::Next, |reason| changed(head.set_reason(reason)))
}

/// Assigns to a variable if the conditions permit.
pub(super) fn assign(ctx: &mut Context<'_>, var: &VarRef, conditions: &[Condition], value: Value<'static>) -> Outcome {
    if ctx.may_assign(var, conditions, &value) {
        ctx.set_var(var, Some(value));
    }
    Outcome::Next
}

pub(super) fn capture(
    kind: Kind,
    ctx: &mut Context<'_>,
    expr: &Expr,
    slot: usize,
    len: usize,
    declared: bool,
) -> Outcome {
    // A slot that is named by its number may be that of a frontend before this backend.
    let of_slot = ctx.frontend.1.capture_lengths[usize::from(kind.is_response())].get(slot);
    let len = of_slot.map_or(len, |of_slot| len.min(*of_slot));
    let captured = match expr.eval(ctx) {
        Ok(value) => value.cast(Type::Str).and_then(|value| value.bytes().map(|b| b[..b.len().min(len)].to_vec())),
        Err(Missing::NotYet) => return Outcome::NotYet,
        Err(Missing::Absent) => None,
    };
    let slots = if kind.is_response() { &mut ctx.txn.response_captures } else { &mut ctx.txn.request_captures };
    if let Some(captured) = captured
        && (slot < slots.len() || !declared)
    {
        if slots.len() <= slot {
            slots.resize(slot + 1, None);
        }
        slots[slot] = Some(captured);
    }
    Outcome::Next
}

/// `set-priority-class` and `set-priority-offset`, within HAProxy's bounds.
pub(super) fn prioritize(ctx: &mut Context<'_>, class: bool, expr: &Expr) -> Outcome {
    if let Some(n) = expr.eval(ctx).ok().and_then(|value| value.to_int()) {
        if class {
            ctx.txn.priority_class = n.clamp(-2047, 2047) as i32;
        } else {
            ctx.txn.priority_offset_ms = n.clamp(-524_287, 524_287) as i32;
        }
    }
    Outcome::Next
}

pub(super) fn set_timeout(ctx: &mut Context<'_>, which: Timeout, value: &Amount) -> Outcome {
    let ms = value.eval(ctx).ok().and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
    if ms.is_some() {
        *match which {
            Timeout::Client => &mut ctx.txn.timeout_client_ms,
            Timeout::Server => &mut ctx.txn.timeout_server_ms,
            Timeout::Tunnel => &mut ctx.txn.timeout_tunnel_ms,
        } = ms;
    }
    Outcome::Next
}

/// `set-fc-mark` and its like. What concerns the server is kept for the connection that the request gets.
pub(super) fn mark_packets(ctx: &mut Context<'_>, side: Side, field: PacketField, value: &Amount) -> Outcome {
    let Ok(value) = value.eval(ctx) else { return Outcome::Next };
    // Of a number that is too large, the low bits count, as in HAProxy.
    let set = |fields: &mut PacketFields| match field {
        PacketField::Mark => fields.mark = Some(value as u32),
        PacketField::Tos => fields.tos = Some(value as u8),
    };
    match side {
        Side::Client => {
            let mut fields = PacketFields::default();
            set(&mut fields);
            ctx.world.mark_packets(ctx.conn.socket, ctx.conn.peer, fields);
        }
        Side::Server => set(&mut ctx.txn.server_packets),
    }
    Outcome::Next
}

/// Adds to a general purpose counter and to its rate.
pub(super) fn add(
    ctx: &mut Context<'_>,
    counter: usize,
    [data, rate]: [Data; 2],
    index: usize,
    value: &Amount,
) -> Outcome {
    if let (Some(tracked), Ok(value)) = (tracked(ctx, counter), value.eval(ctx)) {
        let (now, value) = (ctx.now.mono, u64::from(value as u32));
        tracked.table().add(tracked.entry(), rate, index, value, now);
        tracked.table().add(tracked.entry(), data, index, value, now);
    }
    Outcome::Next
}

/// Sets a general purpose tag.
pub(super) fn set_tag(ctx: &mut Context<'_>, counter: usize, data: Data, index: usize, value: &Amount) -> Outcome {
    if let (Some(tracked), Ok(value)) = (tracked(ctx, counter), value.eval(ctx)) {
        tracked.table().set(tracked.entry(), data, index, u64::from(value as u32));
    }
    Outcome::Next
}

/// `set-map`, `add-acl` and the actions that undo them; a file that no rule reads is ignored.
pub(super) fn change_list(
    ctx: &mut Context<'_>,
    file: &Named,
    key: &LogFormat,
    value: Option<&LogFormat>,
    remove: bool,
) -> Outcome {
    // Of a file that no rule reads, not even the key is made: that may count.
    let Some(file) = file.get() else { return Outcome::Next };
    let key = key.to_bytes(ctx);
    let value = value.map(|value| value.to_bytes(ctx)).unwrap_or_default();
    if remove {
        // If it does not exist, it is removed already.
        let _ = file.remove(Which::Key(&key));
        return Outcome::Next;
    }
    changed(file.set_or_add(&key, &value))
}
