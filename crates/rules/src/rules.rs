//! Lists of rules: run in order until one decides.

use crate::{
    acl::Condition,
    action::{Action, Outcome},
    answer::Answer,
    context::{Context, Txn},
    kind::Kind,
    turn::{self, cost},
    verdict::Verdict,
};
use penstock_config::Span;

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) condition: Condition,
    pub(crate) action: Action,
    /// Where the rule is in the configuration.
    pub span: Span,
}

/// A list of rules of one kind.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The kind of the list.
    pub kind: Kind,
    pub(crate) list: Vec<Rule>,
    /// Whether `last_rule_line` tells which of them was the last.
    is_told: bool,
}

impl Rules {
    /// An empty list.
    pub fn none(kind: Kind) -> Rules {
        Rules::new(kind, Vec::new())
    }
    pub(crate) fn new(kind: Kind, list: Vec<Rule>) -> Rules {
        Rules { kind, list, is_told: true }
    }
    /// `redirect` lines, which are no rules to `last_rule_line`.
    pub(crate) fn redirects(list: Vec<Rule>) -> Rules {
        Rules { kind: Kind::HttpRequest, list, is_told: false }
    }
    /// Whether some rule has services inspect what it applies to.
    pub fn inspect(&self) -> bool {
        self.list.iter().any(|rule| matches!(rule.action, Action::Inspect(..)))
    }
    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// Number of rules.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The place in the configuration of the rule before this one: of the rule whose verdict names it as the next.
    pub fn before(&self, next: usize) -> Option<Span> {
        self.list.get(next.checked_sub(1)?).map(|rule| rule.span)
    }

    /// Runs the rules from a place on: 0 at first, later the one that a waiting verdict named.
    pub fn run(&self, ctx: &mut Context<'_>, from: usize) -> Verdict {
        let verdict = self.decide(ctx, from);
        ctx.world.at_rule(None);
        verdict
    }

    fn decide(&self, ctx: &mut Context<'_>, from: usize) -> Verdict {
        for (at, rule) in self.list.iter().enumerate().skip(from) {
            // Not before the first rule of this turn, so that each turn makes progress.
            if at > from && turn::is_spent() {
                return Verdict::Rest { next: at };
            }
            turn::spend(cost::RULE);
            ctx.world.at_rule(Some((self.kind, rule.span)));
            match rule.condition.holds(ctx) {
                Answer::Yes => {
                    // Another alternative of the condition may have asked.
                    ctx.txn.logins.take_claim();
                }
                Answer::No => {
                    ctx.txn.logins.take_claim();
                    ctx.settle();
                    continue;
                }
                Answer::NotYet if ctx.txn.logins.has_claim() => return Verdict::Verify { next: at },
                Answer::NotYet => return Verdict::WaitMore { next: at },
            }
            // The page that refuses a request or a response may tell it already.
            if matches!(rule.action, Action::Deny(_) | Action::Tarpit(_)) {
                self.tell(rule.span, ctx.txn);
            }
            let outcome = rule.action.run(self.kind, rule.span, ctx, at);
            ctx.settle();
            if ctx.txn.logins.has_claim() {
                // It ran with a sample missing, and runs again once the sample is known.
                return Verdict::Verify { next: at };
            }
            match outcome {
                Outcome::Next => {}
                Outcome::NotYet => return Verdict::WaitMore { next: at },
                Outcome::Failed => {
                    if !ctx.txn.lenient[usize::from(self.kind.is_response())] {
                        self.tell(rule.span, ctx.txn);
                        return Verdict::Failed;
                    }
                }
                // These decide nothing by themselves.
                Outcome::Done(
                    verdict @ (Verdict::CacheUse { .. }
                    | Verdict::CacheStore { .. }
                    | Verdict::Resolve { .. }
                    | Verdict::Consult { .. }
                    | Verdict::WaitBody { .. }
                    | Verdict::WaitHandshake { .. }),
                ) => return verdict,
                // Whoever gives the answer tells the rule once that is made.
                Outcome::Done(verdict @ Verdict::Respond(..)) => return verdict,
                Outcome::Done(verdict) => {
                    self.tell(rule.span, ctx.txn);
                    return verdict;
                }
            }
        }
        Verdict::Continue
    }

    /// Remembers the last rule for `last_rule_line`.
    pub fn tell(&self, last: Span, txn: &mut Txn) {
        if self.is_told {
            txn.last_rule = Some(last);
        }
    }
}
