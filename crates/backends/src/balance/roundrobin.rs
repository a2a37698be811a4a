//! `balance roundrobin`: every server takes its turns at even intervals, as many per round as its weight, and weights
//! may change during a round.
//!
//! A round has as many turns as the usable servers' total weight. A server that was given a turn is put back by the
//! round's length divided by its weight; the remainder is carried in `rest`. Turns beyond the round go to the tree of
//! the next one, by weight alone. The order among equals and the points of rounding are HAProxy's, so that a sequence
//! of choices is the same.

use super::{Algorithm, Demand, EFFECTIVE_MAX, Member, Row, View, WEIGHT_SCALE, Weights};
use std::collections::BTreeSet;

pub(super) const ROWS: &[Row] =
    &[Row { name: "roundrobin", weights: |_| Weights::Dynamic, build: |_, view| Box::new(RoundRobin::new(view)) }];

/// The factor by which turns are refined in keys, which leaves the lower bits to the carried remainder.
const TURN_SCALE: u32 = 256;

#[derive(Debug)]
struct RoundRobin {
    groups: [Group; 2],
}

/// One of the three trees of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tree {
    /// Servers with turns left in this round, by turn.
    Current,
    /// Servers by weight: [`Group::init`] says which of these two trees holds the servers not yet chosen in this round;
    /// those in the other one wait for the next.
    Fresh(usize),
}

/// The position of a server.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Tree, key, and turn of insertion, which orders equals; `None` while it is in no tree.
    node: Option<(Tree, u32, u64)>,
    /// The server's last turn.
    last: u32,
    /// The server's next turn.
    next: u32,
    /// Remainder of the division that determined its turns.
    rest: u32,
}

/// The active servers, or the backups.
#[derive(Debug, Default)]
struct Group {
    current: BTreeSet<(u32, u64, usize)>,
    fresh: [BTreeSet<(u32, u64, usize)>; 2],
    init: usize,
    /// By server; servers of the other group are in no tree.
    places: Vec<Place>,
    inserted: u64,
    /// Turns in this round, turns taken, and turns in the next round.
    curr_weight: u32,
    curr_pos: u32,
    next_weight: u32,
}

impl RoundRobin {
    fn new(view: View<'_>) -> RoundRobin {
        let group = |backup: bool, weight: u32| {
            let mut group =
                Group { curr_weight: weight, curr_pos: weight, next_weight: weight, ..Group::default() };
            group.places.resize(view.members.len(), Place::default());
            for (server, member) in view.members.iter().enumerate().filter(|(_, m)| m.backup == backup && m.usable()) {
                group.insert(server, Tree::Fresh(0), EFFECTIVE_MAX - member.eweight);
            }
            group
        };
        RoundRobin { groups: [group(false, view.totals.weight_active), group(true, view.totals.weight_backup)] }
    }
}

impl Algorithm for RoundRobin {
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        match view.lone_backup() {
            Some(lone) => Some(lone),
            None => self.groups[view.group()].choose(view.members, demand),
        }
    }

    fn update(&mut self, server: usize, before: &Member, View { members, totals, .. }: View<'_>) {
        let member = &members[server];
        let group = &mut self.groups[usize::from(member.backup)];
        group.places.resize(members.len().max(group.places.len()), Place::default());
        let old_weight = if before.usable() { before.eweight } else { 0 };
        let new_weight = if member.usable() { member.eweight } else { 0 };
        group.next_weight = group.next_weight - old_weight + new_weight;
        debug_assert_eq!(group.next_weight, if member.backup { totals.weight_backup } else { totals.weight_active });
        match (old_weight, new_weight) {
            (0, 0) => {}
            (_, 0) => group.remove(server),
            (0, weight) => group.bring_up(server, weight, members),
            (_, weight) => group.reweigh(server, weight, members),
        }
    }

    fn vacated(&mut self, slot: usize) {
        for group in &mut self.groups {
            if let Some(place) = group.places.get_mut(slot) {
                *place = Place::default();
            }
        }
    }

    fn fills_every_server(&self) -> bool {
        true
    }
}

impl Group {
    fn tree(&mut self, tree: Tree) -> &mut BTreeSet<(u32, u64, usize)> {
        match tree {
            Tree::Current => &mut self.current,
            Tree::Fresh(which) => &mut self.fresh[which],
        }
    }

    fn insert(&mut self, server: usize, tree: Tree, key: u32) {
        self.inserted += 1;
        let order = self.inserted;
        self.tree(tree).insert((key, order, server));
        self.places[server].node = Some((tree, key, order));
    }

    fn remove(&mut self, server: usize) {
        if let Some((tree, key, order)) = self.places[server].node.take() {
            self.tree(tree).remove(&(key, order, server));
        }
    }

    /// Inserts a server according to its next turn: in this round, or in the next one.
    fn queue(&mut self, server: usize, members: &[Member]) {
        let eweight = members[server].eweight;
        if !members[server].usable() {
            return;
        }
        let place = &mut self.places[server];
        if place.next >= self.curr_weight * 2 || place.next >= self.curr_weight + self.next_weight {
            place.next = place.next.wrapping_sub(self.curr_weight);
            self.insert(server, Tree::Fresh(1 - self.init), EFFECTIVE_MAX - eweight);
        } else {
            let key = TURN_SCALE
                .wrapping_mul(place.next)
                .wrapping_add((EFFECTIVE_MAX + place.rest).wrapping_sub(eweight) / WEIGHT_SCALE);
            self.insert(server, Tree::Current, key);
        }
    }

    /// The first server whose turn has come, else the heaviest not yet chosen, else the first with a later turn.
    fn first(&mut self) -> Option<usize> {
        let due = self.current.first().map(|node| node.2);
        if let Some(server) = due.filter(|&s| self.places[s].next <= self.curr_pos) {
            return Some(server);
        }
        let Some(&(_, _, fresh)) = self.fresh[self.init].first() else { return due };
        self.places[fresh].next = 0;
        self.places[fresh].rest = 0;
        Some(fresh)
    }

    /// Ends the round: servers that waited for the next one now count as not yet chosen.
    fn switch(&mut self) {
        self.init = 1 - self.init;
        self.curr_weight = self.next_weight;
        self.curr_pos = self.curr_weight;
    }

    /// Uses up the turn of a server and computes its next one.
    fn advance(&mut self, server: usize, eweight: u32) {
        let place = &mut self.places[server];
        if place.next == 0 {
            place.next = self.curr_pos;
        }
        place.last = place.next;
        place.next += self.next_weight / eweight;
        place.rest += self.next_weight % eweight;
        if place.rest >= eweight {
            place.rest -= eweight;
            place.next += 1;
        }
    }

    fn choose(&mut self, members: &[Member], demand: &Demand) -> Option<usize> {
        if self.curr_weight == 0 {
            self.curr_weight = self.next_weight;
            self.curr_pos = self.next_weight;
        }
        let mut avoided = None;
        let mut switched = false;
        // Full or avoided servers, which are removed and put back in reverse order.
        let mut passed = Vec::new();
        let chosen = loop {
            let server = match self.first() {
                Some(server) => server,
                None if switched => break avoided,
                None => {
                    switched = true;
                    self.switch();
                    continue;
                }
            };
            self.advance(server, members[server].eweight);
            self.remove(server);
            self.curr_pos += 1;
            if members[server].has_room(&demand.load) {
                if demand.avoid != Some(server) || avoided.is_some() {
                    break Some(server);
                }
                avoided = Some(server);
            }
            passed.push(server);
        };
        if let Some(server) = chosen {
            self.queue(server, members);
        }
        for server in passed.into_iter().rev().filter(|&s| chosen != Some(s)) {
            if switched {
                // Their turn is lost with the old round: only their weight counts.
                self.insert(server, Tree::Fresh(self.init), EFFECTIVE_MAX - members[server].eweight);
            } else {
                self.queue(server, members);
            }
        }
        chosen
    }

    /// Inserts a server that comes up; it waits as long as if it had just had a turn.
    fn bring_up(&mut self, server: usize, eweight: u32, members: &[Member]) {
        let left = (self.next_weight + self.curr_weight).wrapping_sub(self.curr_pos);
        self.places[server].next = self.curr_pos.wrapping_add(left / eweight);
        self.queue(server, members);
    }

    fn reweigh(&mut self, server: usize, eweight: u32, members: &[Member]) {
        let tree = self.places[server].node.map(|node| node.0);
        self.remove(server);
        match tree {
            Some(Tree::Fresh(which)) if which == self.init => {
                self.insert(server, Tree::Fresh(which), EFFECTIVE_MAX - eweight)
            }
            None => self.bring_up(server, eweight, members),
            Some(tree) => {
                let step = self.next_weight / eweight;
                let place = &mut self.places[server];
                if tree != Tree::Current {
                    place.next = place.next.wrapping_add(self.curr_weight);
                }
                place.next = (place.last + step).min(place.next);
                place.rest = 0;
                if place.next < self.curr_pos + 2 {
                    place.next = self.curr_pos + step;
                }
                self.queue(server, members);
            }
        }
    }
}
