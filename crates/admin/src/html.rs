//! Formats text for HTML.

use std::{
    fmt::{self, Display},
    time::Duration,
};

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

/// A number of at most five characters and a unit: 9 999, 12.3 k, 4.56 M. What is rounded is shown in full on hover.
pub struct Brief {
    n: u64,
    base: f64,
    units: [&'static str; 6],
}

impl Brief {
    /// A number of things.
    pub fn count(n: u64) -> Brief {
        Brief { n, base: 1000.0, units: ["k", "M", "G", "T", "P", "E"] }
    }

    /// A number of bytes.
    pub fn bytes(n: u64) -> Brief {
        Brief { n, base: 1024.0, units: ["K", "M", "G", "T", "P", "E"] }
    }
}

impl Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.n < 10_000 {
            return Count(self.n).fmt(f);
        }
        let (mut value, mut unit) = (self.n as f64, "");
        for next in self.units {
            // What would be rounded to a thousand has the next unit.
            if value < 999.5 {
                break;
            }
            value /= self.base;
            unit = next;
        }
        let decimals = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        write!(f, "<span title=\"{}\">{value:.decimals$}\u{202f}{unit}</span>", self.n)
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

/// An [`Age`] that grows: it says when it began, so that a page can count it by itself.
pub struct Since {
    /// The time now, on a clock of the process.
    pub now: Duration,
    /// The age.
    pub age: Duration,
}

impl Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A server may have been in its state for longer than the process has run. Rounded only here: the result must not depend on `now`.
        let began = (self.now.as_nanos() as i128 - self.age.as_nanos() as i128).div_euclid(1_000_000);
        write!(f, "<time data-at=\"{began}\">{}</time>", Age(self.age.as_secs()))
    }
}

/// Markup without the text of its [`Since`]: the same until something else than time has changed.
pub fn without_ages(html: String) -> String {
    const END: &str = "</time>";
    if !html.contains(END) {
        return html;
    }
    let mut out = String::with_capacity(html.len());
    for part in html.split_inclusive(END) {
        let age = part.strip_suffix(END).and_then(|before| before.rfind('>'));
        out.push_str(age.map_or(part, |start| &part[..=start]));
        out.push_str(if age.is_some() { END } else { "" });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_an_operator_typed_becomes_markup() {
        assert_eq!(Text("<b a='\"'>&").to_string(), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
    }

    #[test]
    fn what_only_ages_says_the_same_at_any_time() {
        let began = Duration::from_nanos(1_234_999_999);
        let at = |now: Duration| Since { now, age: now - began }.to_string();
        let now = [1_234_999_999, 2_000_000_001, 9_876_543_210].map(Duration::from_nanos);
        assert_eq!(
            now.map(|now| at(now).split('>').next().map(str::to_owned)),
            [
                Some("<time data-at=\"1234\"".into()),
                Some("<time data-at=\"1234\"".into()),
                Some("<time data-at=\"1234\"".into())
            ]
        );
        assert_eq!(without_ages(format!("<b>{}</b>!", at(now[2]))), "<b><time data-at=\"1234\"></time></b>!");
        assert_eq!(at(now[2]), "<time data-at=\"1234\">8s</time>");
        let restored = Since { now: Duration::from_secs(1), age: Duration::from_secs(61) };
        assert_eq!(restored.to_string(), "<time data-at=\"-60000\">1m1s</time>");
    }

    #[test]
    fn numbers_are_brief_and_whole_on_hover() {
        assert_eq!(Brief::bytes(9999).to_string(), "9\u{202f}999");
        assert_eq!(Brief::bytes(123_456_789).to_string(), "<span title=\"123456789\">118\u{202f}M</span>");
        let shown = |brief: Brief| brief.to_string().split(['>', '<']).nth(2).map(|text| text.replace('\u{202f}', " "));
        for (n, text) in [
            (10_000, "10.0 k"),
            (99_949, "99.9 k"),
            (99_950, "100 k"),
            (999_499, "999 k"),
            (999_500, "1.00 M"),
            (1_234_567, "1.23 M"),
            (u64::MAX, "18.4 E"),
        ] {
            assert_eq!(shown(Brief::count(n)).as_deref(), Some(text));
        }
        for (n, text) in [(10_000, "9.77 K"), (1_023_000, "999 K"), (1_023_900, "0.98 M"), (u64::MAX, "16.0 E")] {
            assert_eq!(shown(Brief::bytes(n)).as_deref(), Some(text));
        }
    }

    #[test]
    fn counts_and_ages_are_short() {
        assert_eq!(Count(1_234_567).to_string(), "1\u{202f}234\u{202f}567");
        assert_eq!([59, 61, 3700, 90_000].map(|s| Age(s).to_string()), ["59s", "1m1s", "1h1m", "1d1h"]);
    }
}
