//! Commands that add and remove servers, with HAProxy's messages.

use super::{Answer, Executor, Piece};
use penstock_control::{Membership, Severity};
use penstock_proxy::{
    AddServerError,
    server::{AddError, RemoveError},
};
use std::{
    task::{Poll, ready},
    time::{Duration, Instant},
};

/// How often to check whether a server can be removed yet.
const LOOK: Duration = Duration::from_millis(20);

impl Executor {
    pub(super) fn membership(&self, command: Membership) -> Answer {
        match command {
            Membership::Add(backend, name, words) => self.add_server(backend, name, words),
            Membership::Remove(backend, name) => match self.handle.remove_server(&backend, &name) {
                Ok(()) => Answer::say(Severity::Info, "Server deleted."),
                Err(error) => Answer::error(self.why_kept(error, &backend)),
            },
            Membership::Wait(delay, Some((backend, name))) => self.wait_removable(delay, backend, name),
            Membership::Wait(delay, None) => {
                let mut left = Some(Box::pin(tokio::time::sleep(delay)));
                Answer::poll(move |cx| {
                    let Some(wait) = &mut left else { return Poll::Ready(None) };
                    ready!(wait.as_mut().poll(cx));
                    left = None;
                    Poll::Ready(Some(Piece::Say(Severity::Info, "Done.".into())))
                })
            }
        }
    }

    /// Runs beside the control thread, since a name may take time to resolve.
    fn add_server(&self, backend: String, name: String, words: Vec<String>) -> Answer {
        let handle = self.handle.clone();
        Answer::beside("add-server", move |pieces| {
            let (severity, sentence) = match handle.add_server(&backend, &name, &words) {
                Ok(_) => (Severity::Info, "New server registered.".into()),
                Err(error) => (Severity::Error, why_not_added(error)),
            };
            pieces.say(severity, sentence);
        })
    }

    fn wait_removable(&self, delay: Duration, backend: String, name: String) -> Answer {
        if let Some(error @ (RemoveError::NoServer | RemoveError::Pinned)) = self.handle.keeps_server(&backend, &name) {
            return Answer::error(self.why_kept(error, &backend));
        }
        let handle = self.handle.clone();
        Answer::beside("wait-removable", move |pieces| {
            let end = Instant::now() + delay;
            let (severity, sentence) = loop {
                let left = end.saturating_duration_since(Instant::now());
                match handle.keeps_server(&backend, &name) {
                    None => break (Severity::Info, "Done."),
                    Some(RemoveError::NoServer) => break (Severity::Error, "No such server."),
                    Some(_) if pieces.are_unwanted() => return,
                    Some(_) if left.is_zero() => break (Severity::Error, "Wait delay expired."),
                    Some(_) => std::thread::sleep(left.min(LOOK)),
                }
            };
            pieces.say(severity, sentence);
        })
    }

    fn why_kept(&self, error: RemoveError, backend: &str) -> &'static str {
        match error {
            RemoveError::NoServer if self.handle.backend(backend).is_none() => "No such backend.",
            RemoveError::NoServer => "No such server.",
            RemoveError::Pinned => {
                "This server cannot be removed at runtime due to other configuration elements pointing to it."
            }
            RemoveError::NotInMaintenance => "Only servers in maintenance mode can be deleted.",
            RemoveError::Busy => "Server still has connections attached to it, cannot remove it.",
        }
    }
}

fn why_not_added(error: AddServerError) -> String {
    match error {
        AddServerError::Invalid(sentence) => sentence,
        AddServerError::Refused(AddError::NoBackend) => "No such backend.".into(),
        AddServerError::Refused(AddError::Static) => {
            "Backend must use a dynamic load balancing to support dynamic servers.".into()
        }
        AddServerError::Refused(AddError::NameTaken) => "Already exists a server with the same name in backend.".into(),
        AddServerError::Refused(AddError::IdTaken(id, server)) => {
            format!("'id' : custom id {id} already used by 'server {server}'.")
        }
        AddServerError::Refused(AddError::TrackedUnknown(name)) => format!("unable to find '{name}' for tracking."),
        AddServerError::Refused(AddError::TrackedDynamic(name)) => {
            format!("unable to use {name} for tracking as it is a dynamic server.")
        }
        AddServerError::Refused(AddError::TrackedUnchecked(name)) => {
            format!("unable to use {name} for tracking as it does not have any check nor agent enabled.")
        }
    }
}
