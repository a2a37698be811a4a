//! The table of actions: where each is allowed, its arguments, and how it is parsed.

use super::{Action, Build, PacketField, Side};
use crate::{context::Detour, kind::Kind};

/// Parses the words after an action's name. `None` after an error, which has been reported.
pub(crate) type Reader = fn(&mut Build<'_, '_, '_>) -> Option<Action>;

/// A row of the table of actions.
#[derive(Clone, Copy, Debug)]
pub struct ActionSpec {
    /// The action's name, without the argument in parentheses.
    pub name: &'static str,
    /// The lists it may stand in: one bit for each [`Kind`].
    pub(crate) kinds: u16,
    /// The action's arguments, for the manual.
    pub args: &'static str,
    /// What the action does, in one line.
    pub doc: &'static str,
    /// Whether the action is implemented.
    pub(crate) works: Works,
}

/// Whether an action is implemented.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Works {
    /// The action is implemented; this parses its words.
    Yes(Reader),
    /// The action is parsed and checked, but has no effect; a notice says why.
    NoEffect(Reader, &'static str),
    /// The action is refused, for this reason.
    Refused(&'static str),
}

impl ActionSpec {
    /// Whether the action may stand in a list of this kind.
    pub fn allowed_in(&self, kind: Kind) -> bool {
        self.kinds & kind.bit() != 0
    }
    /// Why the action is refused, if it is.
    pub fn refusal(&self) -> Option<&'static str> {
        match self.works {
            Works::Refused(why) => Some(why),
            Works::Yes(_) | Works::NoEffect(..) => None,
        }
    }
    /// Whether the action has its documented effect.
    pub fn is_implemented(&self) -> bool {
        matches!(self.works, Works::Yes(_))
    }
}

const CON: u16 = 1 << Kind::TcpConnection as u16;
const HELLO: u16 = 1 << Kind::TcpHello as u16;
const SES: u16 = 1 << Kind::TcpSession as u16;
const TCP: u16 = 1 << Kind::TcpContent as u16;
const TCP_RES: u16 = 1 << Kind::TcpResponse as u16;
const REQ: u16 = 1 << Kind::HttpRequest as u16;
const RES: u16 = 1 << Kind::HttpResponse as u16;
const AFTER: u16 = 1 << Kind::HttpAfterResponse as u16;
const HTTP: u16 = REQ | RES | AFTER;
const TCP_ALL: u16 = CON | SES | TCP | TCP_RES;
/// Where the packets of a client can be marked.
const PACKETS: u16 = CON | SES | TCP | TCP_RES | REQ | RES;
const CHECK: u16 = 1 << Kind::Check as u16;
const ALL: u16 = TCP_ALL | HTTP | CHECK;

const fn row(name: &'static str, kinds: u16, args: &'static str, doc: &'static str, read: Reader) -> ActionSpec {
    ActionSpec { name, kinds, args, doc, works: Works::Yes(read) }
}

const fn refused(name: &'static str, kinds: u16, doc: &'static str, why: &'static str) -> ActionSpec {
    ActionSpec { name, kinds, args: "", doc, works: Works::Refused(why) }
}

impl ActionSpec {
    /// Marks an action as parsed but without effect.
    const fn without_effect(self, why: &'static str) -> ActionSpec {
        match self.works {
            Works::Yes(read) | Works::NoEffect(read, _) => ActionSpec { works: Works::NoEffect(read, why), ..self },
            Works::Refused(_) => self,
        }
    }
}

/// All actions.
pub const ACTIONS: &[ActionSpec] = &[
    row("accept", TCP_ALL | HELLO, "", "Ends the list; the connection goes on.", |_| Some(Action::Accept)),
    row("add-acl", REQ | RES, "(<file>) <key>", "Adds a pattern to a list.", |b| b.pattern(false, false)),
    row("add-header", HTTP, "<name> <fmt>", "Adds a field.", |b| {
        b.header(|name, value| Action::AddHeader { name, value })
    }),
    row("allow", HTTP, "", "Ends the list; the message goes on.", |_| Some(Action::Accept)),
    refused(
        "attach-srv",
        SES,
        "Keeps a client's connection to send a server's requests through.",
        "servers are connected to, they do not connect",
    ),
    row("auth", REQ, "[realm <realm>]", "Answers 401 and asks for a login.", |b| b.auth()),
    row("bypass", HELLO, "<backend>", "Passes the connection on without decrypting it.", |b| b.detour(Detour::Bypass)),
    row("cache-store", RES, "<name>", "Keeps the response in the cache.", |b| b.cache(Action::CacheStore)),
    row("cache-use", REQ, "<name>", "Answers from the cache.", |b| b.cache(Action::CacheUse)),
    row("capture", TCP | REQ | RES | AFTER, "<expr> {len <n> | id <slot>}", "Keeps a sample for the log.", |b| {
        b.capture()
    }),
    row("close", TCP_RES, "", "Closes the server's connection.", |_| Some(Action::Close)),
    row("del-acl", HTTP, "(<file>) <key>", "Removes a pattern from a list.", |b| b.pattern(false, true)),
    row("del-header", HTTP, "<name> [-m <method>]", "Removes fields.", |b| b.del_header()),
    row("del-map", HTTP, "(<file>) <key>", "Removes a pattern from a map.", |b| b.pattern(true, true)),
    row("deny", REQ | RES, "[status <code>] [<reply>]", "Answers with an error.", |b| b.deny()),
    row("disable-l7-retry", REQ, "", "This request is not sent twice.", |_| Some(Action::NoRetry)),
    row("do-resolve", TCP | REQ, "(<var>,<resolvers>[,ipv4|ipv6]) <expr>", "Resolves a name into a variable.", |b| {
        b.resolve()
    }),
    row("early-hint", REQ, "<name> <fmt>", "Sends a field in a 103 response.", |b| {
        b.header(|name, value| Action::EarlyHint { name, value, follows: false })
    }),
    refused("expect-netscaler-cip", CON, "Expects a NetScaler header.", "use the PROXY protocol"),
    row("expect-proxy", CON, "layer4", "Expects a PROXY header.", |b| {
        b.expect("layer4")?;
        Some(Action::ExpectProxy)
    }),
    row("intercept", HELLO, "<backend>", "Validates a server first, and decrypts in its place.", |b| {
        b.detour(Detour::Intercept)
    }),
    row("normalize-uri", REQ, "<normalizer> [full | strict]", "Normalises the path or the query.", |b| b.normalize()),
    refused("ot-group", ALL, "Sends a group of spans to a tracer.", "there is no tracing"),
    row("redirect", REQ | RES, "<redirection>", "Sends the client elsewhere.", |b| {
        b.redirect(true).map(Action::Redirect)
    }),
    row("reject", TCP_ALL | HELLO | REQ, "", "Closes the connection without an answer.", |_| Some(Action::Reject)),
    row("replace-header", HTTP, "<name> <regex> <fmt>", "Replaces whole values of a field.", |b| {
        b.replace_header(true)
    }),
    row("replace-path", REQ, "<regex> <fmt>", "Replaces the path.", |b| b.replace_target(super::Part::Path)),
    row("replace-pathq", REQ, "<regex> <fmt>", "Replaces path and query.", |b| {
        b.replace_target(super::Part::PathAndQuery)
    }),
    row("replace-uri", REQ, "<regex> <fmt>", "Replaces the whole target.", |b| b.replace_target(super::Part::Uri)),
    row("replace-value", HTTP, "<name> <regex> <fmt>", "Replaces single values of a field.", |b| {
        b.replace_header(false)
    }),
    row("return", REQ | RES, "[status <code>] [<reply>]", "Answers.", |b| b.return_reply()),
    row("sc-add-gpc", ALL & !CHECK, "(<idx>,<sc>) {<int> | <expr>}", "Adds to a general purpose counter.", |b| {
        b.add_gpc()
    }),
    row("sc-inc-gpc", ALL, "(<idx>,<sc>)", "Counts on a general purpose counter.", |b| b.increment(None)),
    row("sc-inc-gpc0", ALL, "(<sc>)", "Counts on the first general purpose counter.", |b| b.increment(Some(0))),
    row("sc-inc-gpc1", ALL, "(<sc>)", "Counts on the second general purpose counter.", |b| b.increment(Some(1))),
    row("sc-set-gpt", ALL, "(<idx>,<sc>) {<int> | <expr>}", "Sets a general purpose tag.", |b| b.set_gpt(false)),
    row("sc-set-gpt0", ALL, "(<sc>) {<int> | <expr>}", "Sets the first general purpose tag.", |b| b.set_gpt(true)),
    row("send-spoe-group", TCP | TCP_RES | REQ | RES, "<engine> <group>", "Sends messages to an agent.", |b| {
        b.consult()
    }),
    row("service-chain", TCP | REQ, "<chain>", "Passes the message through the services of a chain.", |b| b.inspect()),
    row(
        "set-bandwidth-limit",
        TCP | TCP_RES | REQ | RES,
        "<filter> [limit {<size> | <expr>}] [period {<time> | <expr>}]",
        "Limits the bandwidth by a filter.",
        |b| b.bandwidth(),
    ),
    row("set-bc-mark", TCP | REQ, "{<mark> | <expr>}", "Marks packets to the server.", |b| {
        b.mark_packets(Side::Server, PacketField::Mark)
    }),
    row("set-bc-tos", TCP | REQ, "{<tos> | <expr>}", "Sets the TOS of packets to the server.", |b| {
        b.mark_packets(Side::Server, PacketField::Tos)
    }),
    row("set-dst", CON | SES | TCP | REQ, "<expr>", "Sets the address the client connected to.", |b| {
        b.address(super::Address::Dst)
    }),
    row("set-dst-port", CON | SES | TCP | REQ, "<expr>", "Sets the port the client connected to.", |b| {
        b.address(super::Address::DstPort)
    }),
    row("set-fc-mark", PACKETS, "{<mark> | <expr>}", "Marks packets to the client.", |b| {
        b.mark_packets(Side::Client, PacketField::Mark)
    }),
    row("set-fc-tos", PACKETS, "{<tos> | <expr>}", "Sets the TOS of packets to the client.", |b| {
        b.mark_packets(Side::Client, PacketField::Tos)
    }),
    row("set-header", HTTP, "<name> <fmt>", "Replaces all fields of a name by one.", |b| {
        b.header(|name, value| Action::SetHeader { name, value })
    }),
    row("set-log-level", TCP | TCP_RES | HTTP, "<level>", "Sets the severity of the log line, or silences it.", |b| {
        b.log_level()
    }),
    row("set-map", HTTP, "(<file>) <key> <value>", "Sets an entry of a map.", |b| b.pattern(true, false)),
    row("set-mark", PACKETS, "{<mark> | <expr>}", "Old name of set-fc-mark.", |b| {
        b.mark_packets(Side::Client, PacketField::Mark)
    }),
    row("set-method", REQ, "<fmt>", "Sets the method.", |b| b.target(super::Part::Method)),
    row("set-nice", TCP | TCP_RES | REQ | RES, "<nice>", "Sets a priority.", |b| b.nice())
        .without_effect("all connections take turns of equal size"),
    row("set-path", REQ, "<fmt>", "Sets the path.", |b| b.target(super::Part::Path)),
    row("set-pathq", REQ, "<fmt>", "Sets path and query.", |b| b.target(super::Part::PathAndQuery)),
    row("set-priority-class", TCP | REQ, "<expr>", "Sets the priority class in queues.", |b| b.priority(true)),
    row("set-priority-offset", TCP | REQ, "<expr>", "Sets the priority offset in queues.", |b| b.priority(false)),
    row("set-query", REQ, "<fmt>", "Sets the query.", |b| b.target(super::Part::Query)),
    row("set-src", CON | SES | TCP | REQ, "<expr>", "Sets the client's address.", |b| b.address(super::Address::Src)),
    row("set-src-port", CON | SES | TCP | REQ, "<expr>", "Sets the client's port.", |b| {
        b.address(super::Address::SrcPort)
    }),
    row("set-status", RES | AFTER, "<status> [reason <text>]", "Sets the status.", |b| b.status()),
    row("set-timeout", REQ | RES, "{client | server | tunnel} {<time> | <expr>}", "Sets a timeout.", |b| b.timeout()),
    row("set-tos", PACKETS, "{<tos> | <expr>}", "Old name of set-fc-tos.", |b| {
        b.mark_packets(Side::Client, PacketField::Tos)
    }),
    row("set-uri", REQ, "<fmt>", "Sets the whole target.", |b| b.target(super::Part::Uri)),
    row("set-var", ALL | HELLO, "(<var>[,<cond>]*) <expr>", "Sets a variable.", |b| b.set_var()),
    row("set-var-fmt", ALL | HELLO, "(<var>[,<cond>]*) <fmt>", "Sets a variable to a text.", |b| b.set_var_fmt()),
    row("silent-drop", (ALL | HELLO) & !AFTER, "[rst-ttl <ttl>]", "Stops talking without telling the client.", |b| {
        b.silent_drop()
    }),
    row("strict-mode", HTTP, "{on | off}", "Whether a rule that fails ends the message.", |b| b.strict_mode()),
    row("switch-mode", TCP, "http [proto <proto>]", "Goes on as HTTP.", |b| b.switch_mode()),
    row("tarpit", REQ, "[deny_status <code>] [<reply>]", "Answers with an error, late.", |b| b.tarpit()),
    row(
        "track-sc",
        CON | SES | TCP | REQ | RES,
        "<n> <expr> [table <table>]",
        "Counts the connection or request on an entry.",
        |b| b.track(),
    ),
    row("unset-var", ALL | HELLO, "(<var>)", "Forgets a variable.", |b| b.unset_var()),
    refused("use-service", TCP, "Answers by a service of the program.", "the only one answers requests of HTTP"),
    row("use-service", REQ, "<service>", "Answers by a service of the program.", |b| b.service()),
    row("wait-for-body", REQ | RES, "time <time> [at-least <bytes>]", "Waits for the body.", |b| b.wait_for_body()),
    row("wait-for-handshake", REQ, "", "Waits for the TLS handshake to be over.", |_| Some(Action::WaitForHandshake)),
];

/// Finds an action of a list by the word written, or that of another list if this one has none of the name; `track-sc0`
/// and `set-var(txn.x)` are found too. Also returns the text in parentheses.
pub(crate) fn find(word: &str, kind: Kind) -> Option<(&'static ActionSpec, &str)> {
    let (name, args) = match word.split_once('(') {
        Some((name, rest)) => (name, rest),
        None => (word, ""),
    };
    if let Some(counter) =
        name.strip_prefix("track-sc").filter(|n| n.bytes().all(|c| c.is_ascii_digit()) && !n.is_empty())
    {
        return ACTIONS.iter().find(|spec| spec.name == "track-sc").map(|spec| (spec, counter));
    }
    let named = || ACTIONS.iter().filter(|spec| spec.name == name && name != "track-sc");
    let spec = named().find(|spec| spec.allowed_in(kind)).or_else(|| named().next())?;
    Some((spec, args))
}
