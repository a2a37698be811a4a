//! Commands about frontends, limits of the process, and resetting counters.

use super::{Answer, Executor};
use penstock_config::model::ProxyId;
use penstock_control::{FrontendChange, Frontends, Rate, Severity};
use penstock_proxy::{Listening, Rated};

impl Executor {
    pub(super) fn frontends(&self, command: Frontends) -> Answer {
        match command {
            Frontends::Set(name, change) => match (self.handle.frontend(&name), change) {
                (None, _) => Answer::error("No such frontend."),
                (Some(_), Err(refusal)) => Answer::error(refusal.0),
                (Some(frontend), Ok(change)) => self.change_frontend(frontend, change),
            },
            Frontends::MaxConn(maxconn) => match u32::try_from(maxconn.max(0)) {
                Ok(maxconn) if self.handle.set_maxconn(maxconn) => Answer::nothing(),
                _ => Answer::error("Value out of range."),
            },
            Frontends::Rate(rate, limit) => {
                if rate == Rate::Compression {
                    // Kilobytes, as in `maxcomprate`.
                    let Ok(kib) = u64::try_from(limit) else { return Answer::error("Value out of range.") };
                    self.handle.set_compression_limit(kib.saturating_mul(1024));
                    return Answer::nothing();
                }
                let Ok(limit) = u32::try_from(limit) else { return Answer::error("Value out of range.") };
                let rated = match rate {
                    Rate::Connections => Rated::Connections,
                    Rate::Sessions => Rated::Sessions,
                    Rate::Tls => Rated::Tls,
                    Rate::Compression => return Answer::say(Severity::Notice, "Nothing is compressed here."),
                };
                self.handle.set_rate(rated, limit);
                Answer::nothing()
            }
            Frontends::ClearCounters { all } => {
                let mut waits = self.handle.clear_counters(all);
                let handle = self.handle.clone();
                Answer::poll(move |cx| {
                    waits.poll_recv(cx).map(|_| {
                        // Otherwise the worker that replaces this one could begin with the old values.
                        handle.keep_counters();
                        None
                    })
                })
            }
        }
    }

    fn change_frontend(&self, frontend: ProxyId, change: FrontendChange) -> Answer {
        let notice = |sentence| Answer::say(Severity::Notice, sentence);
        match (change, self.handle.listening(frontend)) {
            (FrontendChange::MaxConn(maxconn), _) => match u32::try_from(maxconn) {
                Ok(maxconn) => self.handle.set_frontend_maxconn(frontend, maxconn),
                Err(_) => return Answer::error("Value out of range."),
            },
            (FrontendChange::Enable, Listening::Shut) => {
                return Answer::error("Frontend was previously shut down, cannot enable.");
            }
            (FrontendChange::Enable, Listening::Open) => return notice("All sockets are already enabled."),
            (FrontendChange::Disable, Listening::Shut) => {
                return notice("Frontend was previously shut down, cannot disable.");
            }
            (FrontendChange::Disable, Listening::Paused) => return notice("All sockets are already disabled."),
            (FrontendChange::Shutdown, Listening::Shut) => return notice("Frontend was already shut down."),
            (FrontendChange::Enable, Listening::Paused) => self.handle.listen(frontend, Listening::Open),
            (FrontendChange::Disable, Listening::Open) => self.handle.listen(frontend, Listening::Paused),
            (FrontendChange::Shutdown, _) => self.handle.listen(frontend, Listening::Shut),
        }
        let mut settled = self.handle.settled();
        Answer::poll(move |cx| settled.poll_recv(cx).map(|_| None))
    }
}
