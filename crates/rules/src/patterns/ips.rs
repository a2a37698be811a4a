//! Addresses and networks.

use crate::{keyword::Problem, value::v6_to_v4};
use std::{
    collections::BTreeMap,
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Networks by the length of their prefix; the longest that holds an address is found first.
#[derive(Clone, Debug, Default)]
pub struct IpSet {
    v4: Networks<u32>,
    v6: Networks<u128>,
}

/// Up to this many networks are looked through one by one.
const FEW: usize = 8;

#[derive(Clone, Debug)]
struct Networks<N> {
    /// Masks from the longest to the shortest; for each its networks.
    by_mask: BTreeMap<std::cmp::Reverse<N>, HashMap<N, u32>>,
    /// The same, flat, while they are few.
    few: Vec<(N, N, u32)>,
}

impl<N> Default for Networks<N> {
    fn default() -> Self {
        Networks { by_mask: BTreeMap::new(), few: Vec::new() }
    }
}

impl<N: Copy + Ord + std::hash::Hash + std::ops::BitAnd<Output = N>> Networks<N> {
    fn add(&mut self, net: N, mask: N, at: u32) {
        self.by_mask.entry(std::cmp::Reverse(mask)).or_default().entry(net & mask).or_insert(at);
        if self.few.len() <= FEW {
            self.few.push((net & mask, mask, at));
            // A longer mask is a larger number, so the most specific comes first.
            self.few.sort_by_key(|(_, mask, _)| std::cmp::Reverse(*mask));
        }
    }
    fn find(&self, ip: N) -> Option<u32> {
        if self.few.len() <= FEW {
            return self.few.iter().find(|(net, mask, _)| ip & *mask == *net).map(|(_, _, at)| *at);
        }
        self.by_mask.iter().find_map(|(mask, nets)| nets.get(&(ip & mask.0)).copied())
    }
}

impl IpSet {
    /// `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `10.1` (which is 10.0.0.1), `2001:db8::/32`.
    ///
    /// # Errors
    /// When it is none of these. Names are not resolved: what a rule compares with does not depend on DNS.
    pub fn add(&mut self, text: &str, at: u32) -> Result<(), Problem> {
        match parse_network(text) {
            Some(Network::V4(net, mask)) => self.v4.add(net, mask, at),
            Some(Network::V6(net, mask)) => self.v6.add(net, mask, at),
            None => {
                let mut problem = Problem::new(0..text.len(), format!("`{text}` is neither an address nor a network"));
                if text.bytes().any(|b| b.is_ascii_alphabetic()) && !text.contains(':') {
                    problem.hint = Some("write the address: names are not resolved in rules".into());
                }
                return Err(problem);
            }
        }
        Ok(())
    }
    /// The most specific network that holds the address.
    pub fn find_v4(&self, ip: Ipv4Addr) -> Option<u32> {
        self.v4.find(ip.into()).or_else(|| self.v6.find(ip.to_ipv6_mapped().into()))
    }
    /// The same for IPv6; a mapped, compatible or 6to4 address is looked for as the IPv4 address that it carries too.
    pub fn find_v6(&self, ip: Ipv6Addr) -> Option<u32> {
        self.v6.find(ip.into()).or_else(|| self.v4.find(v6_to_v4(ip)?.into()))
    }
}

/// A network and its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4(u32, u32),
    /// IPv6.
    V6(u128, u128),
}

/// Reads a network.
pub fn parse_network(text: &str) -> Option<Network> {
    let (ip, mask) = match text.split_once('/') {
        Some((ip, mask)) => (ip, Some(mask)),
        None => (text, None),
    };
    match ip.parse() {
        Ok(IpAddr::V6(ip)) => Some(Network::V6(ip.into(), mask.map_or(Some(u128::MAX), parse_mask6)?)),
        Ok(IpAddr::V4(ip)) => Some(Network::V4(ip.into(), mask.map_or(Some(u32::MAX), parse_mask4)?)),
        Err(_) => {
            // `10.12` is 10.0.0.12: the zero bytes before the last may be left out.
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

/// `24` or `255.255.255.0`.
pub fn parse_mask4(text: &str) -> Option<u32> {
    if let Ok(mask) = text.parse::<Ipv4Addr>() {
        return Some(mask.into());
    }
    let len: u32 = text.parse().ok().filter(|len| *len <= 32)?;
    Some(u32::MAX.checked_shl(32 - len).unwrap_or(0))
}

/// `64` or `ffff:ffff::`.
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
    fn the_most_specific_network_wins_in_short_and_long_lists() {
        for filler in [0, 50] {
            let mut set = IpSet::default();
            set.add("10.0.0.0/8", 100).unwrap();
            set.add("10.1.2.0/24", 101).unwrap();
            set.add("2001:db8::/32", 102).unwrap();
            for n in 0..filler {
                set.add(&format!("192.168.{n}.0/24"), n).unwrap();
            }
            assert_eq!(set.find_v4([10, 1, 2, 3].into()), Some(101));
            assert_eq!(set.find_v4([10, 9, 2, 3].into()), Some(100));
            assert_eq!(set.find_v4([11, 9, 2, 3].into()), None);
            assert_eq!(set.find_v6("2001:db8::7".parse().unwrap()), Some(102));
            assert_eq!(set.find_v6("::ffff:10.1.2.9".parse().unwrap()), Some(101));
        }
    }

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
