//! Any text as a sample expression, evaluated on any request where it compiles.
//!
//! The first line is the expression, the rest the request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_config::{NoFiles, model::ProxyId};
use penstock_http::{Limits, Parse, RequestHead};
use penstock_rules::{
    Buffered, ConnFacts, Context, Linker, LogFacts, NoWorld, Now, Phase, Place, Places, ProxyFacts, Session,
    Txn,
};

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let input = data.get(end + 1..).unwrap_or_default();
    let config = penstock_config::Config::default();
    let mut linker = Linker::new(&config, &NoFiles);
    let Ok((expr, _)) = linker.expression_in(text, 0, Place { proxy: None, place: Places::ALWAYS }) else { return };
    let mut head = RequestHead::new();
    let parsed = head.parse(input, &Limits::default());
    let body = match parsed {
        Ok(Parse::Complete { consumed }) => &input[consumed..],
        _ => input,
    };
    let (mut session, mut txn) = (Session::default(), Txn::default());
    let ctx = Context {
        phase: Phase::During,
        now: Now::default(),
        conn: &ConnFacts::default(),
        frontend: (ProxyId(0), &ProxyFacts::default()),
        backend: None,
        server: None,
        server_conn: None,
        request: matches!(parsed, Ok(Parse::Complete { .. })).then_some(&mut head),
        response: None,
        input: Buffered { bytes: body, complete: true, raw: false, announced: None },
        output: Buffered { bytes: body, complete: false, raw: true, announced: None },
        session: &mut session,
        txn: &mut txn,
        log: &LogFacts::default(),
        world: &NoWorld,
    };
    let _ = expr.eval(&ctx).map(|value| value.to_text());
    let _ = expr.any(&ctx, |_| false);
});
