//! What the agent of a server says, and the consequences.

use super::{Admin, Backends, Cause, Notice, ServerRef, maxconn_of, weight_of};
use crate::check::{
    Effect, Outcome, Verdict,
    agent::{AgentReply, AgentState},
    schedule::Conclusion,
};
use penstock_config::syslog;
use std::time::{Duration, Instant};

/// Why a weight is refused if the algorithm's are fixed.
pub const FIXED_WEIGHTS: &str = "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.";

impl<E> Backends<E> {
    /// Records that the agent of `at` is being asked.
    pub fn asking_begins(&self, at: ServerRef) {
        let Some((_, mut core)) = self.lock(at) else { return };
        if let Some(agent) = core.status[at.server.index()].agent.as_mut() {
            agent.running = true;
        }
    }

    /// Applies an agent's answer: first the state it asks for, then weight and limit, then health. Unlike checks, agents are asked
    /// during maintenance too, since only they end the maintenance that they asked for. With `told`, every result that
    /// differs from the one before is logged.
    pub fn agent_answered(&self, at: ServerRef, answer: &AgentReply, took: Duration, told: bool, now: Instant) {
        let since = self.since(now);
        match answer.state {
            Some(AgentState::Ready) => {
                self.set_admin(at, Admin::FORCED_MAINT, false, since);
                self.set_admin(at, Admin::FORCED_DRAIN, false, since);
            }
            Some(AgentState::Drain) => {
                self.set_admin(at, Admin::FORCED_DRAIN, true, since);
                self.set_admin(at, Admin::FORCED_MAINT, false, since);
            }
            Some(AgentState::Maint) => {
                self.set_admin(at, Admin::FORCED_MAINT, true, since);
                self.set_admin(at, Admin::FORCED_DRAIN, false, since);
            }
            None => {}
        }
        let weight = answer.weight.as_deref().map(|written| self.weigh(at, written, now));
        let limit = answer.maxconn.as_deref().map(|written| {
            self.set_maxconn(at, maxconn_of(written)?);
            Ok(())
        });
        let refused = [weight, limit].into_iter().flatten().find_map(Result::err);
        let Some((_, mut core)) = self.lock(at) else { return };
        let slot = at.server.index();
        let backup = core.server(slot).config.settings.backup;
        let status = &mut core.status[slot];
        let check_is_well = status.live_check().is_none_or(|check| check.health >= check.rise);
        let weight = status.weight;
        // It may have been switched off while the answer was on its way.
        let Some(agent) = status.agent.as_mut().filter(|agent| agent.enabled) else { return };
        const IGNORED: &str = "Ignoring incomplete line from agent";
        let outcome = match answer.outcome(refused) {
            Some(outcome) => outcome,
            // HAProxy waits for the rest, in vain, as long as there is no result that could remain.
            None if agent.status.is_empty() => Outcome::new(Verdict::L7Timeout, IGNORED),
            None => {
                (agent.running, agent.info, agent.duration) = (false, IGNORED.into(), Some(took));
                return;
            }
        };
        let before = agent.status;
        let (conclusion, moved) = agent.record_agent(&outcome, took);
        let agent = agent.clone();
        if moved
            && outcome.verdict == Verdict::L7Status
            && let Some(check) = status.check.as_mut()
        {
            check.failed += 1;
        }
        drop(core);
        let effect = outcome.verdict.effect();
        if told && effect != Effect::Neutral && before != agent.status {
            let kind = if backup { "backup server" } else { "server" };
            let end = if effect == Effect::Failed { "failed" } else { "succeeded" };
            let mut text = format!("Agent check for {kind} {} {end}", self.name(at));
            agent.append_report(&mut text);
            let up = agent.health >= agent.rise;
            let (n, m) = agent.progress(up);
            let word = match (up, weight) {
                (true, 0) => "DRAIN",
                (true, _) => "UP",
                _ => "DOWN",
            };
            text.push_str(&format!(", status: {n}/{m} {word}."));
            self.announce(&Notice { proxy: at.proxy, severity: syslog::NOTICE, text, mailed: Some(syslog::INFO) });
        }
        let cause = Cause { check: !told, agent: true, ..Cause::default() };
        match conclusion {
            Conclusion::Down => self.set_stopped(at, &cause, now),
            // A server is up only if both its check and its agent say so.
            Conclusion::Up if check_is_well => self.set_running(at, &cause, now),
            _ => {}
        }
    }

    /// Sets the weight that an agent asks for.
    fn weigh(&self, at: ServerRef, written: &str, now: Instant) -> Result<(), &'static str> {
        let Some(server) = self.server(at) else { return Ok(()) };
        let initial = server.config.settings.weight;
        let weight = weight_of(written, initial)?;
        let dynamic = self.get(at.proxy).is_some_and(|backend| backend.has_dynamic_weights());
        if !dynamic && weight != 0 && weight != initial {
            return Err(FIXED_WEIGHTS);
        }
        self.set_weight(at, weight, now);
        Ok(())
    }
}
