//! `do-resolve`: the name that a rule wants the address of. Whoever runs the rules asks for it, and they go on with the answer.

use crate::{context::Context, value::Value, vars::VarRef};
use std::net::IpAddr;

/// A question that a `do-resolve` rule asks.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The place of the `resolvers` section in the configuration.
    pub section: usize,
    /// The name, without a port.
    pub name: String,
    /// Whether an IPv4 address is asked for first.
    pub prefers_ipv4: bool,
    /// Where the address goes.
    pub(crate) var: VarRef,
}

impl Lookup {
    /// Sets the variable to the address that was found.
    pub fn found(&self, address: IpAddr, ctx: &mut Context<'_>) {
        let value = match address {
            IpAddr::V4(address) => Value::Ipv4(address),
            IpAddr::V6(address) => Value::Ipv6(address),
        };
        ctx.set_var(&self.var, Some(value));
    }
}
