//! Which server of a backend gets which address of an answer.

use std::net::IpAddr;

/// What a server has and wants.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish<'a> {
    /// Its address now.
    pub current: Option<IpAddr>,
    /// `resolve-net`: addresses of these networks come first.
    pub networks: &'a [(IpAddr, u8)],
    /// `resolve-opts allow-dup-ip`: it may have the same address as another.
    pub may_share: bool,
}

/// The address of each server, in the order of the servers. As in HAProxy a preferred network counts more than an address that no other
/// server has, and that more than the current address; of equals the first in the answer is taken. What none may share is left over.
pub(super) fn distribute(servers: &[Wish<'_>], addresses: &[IpAddr]) -> Vec<Option<IpAddr>> {
    let mut held: Vec<Option<IpAddr>> = Vec::with_capacity(servers.len());
    for server in servers {
        let kept = server.current.filter(|ip| addresses.contains(ip));
        held.push(kept.filter(|_| server.may_share || !held.contains(&kept)));
    }
    for (place, server) in servers.iter().enumerate() {
        let mut best: Option<(u8, IpAddr)> = None;
        for &ip in addresses {
            let is_shared = held.iter().enumerate().any(|(other, has)| other != place && *has == Some(ip));
            if is_shared && !server.may_share {
                continue;
            }
            let is_preferred = server.networks.iter().any(|network| contains(*network, ip));
            let is_current = held[place] == Some(ip);
            let score = u8::from(is_preferred) << 2 | u8::from(!is_shared) << 1 | u8::from(is_current);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, ip));
            }
        }
        held[place] = best.map(|(_, ip)| ip);
    }
    held
}

fn contains((network, length): (IpAddr, u8), ip: IpAddr) -> bool {
    let differ = match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    differ >= length.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn shared_out(servers: &[Wish<'_>], addresses: &[&str]) -> Vec<String> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| ip(text)).collect();
        let given = distribute(servers, &addresses);
        given.into_iter().map(|ip| ip.map_or("-".to_owned(), |ip| ip.to_string())).collect()
    }

    fn at(current: Option<&str>) -> Wish<'static> {
        Wish { current: current.map(ip), ..Wish::default() }
    }

    #[test]
    fn servers_keep_their_addresses_and_share_the_rest() {
        assert_eq!(shared_out(&[at(None), at(None)], &["1.1.1.1", "2.2.2.2", "3.3.3.3"]), ["1.1.1.1", "2.2.2.2"]);
        let both = [at(Some("2.2.2.2")), at(Some("9.9.9.9"))];
        assert_eq!(shared_out(&both, &["1.1.1.1", "2.2.2.2"]), ["2.2.2.2", "1.1.1.1"]);
        // Two servers that start with the same address part.
        let both = [at(Some("1.1.1.1")), at(Some("1.1.1.1"))];
        assert_eq!(shared_out(&both, &["1.1.1.1", "1.1.1.1", "2.2.2.2"]), ["1.1.1.1", "2.2.2.2"]);
        assert_eq!(shared_out(&both, &["1.1.1.1"]), ["1.1.1.1", "-"]);
        let both = [at(Some("1.1.1.1")), at(Some("2.2.2.2"))];
        assert_eq!(shared_out(&both, &["2.2.2.2", "2.2.2.2"]), ["-", "2.2.2.2"]);
        assert_eq!(shared_out(&[at(None)], &[]), ["-"]);
    }

    #[test]
    fn what_is_allowed_to_be_the_same_is_so_only_where_it_must() {
        let shares = |current| Wish { may_share: true, ..at(current) };
        assert_eq!(shared_out(&[shares(None), shares(None)], &["1.1.1.1"]), ["1.1.1.1", "1.1.1.1"]);
        assert_eq!(shared_out(&[shares(None), shares(None)], &["1.1.1.1", "2.2.2.2"]), ["1.1.1.1", "2.2.2.2"]);
        // The one that may share the other's.
        assert_eq!(shared_out(&[at(None), shares(None)], &["1.1.1.1"]), ["1.1.1.1", "1.1.1.1"]);
    }

    #[test]
    fn an_address_of_a_preferred_network_comes_first() {
        let networks = [(ip("10.0.0.0"), 8), (ip("2001:db8::"), 32)];
        let prefers = |current| Wish { networks: &networks, ..at(current) };
        assert_eq!(shared_out(&[prefers(Some("1.1.1.1"))], &["1.1.1.1", "10.9.8.7"]), ["10.9.8.7"]);
        assert_eq!(shared_out(&[prefers(None)], &["2001:db9::1", "2001:db8:1::1"]), ["2001:db8:1::1"]);
        assert_eq!(shared_out(&[prefers(None)], &["11.0.0.1", "9.255.0.1"]), ["11.0.0.1"]);
        assert_eq!(shared_out(&[prefers(None), prefers(None)], &["1.1.1.1", "10.9.8.7"]), ["10.9.8.7", "1.1.1.1"]);
        let both = Wish { may_share: true, ..prefers(None) };
        assert_eq!(shared_out(&[both.clone(), both], &["1.1.1.1", "10.9.8.7"]), ["10.9.8.7", "10.9.8.7"]);
    }
}
