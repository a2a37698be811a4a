//! Addresses and networks.

use super::{
    entry::Entry,
    trie::{Trie, hash},
};
use crate::{problem::Problem, value::v6_to_v4};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// Networks by their masks; the most specific one that contains an address is found first.
#[derive(Clone, Debug, Default)]
pub(super) struct IpSet {
    v4: Networks<u32>,
    v6: Networks<u128>,
}

/// Masks from the longest to the shortest, each with its networks.
#[derive(Clone, Debug)]
struct Networks<N>(Vec<(N, OfMask<N>)>);

type OfMask<N> = Trie<(N, Arc<Entry>)>;

impl<N> Default for Networks<N> {
    fn default() -> Self {
        Networks(Vec::new())
    }
}

trait Bits: Copy + Ord + std::ops::BitAnd<Output = Self> {
    fn hash(self) -> u64;
}

impl Bits for u32 {
    fn hash(self) -> u64 {
        hash(&self.to_be_bytes())
    }
}

impl Bits for u128 {
    fn hash(self) -> u64 {
        hash(&self.to_be_bytes())
    }
}

impl<N: Bits> Networks<N> {
    /// All of them at once: net, mask, entry.
    fn of(mut all: Vec<(N, N, Arc<Entry>)>) -> Networks<N> {
        all.sort_by(|(_, one, _), (_, other, _)| other.cmp(one));
        let same = |a: &(N, N, Arc<Entry>), b: &(N, N, Arc<Entry>)| a.1 == b.1;
        let of_mask = |nets: &[(N, N, Arc<Entry>)]| {
            let items =
                nets.iter().map(|(net, mask, entry)| ((*net & *mask).hash(), (*net & *mask, Arc::clone(entry))));
            (nets[0].1, Trie::of(items.collect()))
        };
        Networks(all.chunk_by(same).map(of_mask).collect())
    }

    fn insert(&mut self, net: N, mask: N, entry: &Arc<Entry>) {
        let net = net & mask;
        // A longer mask is a larger number.
        let at = match self.0.binary_search_by(|(known, _)| mask.cmp(known)) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (mask, Trie::default()));
                at
            }
        };
        self.0[at].1.insert(net.hash(), (net, Arc::clone(entry)));
    }

    fn remove(&mut self, net: N, mask: N, entry: &Entry) {
        if let Ok(at) = self.0.binary_search_by(|(known, _)| mask.cmp(known)) {
            let nets = &mut self.0[at].1;
            nets.remove((net & mask).hash(), |(_, known)| known.id() == entry.id());
            if nets.len() == 0 {
                self.0.remove(at);
            }
        }
    }

    fn update(&mut self, net: N, mask: N, entry: &Arc<Entry>) {
        if let Ok(at) = self.0.binary_search_by(|(known, _)| mask.cmp(known)) {
            self.0[at].1.update((net & mask).hash(), |(_, known)| {
                if known.id() == entry.id() {
                    *known = Arc::clone(entry);
                }
            });
        }
    }

    fn find(&self, ip: N) -> Option<&Arc<Entry>> {
        self.0.iter().find_map(|(mask, nets)| {
            let net = ip & *mask;
            let found = match nets.few() {
                Some(few) => few.iter().map(|(_, item)| item).find(|(known, _)| *known == net),
                None => nets.with_hash(net.hash()).find(|(known, _)| *known == net),
            };
            found.map(|(_, entry)| entry)
        })
    }
}

/// The entries of a set that is made at once, which for a million takes a fraction of the time of as many
/// [`IpSet::insert`]s.
#[derive(Default)]
pub(super) struct Filling {
    v4: Vec<(u32, u32, Arc<Entry>)>,
    v6: Vec<(u128, u128, Arc<Entry>)>,
}

impl Filling {
    /// As [`IpSet::insert`].
    ///
    /// # Errors
    ///
    /// As there.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> Result<(), Problem> {
        match network_of(entry) {
            Some(Network::V4(net, mask)) => self.v4.push((net, mask, Arc::clone(entry))),
            Some(Network::V6(net, mask)) => self.v6.push((net, mask, Arc::clone(entry))),
            None => return Err(is_no_network(entry)),
        }
        Ok(())
    }

    pub(super) fn done(self) -> IpSet {
        IpSet { v4: Networks::of(self.v4), v6: Networks::of(self.v6) }
    }
}

impl IpSet {
    /// Adds `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `10.1` (which is 10.0.0.1) or `2001:db8::/32`.
    ///
    /// # Errors
    ///
    /// If the pattern is none of these. Names are not resolved, so that rules do not depend on DNS.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> Result<(), Problem> {
        match network_of(entry) {
            Some(Network::V4(net, mask)) => self.v4.insert(net, mask, entry),
            Some(Network::V6(net, mask)) => self.v6.insert(net, mask, entry),
            None => return Err(is_no_network(entry)),
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        match network_of(entry) {
            Some(Network::V4(net, mask)) => self.v4.remove(net, mask, entry),
            Some(Network::V6(net, mask)) => self.v6.remove(net, mask, entry),
            None => {}
        }
    }

    pub(super) fn update(&mut self, entry: &Arc<Entry>) {
        match network_of(entry) {
            Some(Network::V4(net, mask)) => self.v4.update(net, mask, entry),
            Some(Network::V6(net, mask)) => self.v6.update(net, mask, entry),
            None => {}
        }
    }

    /// The most specific network that contains the address.
    pub(super) fn find_v4(&self, ip: Ipv4Addr) -> Option<&Arc<Entry>> {
        self.v4.find(ip.into()).or_else(|| self.v6.find(ip.to_ipv6_mapped().into()))
    }
    /// The most specific network that contains the address. A mapped, compatible or 6to4 address is also looked for as
    /// the IPv4 address that it embeds.
    pub(super) fn find_v6(&self, ip: Ipv6Addr) -> Option<&Arc<Entry>> {
        self.v6.find(ip.into()).or_else(|| self.v4.find(v6_to_v4(ip)?.into()))
    }
}

fn is_no_network(entry: &Entry) -> Problem {
    let text = String::from_utf8_lossy(entry.key());
    let mut problem = Problem::new(0..text.len(), format!("'{text}' is neither an address nor a network"));
    if text.bytes().any(|b| b.is_ascii_alphabetic()) && !text.contains(':') {
        problem.hint = Some("write the address: names are not resolved in rules".into());
    }
    problem
}

fn network_of(entry: &Entry) -> Option<Network> {
    parse_network(std::str::from_utf8(entry.key()).ok()?)
}

/// A network and its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4(u32, u32),
    /// IPv6.
    V6(u128, u128),
}

/// Parses a network.
pub fn parse_network(text: &str) -> Option<Network> {
    let (ip, mask) = match text.split_once('/') {
        Some((ip, mask)) => (ip, Some(mask)),
        None => (text, None),
    };
    match ip.parse() {
        Ok(IpAddr::V6(ip)) => Some(Network::V6(ip.into(), mask.map_or(Some(u128::MAX), parse_mask6)?)),
        Ok(IpAddr::V4(ip)) => Some(Network::V4(ip.into(), mask.map_or(Some(u32::MAX), parse_mask4)?)),
        Err(_) => {
            // `10.12` is 10.0.0.12: zero bytes before the last may be omitted.
            let mut bytes = [0u8; 4];
            let (head, last) = ip.rsplit_once('.')?;
            if head.split('.').count() > 2 {
                return None;
            }
            for (slot, part) in bytes.iter_mut().zip(head.split('.')) {
                *slot = part.parse().ok()?;
            }
            bytes[3] = last.parse().ok()?;
            Some(Network::V4(u32::from_be_bytes(bytes), mask.map_or(Some(u32::MAX), parse_mask4)?))
        }
    }
}

/// Parses `24` or `255.255.255.0`.
pub fn parse_mask4(text: &str) -> Option<u32> {
    if let Ok(mask) = text.parse::<Ipv4Addr>() {
        return Some(mask.into());
    }
    let len: u32 = text.parse().ok().filter(|len| *len <= 32)?;
    Some(u32::MAX.checked_shl(32 - len).unwrap_or(0))
}

/// Parses `64` or `ffff:ffff::`.
pub fn parse_mask6(text: &str) -> Option<u128> {
    if let Ok(mask) = text.parse::<Ipv6Addr>() {
        return Some(mask.into());
    }
    let len: u32 = text.parse().ok().filter(|len| *len <= 128)?;
    Some(u128::MAX.checked_shl(128 - len).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_networks() {
        assert_eq!(parse_network("10.12"), Some(Network::V4(0x0a00_000c, u32::MAX)));
        assert_eq!(parse_network("192.168.1/22"), Some(Network::V4(0xc0a8_0001, 0xffff_fc00)));
        assert_eq!(parse_network("1.2.3.4/255.255.0.0"), Some(Network::V4(0x0102_0304, 0xffff_0000)));
        assert_eq!(parse_network("0.0.0.0/0"), Some(Network::V4(0, 0)));
        for wrong in ["10.0.0.0/33", "example.com", "::/129", "10.0.0.0/", "/8", ""] {
            assert_eq!(parse_network(wrong), None, "{wrong}");
        }
    }
}
