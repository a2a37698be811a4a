//! The result of running a list of rules.

use penstock_config::{Span, model::CacheId};
use penstock_http::Version;
use std::{sync::Arc, time::Duration};

/// How a list of rules ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every rule ran; continue with the next list.
    Continue,
    /// `allow`, `accept`: the rest of this list is skipped; continue with the next one.
    Accept,
    /// Respond to the client, and do not forward.
    Respond(Why, Box<Reply>),
    /// `reject`: close the connection without a response.
    Reject,
    /// `silent-drop`: drop the connection without the client noticing.
    SilentDrop,
    /// `tcp-response content close`: close the server's side at once.
    Close,
    /// `use-service NAME`, `stats` and other responses that the layers above produce.
    Service(Arc<str>),
    /// `switch-mode http`: the stream continues as HTTP.
    SwitchToHttp(Option<Version>),
    /// `expect-proxy layer4`: a PROXY header comes first; run the list again from `next` once it has been read.
    ExpectProxy {
        /// The index of the rule to continue with.
        next: usize,
    },
    /// Too little is buffered to decide: run again from `next` with more, or with `complete` set.
    WaitMore {
        /// The index of the rule to continue with.
        next: usize,
    },
    /// `wait-for-body`: buffer that much of the body, or all of it, for at most `time`; then continue from `next`.
    WaitBody {
        /// The index of the rule to continue with.
        next: usize,
        /// How long to wait at most.
        time: Option<Duration>,
        /// How many bytes are enough; 0 for all.
        at_least: u64,
    },
    /// `cache-use`: look for a stored response; then continue from `next`.
    CacheUse {
        /// The cache to look in.
        cache: CacheId,
        /// The index of the rule to continue with.
        next: usize,
    },
    /// `cache-store`: store the response if that is allowed; then continue from `next`.
    CacheStore {
        /// The cache to store the response in.
        cache: CacheId,
        /// The index of the rule to continue with.
        next: usize,
    },
    /// `wait-for-handshake`: hold the request until early data is confirmed, then continue from `next`.
    WaitHandshake {
        /// The index of the rule to continue with.
        next: usize,
    },
    /// A password has to be checked, which is slow: run again from `next` once [`crate::Logins`] has the result.
    Verify {
        /// The index of the rule to continue with.
        next: usize,
    },
    /// `do-resolve`: continue from `next` once the name in `Txn::lookup` has been looked up.
    Resolve {
        /// Where to continue.
        next: usize,
    },
    /// `send-spoe-group`: send these messages to their agent; then continue from `next`.
    Consult {
        /// The number of the group.
        group: usize,
        /// The index of the rule to continue with.
        next: usize,
    },
    /// The task's turn is used up: continue from `next` in the next one.
    Rest {
        /// The index of the rule to continue with.
        next: usize,
    },
    /// A rule could not be applied in strict mode (a header does not fit, or a value is not valid in a header): respond
    /// with 500 for a request and 502 for a response, as HAProxy does.
    Failed,
}

/// The kind of rule that responded; counters and termination flags depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// `deny`: counted as denied, `PR` in the log.
    Deny,
    /// `tarpit`: the response is sent after `timeout tarpit`, `PT` in the log.
    Tarpit,
    /// `return`: `LR` in the log.
    Return,
    /// `redirect`: `LR` in the log.
    Redirect,
    /// `auth`: `PR` in the log.
    Auth,
}

/// A response made by a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The response's status.
    pub status: u16,
    /// Fields to send, in order; the sender sets content-length.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The response's body.
    pub body: ReplyBody,
    /// Whether the connection has to close after a `redirect`, since its target may be elsewhere.
    pub close: bool,
    /// Where the rule is in the configuration.
    pub span: Span,
}

/// The body of a [`Reply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplyBody {
    /// The proxy's own response for this status: its `errorfile`, `errorloc` or `http-error`, or the built-in page.
    #[default]
    ErrorPage,
    /// These bytes, which are shared if the rule's response is always the same; the `content-type`, if there is one, is
    /// among the fields.
    Bytes(Arc<[u8]>),
    /// A complete HTTP response as stored in an `errorfile`, sent unchanged.
    Raw(Arc<[u8]>),
}

impl Reply {
    /// A response with the proxy's own page for a status.
    pub fn error_page(status: u16, span: Span) -> Reply {
        Reply { status, span, ..Reply::default() }
    }
}
