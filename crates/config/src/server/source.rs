//! `source`: where connections to servers come from.

use crate::{
    address,
    args::{Args, Parsed},
    model::SourceAddress,
    span::Span,
};

/// Parses `ADDR[:PORT[-PORT]] [usesrc clientip] [interface NAME]`; a whole section has no range of ports.
pub(crate) fn source(args: &mut Args<'_>, ranges: bool) -> Parsed<SourceAddress> {
    let word = args.word("an address")?;
    let address::Address::Net { host, port, family } = address::parse(args, word, &word.text)? else {
        return args.wrong(
            word,
            format!("'{}' is not an address to connect from", word.text),
            "for instance 192.0.2.1",
        );
    };
    let (ip, name) = match host.as_str() {
        "" | "*" => (None, None),
        host => match address::ip(host, family) {
            Some(ip) => (Some(ip), None),
            None => (None, Some(address::host_name(args, word, host)?)),
        },
    };
    let ports = match port.filter(|p| !p.is_empty()) {
        None => None,
        Some(ports) => {
            let (first, last) = ports.split_once('-').unwrap_or((&ports, &ports));
            if !ranges && ports.contains('-') {
                let hint = "write one port here, or the range on 'server' lines";
                return args.wrong(word, "the connections of a section have no range of ports", hint);
            }
            let first = args.number_in(word, first, "a port", 0..=65535)?;
            Some((first, args.number_in(word, last, "a port", first..=65535)?))
        }
    };
    let mut source = SourceAddress { ip, name, ports, interface: None, clientip: None };
    loop {
        if args.peek().is_some_and(|word| word.text == "usesrc") {
            source.clientip = Some(usesrc(args)?);
        } else if args.take_if("interface") {
            source.interface = Some(args.text("an interface")?);
        } else {
            return Ok(source);
        }
    }
}

/// Parses `usesrc clientip`, which services alone can have.
fn usesrc(args: &mut Args<'_>) -> Parsed<Span> {
    let word = args.word("'usesrc'")?;
    let kind = args.peek().map_or("", |kind| kind.text.as_str());
    let (message, hint) = match kind {
        _ if args.around.section_kind != "service" => (
            "'usesrc' is refused: connections to servers never come from a client's address",
            "remove it, and tell servers the client's address with 'send-proxy' or 'option forwardfor'",
        ),
        "clientip" => {
            args.take();
            return Ok(word.span);
        }
        "client" => (
            "'usesrc client' is refused: of the connections that are made for a client, one alone can have its port",
            "write 'usesrc clientip'",
        ),
        _ => ("'usesrc' of a service is about its clients", "write 'usesrc clientip'"),
    };
    args.wrong(word, message, hint)
}
