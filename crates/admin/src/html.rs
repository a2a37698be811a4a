//! Formats text for HTML.

use std::fmt::{self, Display};

/// A text that is escaped when it is written.
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// A number with thin spaces between thousands; zero is shown in a pale colour.
pub struct Count(pub u64);

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("<span class=\"zero\">0</span>");
        }
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str("\u{202f}")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A duration in its two largest units: `3d4h`, `5m12s`.
pub struct Age(pub u64);

impl Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
        match (days, hours, minutes) {
            (0, 0, 0) => write!(f, "{seconds}s"),
            (0, 0, _) => write!(f, "{minutes}m{}s", seconds % 60),
            (0, ..) => write!(f, "{hours}h{minutes}m"),
            _ => write!(f, "{days}d{hours}h"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_an_operator_typed_becomes_markup() {
        assert_eq!(Text("<b a='\"'>&").to_string(), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
    }

    #[test]
    fn counts_and_ages_are_short() {
        assert_eq!(Count(1_234_567).to_string(), "1\u{202f}234\u{202f}567");
        assert_eq!([59, 61, 3700, 90_000].map(|s| Age(s).to_string()), ["59s", "1m1s", "1h1m", "1d1h"]);
    }
}
