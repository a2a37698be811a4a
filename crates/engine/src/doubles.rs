//! Engines that misbehave on purpose. Each computes natively and then does one thing wrong.

use crate::{Answer, Answers, Class, Describe, Engine, Forecast, Next, Op, OpId, native};
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

/// How a [`Double`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// At once, a whole batch together, in order.
    Prompt,
    /// This long after it was started.
    Late(Duration),
    /// The newest first, each only when another has come or this time has passed.
    Reversed(Duration),
    /// With one bit flipped.
    Wrong,
    /// Wrongly this many times, then rightly.
    WrongAtFirst(u32),
    /// Never.
    Never,
    /// With an error, for everything.
    Failing,
    /// Never: the engine has no room for any operation.
    Full,
}

/// An engine that answers in a given [`Manner`].
pub struct Double {
    manner: Manner,
    lanes: usize,
    held: Vec<(OpId, Rc<Op>, Instant)>,
    answered: u32,
}

impl Double {
    /// An engine that serves every class, in batches of `lanes`.
    pub fn new(manner: Manner, lanes: usize) -> Box<Double> {
        Box::new(Double { manner, lanes, held: Vec::new(), answered: 0 })
    }
}

impl Engine for Double {
    fn start(&mut self, batch: &mut Vec<(OpId, Rc<Op>)>, now: Instant) {
        if self.manner != Manner::Full {
            self.held.extend(batch.drain(..).map(|(id, op)| (id, op, now)));
        }
    }

    fn run(&mut self, now: Instant, _: Duration, answers: &mut Answers) {
        let due = |since: &Instant, time: Duration| now.saturating_duration_since(*since) >= time;
        match self.manner {
            Manner::Never | Manner::Full => {}
            Manner::Failing => answers.extend(self.held.drain(..).map(|(id, ..)| (id, Err(crate::Failure::Internal)))),
            Manner::Prompt => answers.extend(self.held.drain(..).map(|(id, op, _)| (id, native::compute(&op)))),
            Manner::Late(time) => {
                let ready = self.held.partition_point(|(.., since)| due(since, time));
                answers.extend(self.held.drain(..ready).map(|(id, op, _)| (id, native::compute(&op))));
            }
            Manner::Reversed(time) => {
                if (self.held.len() > 1 || self.held.first().is_some_and(|(.., since)| due(since, time)))
                    && let Some((id, op, _)) = self.held.pop()
                {
                    answers.push((id, native::compute(&op)));
                }
            }
            Manner::Wrong | Manner::WrongAtFirst(_) => {
                for (id, op, _) in self.held.drain(..) {
                    self.answered += 1;
                    let wrong = match self.manner {
                        Manner::WrongAtFirst(count) => self.answered <= count,
                        _ => true,
                    };
                    let answer = native::compute(&op);
                    answers.push((id, if wrong { answer.map(spoil) } else { answer }));
                }
            }
        }
    }

    fn next(&self, now: Instant) -> Next {
        match (self.manner, self.held.first()) {
            (_, None) | (Manner::Never, _) => Next::Idle,
            (Manner::Late(time), Some((.., since))) => Next::At(*since + time),
            (Manner::Reversed(time), Some((.., since))) if self.held.len() == 1 => Next::At((*since + time).max(now)),
            _ => Next::Soon,
        }
    }
}

impl Forecast for Double {
    fn lanes(&self, _: Class) -> usize {
        self.lanes
    }
}

impl Describe for Double {
    fn name(&self) -> &'static str {
        "double"
    }
}

fn spoil(answer: Answer) -> Answer {
    match answer {
        Answer::Signature(mut bytes) => {
            bytes[7] ^= 1;
            Answer::Signature(bytes)
        }
        Answer::Shared(secret) => Answer::Shared(vec![0; secret.expose().len()].into()),
        Answer::Agreed { public, secret } => Answer::Agreed { public, secret: vec![0; secret.expose().len()].into() },
        Answer::Pair { mut public, private } => {
            public.pop();
            Answer::Pair { public, private }
        }
        Answer::KemPair { mut public, private } => {
            public.pop();
            Answer::KemPair { public, private }
        }
    }
}
