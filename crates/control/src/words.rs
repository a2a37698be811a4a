//! What a client may do, and how weighty what it is told is.

/// What a client may do. Each level may do what those before it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Sees what is not sensitive, and changes nothing.
    User,
    /// Sees everything, and changes what is harmless.
    #[default]
    Operator,
    /// Does everything.
    Admin,
}

impl Level {
    /// As configurations and answers have it.
    pub fn word(self) -> &'static str {
        match self {
            Level::User => "user",
            Level::Operator => "operator",
            Level::Admin => "admin",
        }
    }
}

/// How weighty a sentence is that answers a command, by syslog's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Severity {
    /// Something is wrong beyond this command.
    Alert = 1,
    /// Something is badly wrong.
    Critical = 2,
    /// The command was not carried out.
    Error = 3,
    /// It was, but not as one may expect.
    Warning = 4,
    /// It was, and this is worth knowing.
    Notice = 5,
    /// It was.
    Info = 6,
}

/// Whether sentences begin with their severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeverityOutput {
    /// They do not.
    #[default]
    None,
    /// `[3]: `.
    Number,
    /// `[err]: `.
    Text,
}

impl SeverityOutput {
    /// From the words `none`, `number` and `string`.
    pub fn parse(word: &str) -> Option<SeverityOutput> {
        match word {
            "none" => Some(SeverityOutput::None),
            "number" => Some(SeverityOutput::Number),
            "string" => Some(SeverityOutput::Text),
            _ => None,
        }
    }

    /// What goes before a sentence.
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
