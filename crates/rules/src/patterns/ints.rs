//! Numbers and ranges of numbers.

use crate::keyword::Problem;

/// Ranges, both ends included, in the order written.
#[derive(Clone, Debug, Default)]
pub struct IntSet {
    ranges: Vec<(i64, i64, u32)>,
}

impl IntSet {
    /// `5`, `5:9`, `5:`, `:9`; with `dotted`, `3.1` is 3 × 65536 + 1.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn add(&mut self, text: &str, dotted: bool, at: u32) -> Result<(), Problem> {
        let number = |part: &str| -> Option<i64> {
            match part.split_once('.') {
                Some((major, minor)) if dotted => Some((major.parse::<i64>().ok()? << 16) + minor.parse::<i64>().ok()?),
                _ if dotted => Some(part.parse::<i64>().ok()? << 16),
                _ => part.parse().ok(),
            }
        };
        let range = match text.split_once(':') {
            None => number(text).map(|n| (n, n)),
            Some((low, high)) => {
                let low = if low.is_empty() { Some(i64::MIN) } else { number(low) };
                let high = if high.is_empty() { Some(i64::MAX) } else { number(high) };
                low.zip(high)
            }
        };
        match range {
            Some((low, high)) if text != ":" && low <= high => {
                self.ranges.push((low, high, at));
                Ok(())
            }
            _ => Err(Problem::new(0..text.len(), format!("`{text}` is neither a number nor a range such as 1:9"))),
        }
    }
    /// Adds a range, both ends included.
    pub fn add_range(&mut self, low: i64, high: i64, at: u32) {
        self.ranges.push((low, high, at));
    }
    /// The first range that holds the number.
    pub fn find(&self, n: i64) -> Option<u32> {
        self.ranges.iter().find(|(low, high, _)| (*low..=*high).contains(&n)).map(|(_, _, at)| *at)
    }
}
