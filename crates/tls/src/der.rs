//! Reads DER, element by element, where no parser of a whole structure is at hand.

/// The tag of a SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;

/// The first element: its tag, its content, and the rest. `None` if it is cut short, or longer than 16 MiB.
pub(crate) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}
