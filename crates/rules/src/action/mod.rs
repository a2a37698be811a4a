//! Actions: what a rule does when its condition holds.

mod answers;
mod bandwidth;
mod build;
mod effect;
mod normalize;
mod redirect;
mod reply;
mod table;

pub(crate) use answers::ANSWERED;
pub(crate) use build::{Build, Captures, Slot};
pub use redirect::Redirect;
pub(crate) use reply::Body;
pub use reply::ReplyTemplate;
pub(crate) use table::Works;
pub use table::{ACTIONS, ActionSpec};

use crate::{
    context::{Context, Detour, LogLevel},
    expr::Expr,
    inspection::Inspection,
    kind::Kind,
    link::Named,
    log::LogFormat,
    lookup::Lookup,
    regexes::Regex,
    sample::Missing,
    table::{Data, StickTable, Tracked},
    value::{Type, Value},
    vars::{Condition, VarRef},
    verdict::{Reply, Verdict, Why},
};
use bandwidth::LimitBandwidth;
use normalize::Normalizer;
use penstock_config::{Span, model::CacheId};
use penstock_http::{Fields, Version};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// What a rule does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Accept,
    /// Parsed, but without effect.
    Nothing,
    Reject,
    SilentDrop,
    Close,
    Deny(ReplyTemplate),
    Tarpit(ReplyTemplate),
    Return(ReplyTemplate),
    Redirect(Redirect),
    Auth {
        realm: Box<[u8]>,
    },
    UseService(Arc<str>),
    /// `switch-mode http`, with the version that `proto` fixes.
    SwitchToHttp(Option<Version>),
    CacheUse(CacheId),
    CacheStore(CacheId),
    /// `bypass` and `intercept`.
    Detour(Detour),
    /// `do-resolve`: the `resolvers` section by its place, and whether IPv4 is preferred.
    Resolve {
        var: VarRef,
        section: usize,
        prefers_ipv4: bool,
        expr: Box<Expr>,
    },
    /// `service-chain`, by its place and name.
    Inspect(usize, Arc<str>),
    /// `send-spoe-group`: the number of the group.
    Consult(usize),
    ExpectProxy,
    WaitForBody {
        time: Option<Duration>,
        at_least: u64,
    },
    WaitForHandshake,
    AddHeader {
        name: Box<[u8]>,
        value: LogFormat,
    },
    SetHeader {
        name: Box<[u8]>,
        value: LogFormat,
    },
    DelHeader(HeaderName),
    /// `replace-header`: the whole line; `replace-value`: each value.
    ReplaceHeader {
        name: Box<[u8]>,
        regex: Regex,
        by: LogFormat,
        whole: bool,
    },
    /// `follows`: it has no condition, and stands right behind another.
    EarlyHint {
        name: Box<[u8]>,
        value: LogFormat,
        follows: bool,
    },
    SetTarget {
        part: Part,
        value: LogFormat,
    },
    ReplaceTarget {
        part: Part,
        regex: Regex,
        by: LogFormat,
    },
    Normalize(Normalizer),
    SetStatus {
        status: u16,
        reason: Option<Box<[u8]>>,
    },
    SetVar {
        var: VarRef,
        conditions: Box<[Condition]>,
        expr: Box<Expr>,
    },
    SetVarFmt {
        var: VarRef,
        conditions: Box<[Condition]>,
        value: LogFormat,
    },
    UnsetVar(VarRef),
    Capture {
        expr: Box<Expr>,
        slot: usize,
        len: usize,
        /// Whether the slot has to be declared by the frontend.
        declared: bool,
    },
    LogLevel(LogLevel),
    SetAddress {
        which: Address,
        expr: Box<Expr>,
    },
    Priority {
        class: bool,
        expr: Box<Expr>,
    },
    Timeout {
        which: Timeout,
        value: Amount,
    },
    MarkPackets {
        side: Side,
        field: PacketField,
        value: Amount,
    },
    Bandwidth(Box<LimitBandwidth>),
    Track {
        counter: usize,
        expr: Box<Expr>,
        table: Arc<StickTable>,
    },
    AddGpc {
        counter: usize,
        data: Data,
        rate: Data,
        index: usize,
        value: Amount,
    },
    SetGpt {
        counter: usize,
        data: Data,
        index: usize,
        value: Amount,
    },
    NoRetry,
    StrictMode(bool),
    /// `add-acl`, `del-acl`, `set-map`, `del-map`; `value` for `set-map` alone.
    Pattern {
        file: Named,
        key: LogFormat,
        value: Option<LogFormat>,
        remove: bool,
    },
}

/// Which fields `del-header` removes.
#[derive(Clone, Debug)]
pub(crate) enum HeaderName {
    Exactly(Box<[u8]>),
    Begins(Box<[u8]>),
    Ends(Box<[u8]>),
    Contains(Box<[u8]>),
    Matches(Regex),
}

/// A part of the request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Method,
    Path,
    PathAndQuery,
    Query,
    Uri,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Address {
    Dst,
    DstPort,
    Src,
    SrcPort,
}

/// What `set-timeout` sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timeout {
    Client,
    Server,
    Tunnel,
}

/// Whose packets a rule marks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

/// What a rule writes in packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketField {
    Mark,
    Tos,
}

/// A number that a rule states, or the expression that it names for it.
#[derive(Clone, Debug)]
pub(crate) enum Amount {
    Fixed(i64),
    Sample(Box<Expr>),
}

impl Amount {
    /// The number.
    ///
    /// # Errors
    ///
    /// If the expression gives none, or none yet.
    fn eval(&self, ctx: &Context<'_>) -> Result<i64, Missing> {
        match self {
            Amount::Fixed(n) => Ok(*n),
            Amount::Sample(expr) => expr.eval(ctx)?.to_int().ok_or(Missing::Absent),
        }
    }
}

/// The result of an action.
#[derive(Debug)]
pub(crate) enum Outcome {
    Next,
    NotYet,
    Failed,
    Done(Verdict),
}

fn changed<E>(result: Result<(), E>) -> Outcome {
    if result.is_ok() { Outcome::Next } else { Outcome::Failed }
}

/// Adds a field if a head of at most `most` bytes has room for it.
fn append(fields: &mut Fields, name: &[u8], value: &[u8], most: usize) -> Outcome {
    if fields.text_len() + name.len() + value.len() > most {
        return Outcome::Failed;
    }
    changed(fields.append(name, value))
}

/// The fields that rules of this kind change.
fn fields<'c>(kind: Kind, ctx: &'c mut Context<'_>) -> Option<&'c mut Fields> {
    if kind.is_response() {
        ctx.response.as_deref_mut().map(|head| &mut head.fields)
    } else {
        ctx.request.as_deref_mut().map(|head| &mut head.fields)
    }
}

impl Action {
    /// Carries out the action, for the rule at place `at` of a list of this kind.
    pub(crate) fn run(&self, kind: Kind, span: Span, ctx: &mut Context<'_>, at: usize) -> Outcome {
        let next = at + 1;
        match self {
            Action::Accept => Outcome::Done(Verdict::Accept),
            Action::Nothing => Outcome::Next,
            Action::Reject => Outcome::Done(Verdict::Reject),
            Action::SilentDrop => Outcome::Done(Verdict::SilentDrop),
            Action::Close => Outcome::Done(Verdict::Close),
            Action::Deny(reply) => respond(Why::Deny, reply.render(ctx, span)),
            Action::Tarpit(reply) => respond(Why::Tarpit, reply.render(ctx, span)),
            Action::Return(reply) => respond(Why::Return, reply.render(ctx, span)),
            Action::Redirect(redirect) => {
                redirect.render(ctx, span).map_or(Outcome::Next, |reply| respond(Why::Redirect, reply))
            }
            Action::Auth { realm } => respond(Why::Auth, challenge(realm, span)),
            Action::UseService(name) => Outcome::Done(Verdict::Service(Arc::clone(name))),
            Action::SwitchToHttp(version) => Outcome::Done(Verdict::SwitchToHttp(*version)),
            Action::CacheUse(cache) => Outcome::Done(Verdict::CacheUse { cache: *cache, next }),
            Action::CacheStore(cache) => Outcome::Done(Verdict::CacheStore { cache: *cache, next }),
            Action::Detour(detour) => {
                ctx.txn.detour = Some(*detour);
                Outcome::Done(Verdict::Accept)
            }
            Action::Resolve { var, section, prefers_ipv4, expr } => match expr.eval(ctx) {
                Ok(name) => {
                    // What is no name in DNS is not asked for, and sets no variable.
                    let Ok(name) = String::from_utf8(name.to_text()) else { return Outcome::Next };
                    let (section, prefers_ipv4, var) = (*section, *prefers_ipv4, var.clone());
                    ctx.txn.lookup = Some(Box::new(Lookup { section, name, prefers_ipv4, var }));
                    Outcome::Done(Verdict::Resolve { next })
                }
                Err(Missing::NotYet) => Outcome::NotYet,
                Err(Missing::Absent) => Outcome::Next,
            },
            Action::Consult(group) => Outcome::Done(Verdict::Consult { group: *group, next }),
            Action::Inspect(chain, name) => {
                done(|| ctx.txn.inspection = Some(Box::new(Inspection::by(*chain, Arc::clone(name)))))
            }
            Action::ExpectProxy => Outcome::Done(Verdict::ExpectProxy { next }),
            Action::WaitForBody { time, at_least } => {
                Outcome::Done(Verdict::WaitBody { next, time: *time, at_least: *at_least })
            }
            Action::WaitForHandshake => Outcome::Done(Verdict::WaitHandshake { next }),
            Action::AddHeader { name, value } => effect::add_header(kind, ctx, name, value),
            Action::SetHeader { name, value } => effect::set_header(kind, ctx, name, value),
            Action::DelHeader(name) => effect::del_header(kind, ctx, name),
            Action::ReplaceHeader { name, regex, by, whole } => {
                let (by, most) = (by.to_bytes(ctx), ctx.world.head_bytes());
                let done = fields(kind, ctx)
                    .map_or(Outcome::Next, |fields| replace_header(fields, name, regex, &by, *whole, most));
                effect::follow_host(kind, ctx, name);
                done
            }
            Action::EarlyHint { name, value, follows } => effect::early_hint(ctx, at, *follows, name, value),
            Action::SetTarget { part, value } => {
                let value = value.to_bytes(ctx);
                part.set(ctx, &value)
            }
            Action::ReplaceTarget { part, regex, by } => effect::replace_target(ctx, *part, regex, by),
            Action::Normalize(normalizer) => effect::normalize(ctx, normalizer, span),
            Action::SetStatus { status, reason } => effect::set_status(ctx, *status, reason.as_deref()),
            Action::SetVar { var, conditions, expr } => match expr.eval(ctx) {
                Ok(value) => {
                    let value = value.into_owned();
                    effect::assign(ctx, var, conditions, value)
                }
                Err(Missing::NotYet) => Outcome::NotYet,
                Err(Missing::Absent) => Outcome::Next,
            },
            Action::SetVarFmt { var, conditions, value } => {
                let value = Value::string(value.to_bytes(ctx));
                effect::assign(ctx, var, conditions, value)
            }
            Action::UnsetVar(var) => done(|| ctx.set_var(var, None)),
            Action::Capture { expr, slot, len, declared } => effect::capture(kind, ctx, expr, *slot, *len, *declared),
            Action::LogLevel(level) => done(|| ctx.txn.log_level = Some(*level)),
            Action::SetAddress { which, expr } => which.set(ctx, expr),
            Action::Priority { class, expr } => effect::prioritize(ctx, *class, expr),
            Action::Timeout { which, value } => effect::set_timeout(ctx, *which, value),
            Action::MarkPackets { side, field, value } => effect::mark_packets(ctx, *side, *field, value),
            Action::Bandwidth(limit) => limit.run(ctx),
            Action::Track { counter, expr, table } => track(kind, ctx, *counter, expr, table),
            Action::AddGpc { counter, data, rate, index, value } => {
                effect::add(ctx, *counter, [*data, *rate], *index, value)
            }
            Action::SetGpt { counter, data, index, value } => effect::set_tag(ctx, *counter, *data, *index, value),
            Action::NoRetry => done(|| ctx.txn.no_retry = true),
            Action::StrictMode(on) => done(|| ctx.txn.lenient[usize::from(kind.is_response())] = !on),
            Action::Pattern { file, key, value, remove } => {
                effect::change_list(ctx, file, key, value.as_ref(), *remove)
            }
        }
    }
}

/// Ends the rules with this response.
fn respond(why: Why, reply: Reply) -> Outcome {
    Outcome::Done(Verdict::Respond(why, Box::new(reply)))
}

/// Carries out an action that always succeeds.
fn done(effect: impl FnOnce()) -> Outcome {
    effect();
    Outcome::Next
}

/// A `401` that asks for a password.
fn challenge(realm: &[u8], span: Span) -> Reply {
    let challenge = [b"Basic realm=\"", realm, b"\""].concat();
    let fields = vec![(b"www-authenticate".to_vec(), challenge)];
    Reply { fields, ..Reply::error_page(401, span) }
}

fn tracked<'c>(ctx: &'c Context<'_>, counter: usize) -> Option<&'c Tracked> {
    ctx.txn.tracking.slot(counter).or_else(|| ctx.session.tracking.slot(counter))
}

fn track(kind: Kind, ctx: &mut Context<'_>, counter: usize, expr: &Expr, table: &Arc<StickTable>) -> Outcome {
    let early = matches!(kind, Kind::TcpConnection | Kind::TcpSession);
    let free = |tracking: &crate::table::Tracking| tracking.slot(counter).is_none();
    if !free(if early { &ctx.session.tracking } else { &ctx.txn.tracking }) {
        return Outcome::Next;
    }
    let now = ctx.now.mono;
    let entry = match expr.eval(ctx) {
        Ok(key) => table.get_or_insert(key, now),
        Err(Missing::NotYet) => return Outcome::NotYet,
        Err(Missing::Absent) => None,
    };
    let Some(entry) = entry else { return Outcome::Next };
    let tracked = Tracked::new(Arc::clone(table), entry, now);
    // What was counted on the other entries before this rule ran is now counted on this one.
    if kind.is_http() {
        tracked.count(Data::HttpReqCnt, 1, now);
        tracked.count(Data::HttpReqRate, 1, now);
    }
    if let Some(head) = ctx.response.as_deref().filter(|_| kind.is_response()) {
        match head.status() {
            400..=499 => {
                tracked.count(Data::HttpErrCnt, 1, now);
                tracked.count(Data::HttpErrRate, 1, now);
            }
            500 | 502..=504 | 506..=599 => {
                tracked.count(Data::HttpFailCnt, 1, now);
                tracked.count(Data::HttpFailRate, 1, now);
            }
            _ => {}
        }
    }
    if early { &mut ctx.session.tracking } else { &mut ctx.txn.tracking }.track(counter, tracked);
    Outcome::Next
}

impl HeaderName {
    fn remove_from(&self, fields: &mut Fields) {
        match self {
            HeaderName::Exactly(name) => {
                fields.remove(name);
            }
            HeaderName::Begins(part) => {
                fields.remove_if(|field| field.name.starts_with(part));
            }
            HeaderName::Ends(part) => {
                fields.remove_if(|field| field.name.ends_with(part));
            }
            HeaderName::Contains(part) => {
                fields.remove_if(|field| memchr::memmem::find(field.name, part).is_some());
            }
            HeaderName::Matches(regex) => {
                fields.remove_if(|field| regex.is_match(field.name));
            }
        }
    }
}

fn replace_header(fields: &mut Fields, name: &[u8], regex: &Regex, by: &[u8], whole: bool, most: usize) -> Outcome {
    for at in 0..fields.len() {
        let Some(field) = fields.at(at).filter(|field| field.name.eq_ignore_ascii_case(name)) else { continue };
        let mut new = Vec::with_capacity(field.value.len() + by.len());
        let mut found = false;
        if whole {
            found = regex.rewrite(field.value, by, &mut new);
        } else {
            for (at, value) in crate::fetch::split_raw(field.value).enumerate() {
                if at > 0 {
                    new.push(b',');
                }
                // Like HAProxy, a value that is replaced loses the white space around it.
                if regex.rewrite(value.trim_ascii(), by, &mut new) {
                    found = true;
                } else {
                    new.extend_from_slice(value);
                }
            }
        }
        let grown = new.len().saturating_sub(field.value.len());
        if found && (fields.text_len() + grown > most || fields.set_value_at(at, &new).is_err()) {
            return Outcome::Failed;
        }
    }
    Outcome::Next
}

impl Part {
    fn set(self, ctx: &mut Context<'_>, value: &[u8]) -> Outcome {
        let Some(head) = ctx.request.as_deref_mut() else { return Outcome::Next };
        changed(match self {
            // A rule may not turn another method into CONNECT, or CONNECT into another: its 2xx would open a tunnel, in
            // which requests pass no rules.
            Part::Method if (value == b"CONNECT") != (head.method() == b"CONNECT") => return Outcome::Failed,
            Part::Method => head.set_method(value),
            Part::Path => head.set_path(value),
            Part::PathAndQuery => head.set_path_and_query(value),
            Part::Query => head.set_query(value),
            Part::Uri => head.set_target(value).and_then(|()| head.take_host_of_target()),
        })
    }
}

impl Address {
    fn set(self, ctx: &mut Context<'_>, expr: &Expr) -> Outcome {
        let value = match expr.eval(ctx) {
            Ok(value) => value.into_owned(),
            Err(Missing::NotYet) => return Outcome::NotYet,
            Err(Missing::Absent) => return Outcome::Next,
        };
        let known = match self {
            Address::Dst | Address::DstPort => ctx.txn.destination(ctx.conn),
            Address::Src | Address::SrcPort => ctx.txn.source(ctx.conn),
        };
        // Address or port alone already make an address for a client without one, such as one of a unix socket.
        let known = known.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let changed = match self {
            Address::Dst | Address::Src => match value.cast(Type::Addr) {
                Some(Value::Ipv4(ip)) => Some(SocketAddr::new(ip.into(), known.port())),
                Some(Value::Ipv6(ip)) => Some(SocketAddr::new(ip.into(), known.port())),
                _ => None,
            },
            Address::DstPort | Address::SrcPort => {
                // As in HAProxy, of a number that is no port the lower 16 bits count.
                value.to_int().map(|port| SocketAddr::new(known.ip(), port as u16))
            }
        };
        match self {
            Address::Dst | Address::DstPort => ctx.txn.dst = changed.or(ctx.txn.dst),
            Address::Src | Address::SrcPort => ctx.txn.src = changed.or(ctx.txn.src),
        }
        Outcome::Next
    }
}
