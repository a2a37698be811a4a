//! Any text as a log format, rendered where it compiles: a line never holds a control character that was not written in
//! the format itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_config::{NoFiles, model::ProxyId};
use penstock_rules::{
    Buffered, ConnFacts, Context, Linker, LogFacts, NoWorld, Now, Phase, Place, Places, ProxyFacts, Session,
    Txn, log::Purpose,
};

fuzz_target!(|text: &str| {
    let config = penstock_config::Config::default();
    let (mut session, mut txn) = (Session::default(), Txn::default());
    for purpose in [Purpose::Log, Purpose::Http, Purpose::UniqueId, Purpose::Text] {
        let mut linker = Linker::new(&config, &NoFiles);
        let place = Place { proxy: None, place: Places::ALWAYS };
        let Ok(format) = linker.log_format(text, purpose, place) else { return };
        let ctx = Context {
            phase: Phase::After,
            now: Now::default(),
            conn: &ConnFacts::default(),
            frontend: (ProxyId(0), &ProxyFacts::default()),
            backend: None,
            server: None,
            server_conn: None,
            request: None,
            response: None,
            input: Buffered::default(),
            output: Buffered::default(),
            session: &mut session,
            txn: &mut txn,
            log: &LogFacts::default(),
            world: &NoWorld,
        };
        let mut out = Vec::new();
        format.render(&ctx, &mut out);
        if purpose == Purpose::Http && !text.bytes().any(|byte| byte.is_ascii_control()) {
            assert!(!out.iter().any(|&byte| byte == b'\r' || byte == b'\n' || byte == 0), "{text:?} gave {out:?}");
        }
    }
});
