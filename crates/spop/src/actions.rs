//! What an agent's acknowledgement asks for.

use crate::{AgentData, data::take_bytes};

/// The scope of an agent's variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckScope {
    /// The process.
    Proc,
    /// The client's session.
    Sess,
    /// A request and its response.
    Txn,
    /// The request.
    Req,
    /// The response.
    Res,
}

impl AckScope {
    const ALL: [AckScope; 5] = [AckScope::Proc, AckScope::Sess, AckScope::Txn, AckScope::Req, AckScope::Res];

    /// The word before the dot of a variable's name.
    pub fn word(self) -> &'static str {
        match self {
            AckScope::Proc => "proc",
            AckScope::Sess => "sess",
            AckScope::Txn => "txn",
            AckScope::Req => "req",
            AckScope::Res => "res",
        }
    }
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckAction<'a> {
    /// Gives a variable a value.
    SetVar {
        /// The variable's scope.
        scope: AckScope,
        /// The variable's name, without scope and prefix.
        name: &'a [u8],
        /// The variable's value.
        value: AgentData<'a>,
    },
    /// Takes a variable its value.
    UnsetVar {
        /// The variable's scope.
        scope: AckScope,
        /// The variable's name, without scope and prefix.
        name: &'a [u8],
    },
}

const SET_VAR: u8 = 1;
const UNSET_VAR: u8 = 2;

/// The actions of an acknowledgement, up to the first that is malformed or unknown: as in HAProxy, those before it count.
pub fn ack_actions(payload: &[u8]) -> impl Iterator<Item = AckAction<'_>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let action = take(&mut rest);
        if action.is_none() {
            rest = &[];
        }
        action
    })
}

fn take<'a>(input: &mut &'a [u8]) -> Option<AckAction<'a>> {
    let [kind, arguments, scope] = *input.split_off(..3)?.first_chunk()?;
    let scope = *AckScope::ALL.get(usize::from(scope))?;
    let name = take_bytes(input)?;
    match (kind, arguments) {
        (SET_VAR, 3) => Some(AckAction::SetVar { scope, name, value: AgentData::take(input)? }),
        (UNSET_VAR, 2) => Some(AckAction::UnsetVar { scope, name }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"\x01\x03\x02\x03hit\x03\x2a\x02\x02\x00\x01x";

    #[test]
    fn actions_are_read_in_order() {
        let actions: Vec<_> = ack_actions(TWO).collect();
        let set = AckAction::SetVar { scope: AckScope::Txn, name: b"hit", value: AgentData::Int(42) };
        assert_eq!(actions, [set, AckAction::UnsetVar { scope: AckScope::Proc, name: b"x" }]);
        assert_eq!(ack_actions(b"").count(), 0);
    }

    #[test]
    fn what_follows_a_malformed_action_is_not_read() {
        for bad in
            [&b"\x03\x03\x02\x01x\x00"[..], b"\x01\x02\x02\x01x\x00", b"\x01\x03\x05\x01x\x00", b"\x01\x03\x02\xff"]
        {
            let all = [TWO, bad, TWO].concat();
            assert_eq!(ack_actions(&all).count(), 2, "{bad:?}");
        }
    }

    #[test]
    fn cut_anywhere_only_whole_actions_count() {
        for cut in 0..TWO.len() {
            let whole = usize::from(cut >= 9);
            assert_eq!(ack_actions(&TWO[..cut]).count(), whole, "cut at {cut}");
        }
    }
}
