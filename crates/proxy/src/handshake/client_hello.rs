//! `tcp-request client-hello`: rules that see the ClientHello before any key is used. They may refuse the connection, or have it passed
//! on without being decrypted.

use crate::{
    connection::{
        Conn,
        socket::Socket,
        stream::{Fill, Stream},
    },
    rules::context::{Readable, context},
    tcp::raw::Raw,
    worker::turn,
};
use penstock_config::model::ProxyId;
use penstock_rules::{ClientHello, Detour, HelloError, Phase, Verdict};
use std::future::poll_fn;

/// How a connection continues after its ClientHello.
pub(crate) enum Decided {
    /// The connection is decrypted, in place of a server of the backend if there is one, beginning with the bytes that have been read.
    Decrypt(Socket, Vec<u8>, Option<ProxyId>),
    /// The connection is passed on to this backend, without being decrypted.
    Bypass(Box<Raw>, ProxyId),
    /// The connection is closed, for this reason.
    Refused(String),
}

/// Runs the rules, and reads as much of the ClientHello as they ask for; `begun` has been read already. The caller limits the time.
pub(crate) async fn decide(conn: &mut Conn<'_>, socket: Socket, begun: &[u8]) -> Decided {
    let worker = conn.worker;
    let rules = &worker.shared.program.of(conn.frontend).tcp_hello;
    let mut client = Box::new(Raw::new(Stream::Clear(socket), worker, true));
    if client.put_back(begun).is_err() {
        return Decided::Refused("No memory for the ClientHello".to_owned());
    }
    let mut x = worker.take_exchange();
    let (mut from, mut complete) = (0, false);
    let verdict = loop {
        turn::round();
        std::mem::swap(&mut x.body, &mut client.input);
        let verdict = {
            let mut context = context(conn, &mut x, Readable::Raw);
            context.input.complete = complete;
            context.phase = Phase::During;
            rules.run(&mut context, from)
        };
        std::mem::swap(&mut x.body, &mut client.input);
        match verdict {
            Verdict::WaitMore { next } if complete => from = next + 1,
            // What does not fit is not decided on: a client could evade the rules with a long ClientHello.
            Verdict::WaitMore { .. } if client.is_full() => break None,
            Verdict::WaitMore { next } => {
                from = next;
                let more = poll_fn(|cx| client.poll_more(cx)).await;
                complete = !matches!(more, Ok(Fill::Bytes(_)));
            }
            Verdict::Rest { next } => {
                from = next;
                poll_fn(turn::poll_proceed).await;
            }
            decided => break Some(decided),
        }
    };
    let (detour, rule) = (x.txn.detour.take(), x.txn.last_rule);
    conn.facts.hello_rule = rule;
    worker.give_exchange(x);
    let by = rule.map_or_else(String::new, |rule| format!(" by the client-hello rule at line {}", rule.line));
    let hello = ClientHello::read(client.pending());
    // RFC 6066, section 3, forbids it. Such a name is another one to rules and lists, and to most servers the same.
    let is_dotted = matches!(&hello, Ok(Some(hello)) if hello.sni().is_some_and(|name| name.ends_with(b".")));
    let wrong = match (hello, detour) {
        _ if is_dotted => Some("Connection refused: the server name in the ClientHello ends with a dot".to_owned()),
        // Servers may read more than can be read here, and rules saw nothing of it: such a ClientHello is passed on to none.
        (Err(why), Some(Detour::Bypass(_))) if why != HelloError::NotTls => {
            Some(format!("Connection cannot be bypassed{by}: {why}"))
        }
        _ => None,
    };
    match (verdict.filter(|_| wrong.is_none()), detour) {
        (Some(Verdict::Continue | Verdict::Accept), Some(Detour::Bypass(backend))) => Decided::Bypass(client, backend),
        (Some(Verdict::Continue | Verdict::Accept), detour) => {
            let begun = client.pending().to_vec();
            client.give_back();
            let Stream::Clear(socket) = client.stream else { unreachable!("made above") };
            let origin = match detour {
                Some(Detour::Intercept(backend)) => Some(backend),
                _ => None,
            };
            Decided::Decrypt(socket, begun, origin)
        }
        (verdict, _) => {
            if verdict == Some(Verdict::SilentDrop) {
                client.stream.socket().vanish_on_close();
            }
            // Bytes that nobody reads would turn the close into a reset.
            client.discard().await;
            conn.listener_cells().iter().for_each(|cells| cells.denied_sessions.inc());
            Decided::Refused(match (verdict, wrong) {
                (_, Some(wrong)) => wrong,
                (Some(_), None) => format!("Connection refused{by}"),
                (None, None) => "ClientHello does not fit in tune.bufsize".to_owned(),
            })
        }
    }
}
