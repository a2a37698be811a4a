//! Weights and limits as operators and agents write them.

/// Parses a weight, where the configured one is `initial`.
///
/// # Errors
///
/// HAProxy's sentence.
pub fn weight_of(written: &str, initial: u32) -> Result<u32, &'static str> {
    let digits = written.trim_start_matches('-').find(|c: char| !c.is_ascii_digit());
    let (number, rest) = match digits.map(|end| end + written.len() - written.trim_start_matches('-').len()) {
        Some(end) => written.split_at(end),
        None => (written, ""),
    };
    let Ok(number) = number.parse::<i64>() else { return Err("Empty weight string empty or preceded by garbage") };
    match rest {
        "" if (0..=256).contains(&number) => Ok(number as u32),
        "" => Err("Absolute weight can only be between 0 and 256 inclusive."),
        "%" if number < 0 => Err("Relative weight must be positive."),
        "%" => Ok((number.min(25_600) * i64::from(initial) / 100).min(256) as u32),
        _ => Err("Trailing garbage in weight string"),
    }
}

/// Parses a limit of connections.
///
/// # Errors
///
/// HAProxy's sentence.
pub fn maxconn_of(written: &str) -> Result<u32, &'static str> {
    let digits = written.find(|c: char| !c.is_ascii_digit()).unwrap_or(written.len());
    match written[..digits].parse() {
        Ok(_) if digits < written.len() => Err("Trailing garbage in maxconn string"),
        Ok(maxconn) => Ok(maxconn),
        Err(_) => Err("maxconn string empty or preceded by garbage"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        for (written, wanted) in [
            ("20", Ok(20)),
            ("50%", Ok(5)),
            ("2000%", Ok(200)),
            ("99999999999%", Ok(256)),
            ("300", Err("Absolute weight can only be between 0 and 256 inclusive.")),
            ("-1", Err("Absolute weight can only be between 0 and 256 inclusive.")),
            ("abc", Err("Empty weight string empty or preceded by garbage")),
            ("", Err("Empty weight string empty or preceded by garbage")),
            ("10x", Err("Trailing garbage in weight string")),
        ] {
            assert_eq!(weight_of(written, 10), wanted, "{written}");
        }
    }

    #[test]
    fn limits() {
        assert_eq!(maxconn_of("30"), Ok(30));
        assert_eq!(maxconn_of("5x"), Err("Trailing garbage in maxconn string"));
        for garbage in ["x", "", "-1", "99999999999999"] {
            assert_eq!(maxconn_of(garbage), Err("maxconn string empty or preceded by garbage"), "{garbage}");
        }
    }
}
