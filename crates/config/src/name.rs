//! Names of sections, servers and ACLs.

use crate::{
    args::{Parsed, Reported},
    span::Word,
    surroundings::Surroundings,
};

/// Checks a name for the characters that HAProxy allows for sections, servers and ACLs.
pub(crate) fn valid_name(name: &Word, around: &mut Surroundings) -> Parsed {
    match name.text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))) {
        None => Ok(()),
        Some(c) => {
            around
                .diagnostics
                .error(name.span, format!("the character '{c}' is not allowed in a name"))
                .hint("names are made of letters, digits, '-', '_', '.' and ':'");
            Err(Reported)
        }
    }
}
