//! The messages between an agent and the controller: JSON, each message behind its length.

use crate::load::{LoadPlan, LoadReport, Second};
use serde::{Deserialize, Serialize};

/// Goes up whenever a message, a plan or a report changes so that the other side would misread it.
pub(super) const PROTOCOL: u32 = 2;

/// The program's version: two that differ may measure differently, and are not mixed in one result.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A report with histograms of several hundred buckets is about 100 KB; anything much longer is not a report.
pub(super) const MESSAGE_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// The first message of both sides.
    Hello { protocol: u32, version: String },
    /// To the agent: its share.
    Prepare(Box<LoadPlan>),
    /// The agent has tried the server, and its threads wait.
    Prepared,
    /// Answered with a ping, to find out how long a message takes.
    Ping,
    /// To the agent: begin after this many microseconds.
    Start { after_us: u64 },
    /// From the agent, each second.
    Second(Second),
    /// To the agent: end now.
    Stop,
    /// From the agent: its result, and how late it began, seconds.
    Report { report: Box<LoadReport>, late_by: f64 },
    /// From the agent: why there is no report.
    Failed(String),
}

impl Message {
    pub(super) fn hello() -> Message {
        Message::Hello { protocol: PROTOCOL, version: VERSION.into() }
    }

    /// Why a peer with this hello is turned away.
    pub(super) fn refusal(protocol: u32, version: &str) -> Option<String> {
        (protocol != PROTOCOL || version != VERSION).then(|| {
            format!(
                "it is penstock {version} (protocol {protocol}), and this is {VERSION} (protocol {PROTOCOL}): install the \
                 same version on all machines of a test"
            )
        })
    }
}
