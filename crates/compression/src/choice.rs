//! Which coding a client accepts, of those configured.

use penstock_config::model::CompressionAlgorithm;
use penstock_http::{Fields, is_token, list};

/// The algorithm that the client prefers: of the largest weight, and among those of equal weight the first that it names.
///
/// `*` stands for the algorithm that was configured last.
///
/// Where brotli or zstd is offered, which HAProxy does not know, the first that was configured is the one among those of equal
/// weight: browsers name gzip first, and would never get anything else.
pub(crate) fn accepted(request: &Fields, offered: &[CompressionAlgorithm]) -> Option<CompressionAlgorithm> {
    if offered.iter().any(|algorithm| algorithm.is_beyond_haproxy()) {
        return first_of_the_heaviest(request, offered);
    }
    let (mut best, mut chosen) = (0, None);
    for element in request.get_all(b"accept-encoding").flat_map(list) {
        let coding = &element[..element.iter().take_while(|c| is_token(&[**c])).count()];
        let weight = weight(&element[coding.len()..]);
        if weight <= best {
            continue;
        }
        let any = element.starts_with(b"*");
        let found = offered.iter().rev().find(|it| any || coding.eq_ignore_ascii_case(it.coding().as_bytes()));
        if let Some(algorithm) = found {
            (best, chosen) = (weight, Some(*algorithm));
        }
    }
    chosen
}

/// The first of those that the client gives the largest weight, which is that of `*` for what it does not name (RFC 9110 section 12.5.3).
fn first_of_the_heaviest(request: &Fields, offered: &[CompressionAlgorithm]) -> Option<CompressionAlgorithm> {
    let (mut named, mut any) = ([None; CompressionAlgorithm::NAMED.len()], 0);
    let named = &mut named[..offered.len().min(CompressionAlgorithm::NAMED.len())];
    for element in request.get_all(b"accept-encoding").flat_map(list) {
        let coding = &element[..element.iter().take_while(|c| is_token(&[**c])).count()];
        let weight = weight(&element[coding.len()..]);
        if coding == b"*" {
            any = weight;
        }
        for (found, algorithm) in named.iter_mut().zip(offered) {
            if coding.eq_ignore_ascii_case(algorithm.coding().as_bytes()) {
                *found = Some(weight);
            }
        }
    }
    let (mut best, mut chosen) = (0, None);
    for (found, algorithm) in named.iter().zip(offered) {
        let weight = found.unwrap_or(any);
        if weight > best {
            (best, chosen) = (weight, Some(*algorithm));
        }
    }
    chosen
}

/// The weight, in thousandths, among the parameters of an element: 1000 without one.
fn weight(parameters: &[u8]) -> u32 {
    let mut parts = parameters.split(|c| *c == b';').map(<[u8]>::trim_ascii);
    // What stands between the coding and its parameters makes the element one without parameters.
    if parts.next().is_some_and(|between| !between.is_empty()) {
        return 1000;
    }
    parts.find_map(|part| part.strip_prefix(b"q=")).map_or(1000, thousandths)
}

/// A weight (RFC 9110 section 12.4.2) in thousandths; what cannot be read counts as 1.
fn thousandths(text: &[u8]) -> u32 {
    let digit = |at: usize| text.get(at).filter(|c| c.is_ascii_digit()).map(|c| u32::from(c - b'0'));
    let Some(whole) = digit(0) else { return 1000 };
    let mut value = whole * 1000;
    if text.get(1) == Some(&b'.') {
        for (at, unit) in [(2, 100), (3, 10), (4, 1)] {
            let Some(digit) = digit(at) else { break };
            value += digit * unit;
        }
    }
    value.min(1000)
}

/// Whether the client calls itself `Mozilla/4`, of which only later versions of Internet Explorer decode what they accept: 6
/// with `SV1` (the second service pack of Windows XP), and 7 onwards.
pub(crate) fn is_too_old(request: &Fields) -> bool {
    let Some(agent) = request.get(b"user-agent") else { return false };
    if !agent.starts_with(b"Mozilla/4") {
        return false;
    }
    let says = |at: usize, text: &[u8]| agent.get(at..).is_some_and(|rest| rest.starts_with(text));
    match agent.get(30) {
        Some(b'6') if says(25, b"MSIE ") => !says(51, b"SV1"),
        Some(version) if says(25, b"MSIE ") => *version < b'6',
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CompressionAlgorithm::{Brotli, Deflate, Gzip, Identity, RawDeflate, Zstd};

    fn fields(name: &str, values: &[&str]) -> Fields {
        let mut fields = Fields::new();
        for value in values {
            fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        fields
    }

    #[test]
    fn the_heaviest_coding_is_chosen_and_of_equals_the_first_named() {
        let both = &[Gzip, Deflate][..];
        for (values, offered, expected) in [
            (&["gzip"][..], both, Some(Gzip)),
            (&["deflate, gzip"], both, Some(Deflate)),
            (&["gzip;q=0.5, deflate;q=0.8"], both, Some(Deflate)),
            (&["gzip;q=0.5", "deflate;q=0.4"], both, Some(Gzip)),
            (&["GZip"], both, Some(Gzip)),
            (&["gzip;q=0"], both, None),
            (&["gzip;q=0.000"], both, None),
            (&["gzip; x=1 ; q=0.3, deflate;q=.9"], both, Some(Deflate)),
            (&["gzip;q=0.001"], both, Some(Gzip)),
            (&["gzip;q=7, deflate"], both, Some(Gzip)),
            (&["gzip q=0"], both, Some(Gzip)),
            (&["x-gzip"], both, None),
            (&["*"], both, Some(Deflate)),
            (&["*;q=0.5, gzip;q=0.6"], both, Some(Gzip)),
            (&["br"], both, None),
            (&[""], both, None),
            (&["deflate"], &[RawDeflate, Deflate], Some(Deflate)),
            (&["deflate"], &[Deflate, RawDeflate], Some(RawDeflate)),
            (&["identity, gzip"], &[Gzip, Identity], Some(Identity)),
            (&["gzip"], &[], None),
        ] {
            assert_eq!(accepted(&fields("accept-encoding", values), offered), expected, "{values:?}");
        }
    }

    #[test]
    fn with_brotli_or_zstd_the_first_configured_is_chosen_of_equals() {
        let all = &[Zstd, Brotli, Gzip][..];
        for (values, offered, expected) in [
            (&["gzip, deflate, br, zstd"][..], all, Some(Zstd)),
            (&["gzip, deflate, br, zstd"], &[Gzip, Zstd], Some(Gzip)),
            (&["gzip, deflate, br"], all, Some(Brotli)),
            (&["gzip", "BR;q=0.9"], all, Some(Gzip)),
            (&["gzip;q=0.2, br;q=0.9, zstd;q=0.8"], all, Some(Brotli)),
            (&["zstd;q=0, *"], all, Some(Brotli)),
            (&["*;q=0, gzip"], all, Some(Gzip)),
            (&["*;q=0"], all, None),
            (&["identity"], all, None),
            (&["identity, zstd;q=0.5"], all, Some(Zstd)),
            (&["br;q=0.5, identity"], &[Brotli, Identity], Some(Identity)),
            (&["zstandard"], all, None),
            (&[""], all, None),
        ] {
            assert_eq!(accepted(&fields("accept-encoding", values), offered), expected, "{values:?}");
        }
    }

    #[test]
    fn old_browsers_get_nothing_compressed() {
        for (agent, old) in [
            ("Mozilla/5.0 (X11; Linux x86_64)", false),
            ("curl/8", false),
            ("Mozilla/4.0", true),
            ("Mozilla/4.08 [en] (Win98; I ;Nav)", true),
            ("Mozilla/4.0 (compatible; MSIE 5.5; Windows NT 5.0)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", true),
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)", false),
            ("Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 6.0)", false),
        ] {
            assert_eq!(is_too_old(&fields("user-agent", &[agent])), old, "{agent}");
        }
        assert!(!is_too_old(&Fields::new()));
    }
}
