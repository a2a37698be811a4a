//! Views of a backend and of a server at one moment.

use super::{Backend, Changes, ServerId, Status};
use crate::balance::{Member, Totals};

/// A server at one moment.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// The server's state.
    pub status: Status,
    /// The server's data in the balance algorithm.
    pub member: Member,
    /// The server's effective weight, including slow start.
    pub weight: u32,
}

/// A backend at one moment.
#[derive(Clone, Debug)]
pub struct BackendView {
    /// Counts and weights of its servers.
    pub totals: Totals,
    /// When and how often the backend went down.
    pub changes: Changes,
    /// Requests that the algorithm assigned.
    pub lb_total: u64,
    /// The effective weight of the servers in use, including slow starts.
    pub weight: u32,
    /// The weight of the servers in use, as set by configuration and operators.
    pub user_weight: u32,
    /// How many requests wait for any server.
    pub waiting: u32,
    /// The most that have waited at once.
    pub waiting_max: u32,
}

impl<E> Backend<E> {
    /// The current state of one of its servers, while it exists.
    pub fn view_server(&self, id: ServerId) -> Option<ServerView> {
        let core = self.core();
        core.servers.get(id)?;
        let server = id.index();
        Some(ServerView {
            status: core.status[server].clone(),
            member: core.balancer.members()[server].clone(),
            weight: core.balancer.weight_of(server),
        })
    }

    /// The current state of the backend.
    pub fn view(&self) -> BackendView {
        let core = self.core();
        let totals = *core.balancer.totals();
        let in_use = |backup| backup == (totals.active == 0);
        let members = core.balancer.members().iter().zip(&core.status);
        let user_weight =
            members.filter(|(m, _)| m.usable() && in_use(m.backup)).map(|(_, status)| status.weight).sum();
        BackendView {
            totals,
            changes: core.changes,
            lb_total: core.lb_total,
            weight: core.balancer.displayed_weight(totals.weight),
            user_weight,
            waiting: core.queues.waiting_anywhere(),
            waiting_max: core.queues.most_anywhere(),
        }
    }
}
