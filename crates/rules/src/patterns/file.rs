//! Parses the files of lists and maps.

/// Lines that contain a pattern, with their numbers. Spaces before the pattern are removed; empty lines and those that
/// start with `#` are skipped.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split(|&byte| byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.starts_with(b"#"))
        .map(|(at, line)| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let begin = line.iter().position(|byte| !blank(byte)).unwrap_or(line.len());
            (at + 1, &line[begin..])
        })
        .filter(|(_, line)| !line.is_empty())
}

fn blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The patterns of a list, with their line numbers.
pub(crate) fn parse_list(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    lines(text)
}

/// The patterns of a map with their line numbers and values: a space or tab ends the pattern.
pub(crate) fn parse_map(text: &[u8]) -> impl Iterator<Item = (usize, &[u8], &[u8])> {
    lines(text).map(|(at, line)| {
        let key = line.iter().position(blank).unwrap_or(line.len());
        let value = line[key..].iter().position(|byte| !blank(byte)).map_or(line.len(), |spaces| key + spaces);
        let end = line.iter().rposition(|byte| !blank(byte)).map_or(value, |last| (last + 1).max(value));
        (at, &line[..key], &line[value..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_as_the_manual_says() {
        let map: Vec<_> = parse_map(b"# comment\n\n  a.example  bk1 \n#b x\n #c\tbk2\nplain\r\nlast  ").collect();
        let expected: [(usize, &[u8], &[u8]); 4] =
            [(3, b"a.example", b"bk1"), (5, b"#c", b"bk2"), (6, b"plain", b""), (7, b"last", b"")];
        assert_eq!(map, expected);
    }
}
