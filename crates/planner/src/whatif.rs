//! What this machine does, and what it would do otherwise: from times measured here, and no others unless it says so.

use crate::error::Problem;

/// Microseconds of server CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The median of the rounds.
    pub median: f64,
    /// The fastest round.
    pub low: f64,
    /// The slowest round.
    pub high: f64,
    /// The number of rounds.
    pub rounds: usize,
}

impl Timing {
    /// The timing of some rounds; `None` without any.
    pub fn of(mut rounds: Vec<f64>) -> Option<Timing> {
        rounds.retain(|us| us.is_finite() && *us > 0.0);
        rounds.sort_by(f64::total_cmp);
        Some(Timing {
            median: *rounds.get(rounds.len() / 2)?,
            low: *rounds.first()?,
            high: *rounds.last()?,
            rounds: rounds.len(),
        })
    }
}

/// How a figure is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Measured here, and shown unchanged.
    Measured,
    /// Computed from times that were measured here.
    Computed,
    /// Computed with a ratio that was measured on another machine.
    Recorded,
}

impl Basis {
    /// For the reader.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Measured => "measured here",
            Basis::Computed => "computed from operations measured here",
            Basis::Recorded => "computed with ratios from another machine",
        }
    }
}

/// An operation of a handshake.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The operation's name.
    pub name: String,
    /// The time of one operation at a time.
    pub native: Timing,
    /// Each of eight, and each of four, computed together; `None` where this processor cannot.
    pub lanes: Option<(Timing, Timing)>,
    /// How many times cheaper eight at a time were where it was recorded (Sapphire Rapids, 21 November 2026).
    pub recorded: Option<f64>,
}

impl Operation {
    /// Microseconds of each of eight, and how that is known; `None` where it has not been measured.
    fn by_lanes(&self) -> Option<(f64, Basis)> {
        match (&self.lanes, self.recorded) {
            (Some((full, _)), _) => Some((full.median, Basis::Computed)),
            (None, Some(ratio)) => Some((self.native.median / ratio, Basis::Recorded)),
            (None, None) => None,
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The processor.
    pub machine: String,
    /// The number of processors that the process may use.
    pub processors: usize,
    /// The certificate: whose, and which key.
    pub certificate: String,
    /// `TLS 1.3, X25519`.
    pub protocol: String,
    /// Whether the certificate is ECDSA already.
    pub is_ecdsa: bool,
    /// A full handshake over loopback: accept, TLS, close.
    pub full: Timing,
    /// A full handshake with every processor busy.
    pub loaded: Timing,
    /// A resumed handshake.
    pub resumed: Timing,
    /// A full handshake with an ECDSA P-256 certificate.
    pub ecdsa: Timing,
    /// The signature of a full handshake.
    pub sign: Operation,
    /// The key exchange of a full handshake: a key pair and a shared secret.
    pub agree: Operation,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Share of clients that would resume.
    pub resumption: f64,
    /// QuickAssist cards.
    pub cards: f64,
    /// TPS that a card never exceeds.
    pub card_peak: f64,
    /// Microseconds of CPU to hand a handshake's operations to a card and take them back: assumed, as none is here.
    pub submit_us: f64,
    /// Share of the processors that may be used.
    pub max_utilisation: f64,
}

impl Default for Question {
    fn default() -> Self {
        Question { resumption: 0.6, cards: 1.0, card_peak: 30_000.0, submit_us: 10.0, max_utilisation: 1.0 }
    }
}

impl Question {
    /// Refuses a question with an impossible share, number of cards or rate.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn check(&self) -> Result<(), Problem> {
        let fields = [
            ("resumption", self.resumption, 0.0, 1.0),
            ("cards", self.cards, 1.0, 64.0),
            ("device-peak", self.card_peak, 1.0, 1e9),
            ("submit-us", self.submit_us, 0.0, 1e4),
            ("max-utilisation", self.max_utilisation, 0.01, 1.0),
        ];
        match fields.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            None => Ok(()),
            Some((name, value, least, most)) => Err(Problem::BadValue {
                name: name.into(),
                value: value.to_string(),
                expected: format!("expected a number from {least} to {most}"),
            }),
        }
    }
}

/// One way to run this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What would be different.
    pub what: String,
    /// A name that stays, for scripts.
    pub id: &'static str,
    /// Server CPU of a handshake.
    pub us: f64,
    /// Handshakes a second of one processor that is alone.
    pub per_processor: f64,
    /// Handshakes a second of all of them.
    pub whole: f64,
    /// The gain against the machine as it is.
    pub gain: f64,
    /// How the figure is known.
    pub basis: Basis,
    /// What limits this way to run, or what it takes.
    pub note: String,
}

/// The answers: the machine as it is, one operation at a time, first, then what would change it, most first.
pub fn answers(measured: &Measured, question: &Question) -> Vec<Answer> {
    let m = measured;
    // All processors busy: siblings share a core, and clocks fall. The other rows are taken to suffer alike.
    let slower = (m.loaded.median / m.full.median).max(1.0);
    let answer = |id, what: &str, us: f64, basis, most: f64, note: String| {
        let per_processor = 1e6 / us;
        let whole = (per_processor * m.processors as f64 / slower * question.max_utilisation).min(most);
        Answer { what: what.into(), id, us, per_processor, whole, gain: 0.0, basis, note }
    };
    let free = f64::INFINITY;
    let now = answer("now", "one at a time (engine native)", m.full.median, Basis::Measured, free, String::new());
    let mut others = Vec::new();
    if m.is_ecdsa {
        // Nothing to gain by what is there.
    } else {
        let note = "beside the RSA one, for the clients that take it: nearly all".into();
        others.push(answer("ecdsa", "with an ECDSA P-256 certificate", m.ecdsa.median, Basis::Measured, free, note));
    }
    let mix = m.full.median * (1.0 - question.resumption) + m.resumed.median * question.resumption;
    let share = question.resumption * 100.0;
    let note = format!("a resumed handshake takes {:.0} µs", m.resumed.median);
    others.push(answer(
        "resumption",
        &format!("with {share:.0} % of handshakes resumed"),
        mix,
        Basis::Measured,
        free,
        note,
    ));
    // What a handshake costs beside its public-key operations.
    let rest = (m.full.median - m.sign.native.median - m.agree.native.median).max(0.0);
    let sign = m.sign.by_lanes();
    let agree = m.agree.by_lanes();
    if let Some(((sign_us, sign_basis), (agree_us, agree_basis))) = sign.zip(agree) {
        let recorded = [sign_basis, agree_basis].contains(&Basis::Recorded);
        let (what, basis, note) = match recorded {
            false => ("with eight lanes (engine sw)", Basis::Computed, "full batches, so an upper bound".to_owned()),
            true => (
                "on a processor with AVX-512 IFMA (engine sw)",
                Basis::Recorded,
                "the clock of this processor, ratios of a Sapphire Rapids".into(),
            ),
        };
        // A lane that is dearer than one at a time is not used.
        let by_lanes = sign_us.min(m.sign.native.median) + agree_us.min(m.agree.native.median);
        others.push(answer("ifma", what, rest + by_lanes, basis, free, note));
    }
    let most = question.cards * question.card_peak * question.max_utilisation;
    let mut card = answer(
        "quickassist",
        &format!(
            "with {} QuickAssist card{} (engine hw)",
            question.cards,
            if question.cards == 1.0 { "" } else { "s" }
        ),
        rest + question.submit_us,
        Basis::Computed,
        most,
        String::new(),
    );
    card.note = format!("no card was measured: {} µs to submit and collect are assumed", question.submit_us);
    if card.whole >= most {
        card.note.push_str(&format!("; the cards' peak of {most:.0} ends it"));
    }
    others.push(card);
    others.sort_by(|a, b| b.whole.total_cmp(&a.whole));
    let base = now.whole;
    let mut all = vec![now];
    all.extend(others);
    all.iter_mut().for_each(|answer| answer.gain = answer.whole / base);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(us: f64) -> Timing {
        Timing::of(vec![us]).unwrap()
    }

    fn operation(native: f64, lanes: Option<f64>, recorded: Option<f64>) -> Operation {
        Operation {
            name: "x".into(),
            native: timing(native),
            lanes: lanes.map(|l| (timing(l), timing(l * 1.1))),
            recorded,
        }
    }

    fn measured() -> Measured {
        Measured {
            machine: "m".into(),
            processors: 4,
            certificate: "RSA-2048".into(),
            protocol: "TLS 1.3, X25519".into(),
            is_ecdsa: false,
            full: timing(600.0),
            loaded: timing(750.0),
            resumed: timing(100.0),
            ecdsa: timing(200.0),
            sign: operation(400.0, Some(100.0), None),
            agree: operation(40.0, Some(10.0), None),
        }
    }

    fn find(answers: &[Answer], id: &str) -> Answer {
        answers.iter().find(|a| a.id == id).unwrap().clone()
    }

    #[test]
    fn the_arithmetic_by_hand() {
        let all = answers(&measured(), &Question::default());
        // 4 processors x 1e6 / 750, as all are busy.
        assert!((find(&all, "now").whole - 5333.33).abs() < 0.01);
        assert!((find(&all, "ecdsa").gain - 3.0).abs() < 1e-9);
        // 0.4 x 600 + 0.6 x 100.
        assert!((find(&all, "resumption").us - 300.0).abs() < 1e-9);
        // 600 - 440 + 110.
        let sw = find(&all, "ifma");
        assert!((sw.us - 270.0).abs() < 1e-9 && sw.basis == Basis::Computed);
        // 600 - 440 + 10.
        assert!((find(&all, "quickassist").us - 170.0).abs() < 1e-9);
        assert_eq!(all[0].id, "now");
        assert!(all[1..].is_sorted_by(|a, b| a.whole >= b.whole));
    }

    #[test]
    fn a_card_ends_at_its_peak_and_lanes_that_cost_more_are_not_used() {
        let question = Question { card_peak: 6_000.0, ..Question::default() };
        let card = find(&answers(&measured(), &question), "quickassist");
        assert!(card.whole == 6_000.0 && card.note.contains("peak of 6000"), "{card:?}");
        let mut slow = measured();
        slow.sign = operation(400.0, Some(900.0), None);
        assert!((find(&answers(&slow, &question), "ifma").us - 570.0).abs() < 1e-9);
    }

    #[test]
    fn without_lanes_here_it_says_whose_ratio_it_is() {
        let mut other = measured();
        other.sign = operation(400.0, None, Some(4.0));
        let sw = find(&answers(&other, &Question::default()), "ifma");
        assert!((sw.us - 270.0).abs() < 1e-9 && sw.basis == Basis::Recorded);
        other.sign.recorded = None;
        assert!(answers(&other, &Question::default()).iter().all(|a| a.id != "ifma"), "nothing is invented");
        other.is_ecdsa = true;
        assert!(answers(&other, &Question::default()).iter().all(|a| a.id != "ecdsa"));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            Question { resumption: f64::NAN, ..Question::default() },
            Question { resumption: 1.1, ..Question::default() },
            Question { cards: 0.0, ..Question::default() },
            Question { card_peak: -1.0, ..Question::default() },
            Question { max_utilisation: 0.0, ..Question::default() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Question::default().check().is_ok());
        assert_eq!(Timing::of(vec![f64::NAN, 0.0, -1.0]), None);
    }
}
