//! Levels of clients, and severities of answers.

/// What a client may do. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Sees what is not sensitive, and changes nothing.
    User,
    /// Sees everything, and may make harmless changes.
    #[default]
    Operator,
    /// May do everything.
    Admin,
}

impl Level {
    /// The level's word in configurations and answers.
    pub fn word(self) -> &'static str {
        match self {
            Level::User => "user",
            Level::Operator => "operator",
            Level::Admin => "admin",
        }
    }
}

/// The severity of a sentence in an answer, with syslog's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Severity {
    /// Something besides this command is wrong.
    Alert = 1,
    /// Something is seriously wrong.
    Critical = 2,
    /// The command was not carried out.
    Error = 3,
    /// The command was carried out, but not as might be expected.
    Warning = 4,
    /// The command was carried out, with a remark.
    Notice = 5,
    /// The command was carried out.
    Info = 6,
}

/// Whether sentences start with their severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeverityOutput {
    /// Sentences start without their severity.
    #[default]
    None,
    /// `[3]: `.
    Number,
    /// `[err]: `.
    Text,
}

impl SeverityOutput {
    /// Parses `none`, `number` and `string`.
    pub fn parse(word: &str) -> Option<SeverityOutput> {
        match word {
            "none" => Some(SeverityOutput::None),
            "number" => Some(SeverityOutput::Number),
            "string" => Some(SeverityOutput::Text),
            _ => None,
        }
    }

    /// The text before a sentence of this severity.
    pub fn prefix(self, severity: Severity) -> &'static str {
        let (number, text) = match severity {
            Severity::Alert => ("[1]: ", "[alert]: "),
            Severity::Critical => ("[2]: ", "[crit]: "),
            Severity::Error => ("[3]: ", "[err]: "),
            Severity::Warning => ("[4]: ", "[warning]: "),
            Severity::Notice => ("[5]: ", "[notice]: "),
            Severity::Info => ("[6]: ", "[info]: "),
        };
        match self {
            SeverityOutput::None => "",
            SeverityOutput::Number => number,
            SeverityOutput::Text => text,
        }
    }
}
