//! What a list of rules decides.

use penstock_config::Span;
use std::{sync::Arc, time::Duration};

/// How a list of rules ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every rule ran; go on with the next list.
    Continue,
    /// `allow`, `accept`: the rest of this list was skipped, go on with the next one.
    Accept,
    /// Answer the client, and do not forward.
    Respond(Why, Box<Reply>),
    /// `reject`: close the connection without an answer.
    Reject,
    /// `silent-drop`: stop talking without telling the client.
    SilentDrop,
    /// `tcp-response content close`: close the server's side at once.
    Close,
    /// `use-service NAME`, `stats` and other answers that the layers above render.
    Service(Arc<str>),
    /// `switch-mode http`: the stream goes on as HTTP.
    SwitchToHttp,
    /// `expect-proxy layer4`: a PROXY header comes first; run the list again from `next` when it is read.
    ExpectProxy {
        /// Where to go on.
        next: usize,
    },
    /// Not enough is buffered to decide: run again from `next` with more, or with `complete` set.
    WaitMore {
        /// Where to go on.
        next: usize,
    },
    /// `wait-for-body`: buffer that much of the body, or all, or wait no longer, then go on from `next`.
    WaitBody {
        /// Where to go on.
        next: usize,
        /// How long.
        time: Duration,
        /// Enough bytes, 0 for all.
        at_least: u64,
    },
    /// `wait-for-handshake`: hold the request until early data is confirmed, then go on from `next`.
    WaitHandshake {
        /// Where to go on.
        next: usize,
    },
    /// A password has to be checked, which takes long: run again from `next` once [`crate::Logins`] knows of it.
    Verify {
        /// Where to go on.
        next: usize,
    },
    /// The turn of the task is spent: go on from `next` in the next one.
    Rest {
        /// Where to go on.
        next: usize,
    },
    /// A rule could not be applied in strict mode (a header that does not fit, a value that cannot stand in a header):
    /// answered with 500 for a request and 502 for a response, as HAProxy does.
    Failed,
}

/// Which kind of rule answered; counters and termination flags depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// `deny`: counted as denied, `PR` in the log.
    Deny,
    /// `tarpit`: answered after `timeout tarpit`, `PT` in the log.
    Tarpit,
    /// `return`: `LR` in the log.
    Return,
    /// `redirect`: `LR` in the log.
    Redirect,
    /// `auth`: `PR` in the log.
    Auth,
}

/// An answer made by a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Fields to send, in order; content-length is the sender's business.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its body.
    pub body: ReplyBody,
    /// `redirect` without `keep-alive` possible: the target is not known to be ours.
    pub close: bool,
    /// The rule.
    pub span: Span,
}

/// The body of a [`Reply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplyBody {
    /// What the proxy answers for this status: its `errorfile`, `errorloc` or `http-error`, or the built-in page.
    #[default]
    ErrorPage,
    /// These bytes, which all answers of a rule share where it always has the same; the `content-type`, where there is one,
    /// is among the fields.
    Bytes(Arc<[u8]>),
    /// A whole HTTP response as an `errorfile` holds it, sent as it is.
    Raw(Arc<[u8]>),
}

impl Reply {
    /// An answer that carries the proxy's own page for a status.
    pub fn error_page(status: u16, span: Span) -> Reply {
        Reply { status, span, ..Reply::default() }
    }
}
