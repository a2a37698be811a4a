//! Parses a line of a client into commands, and these into words.

use penstock_config::text_of;

/// The longest pattern that may mark the end of a payload.
const PATTERN_MAX: usize = 64;

/// A complete line.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// The commands on the line, in order.
    pub commands: Vec<Vec<String>>,
    /// The line that ends the payload of the last command, if it has one: an empty line, or this.
    pub payload_end: Option<Vec<u8>>,
}

impl Line {
    /// Parses a line, given without its end.
    pub fn parse(bytes: &[u8]) -> Line {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let (bytes, payload_end) = match payload_mark(bytes) {
            Some((start, end)) => (&bytes[..start], Some(end.to_vec())),
            None => (bytes, None),
        };
        Line { commands: commands(bytes).map(words).collect(), payload_end }
    }
}

/// The offset of the last word, if it announces a payload, and the line that ends the payload.
fn payload_mark(line: &[u8]) -> Option<(usize, &[u8])> {
    let end = line.trim_ascii_end().len();
    let start = line[..end].iter().rposition(u8::is_ascii_whitespace).map_or(0, |space| space + 1);
    let pattern = line[start..end].strip_prefix(b"<<")?;
    (pattern.len() <= PATTERN_MAX && !pattern.contains(&b';')).then_some((start, pattern))
}

/// Splits at semicolons that are not escaped with a backslash.
fn commands(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut escaped = false;
    line.split(move |&byte| {
        let separates = byte == b';' && !escaped;
        escaped = byte == b'\\' && !escaped;
        separates
    })
}

/// Splits at blanks. A backslash escapes the next character.
fn words(command: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<Vec<u8>>;
    let mut bytes = command.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b' ' | b'\t' => words.extend(word.take()),
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.iter().map(|word| text_of(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[u8]) -> (Vec<Vec<String>>, Option<String>) {
        let line = Line::parse(line);
        (line.commands, line.payload_end.map(|end| String::from_utf8(end).unwrap()))
    }

    fn commands_of(line: &[u8]) -> Vec<String> {
        let (commands, end) = parsed(line);
        assert_eq!(end, None);
        commands.iter().map(|words| words.join("|")).collect()
    }

    #[test]
    fn semicolons_part_commands_and_blanks_part_words() {
        assert_eq!(commands_of(b"show info"), ["show|info"]);
        assert_eq!(commands_of(b"  show \t info ;show stat\r"), ["show|info", "show|stat"]);
        assert_eq!(commands_of(b"a;b; \r"), ["a", "b", ""]);
        assert_eq!(commands_of(b";a"), ["", "a"]);
        assert_eq!(commands_of(b""), [""]);
    }

    #[test]
    fn a_backslash_takes_the_meaning_away() {
        assert_eq!(commands_of(br"set map f a\;b c\ d"), ["set|map|f|a;b|c d"]);
        assert_eq!(commands_of(br"a\\;b"), [r"a\", "b"]);
        assert_eq!(commands_of(br"PA\TH x\"), ["PATH|x"]);
        assert_eq!(commands_of(br"a\ ;b"), ["a ", "b"]);
    }

    #[test]
    fn the_last_word_may_announce_a_payload() {
        assert_eq!(parsed(b"add map f <<"), (vec![vec!["add".into(), "map".into(), "f".into()]], Some(String::new())));
        assert_eq!(parsed(b"a;b <<EOF \r").1.as_deref(), Some("EOF"));
        assert_eq!(parsed(b"a <<;b").1, None, "it belongs to the last command of its line");
        assert_eq!(parsed(b"a b<<").1, None, "it is a word of its own");
        assert_eq!(parsed(&[b"a <<", &[b'x'; PATTERN_MAX + 1][..]].concat()).1, None);
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        let (commands, _) = parsed(b"get map f \xff\xe9");
        assert_eq!(*penstock_config::bytes_of(&commands[0][3]), *b"\xff\xe9");
    }
}
