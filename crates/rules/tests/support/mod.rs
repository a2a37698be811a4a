//! A configuration compiled, and a request run through it, without a socket.

#![allow(dead_code, reason = "each test uses a part of it")]

use penstock_config::{
    Config, Diagnostics, Env,
    model::{PerProxy, ProxyId, Source},
};
use penstock_http::{Limits, Parse, RequestHead, ResponseHead};
use penstock_rules::{
    Buffered, Compiler, ConnFacts, Context, LogFacts, NoWorld, Now, Phase, ProxyFacts, ProxyRules, Session, Txn,
    Verdict, World,
};

/// A configuration and its rules.
pub struct Compiled {
    pub config: Config,
    pub rules: PerProxy<ProxyRules>,
    pub diagnostics: Diagnostics,
}

/// Reads and compiles; the diagnostics may have errors.
pub fn compile(text: &str) -> Compiled {
    compile_source(Source { name: "test.cfg".into(), text: text.into() })
}

/// Reads and compiles a file of any bytes; the diagnostics may have errors.
pub fn compile_source(source: Source) -> Compiled {
    let files = |path: &std::path::Path| std::fs::read(path);
    let env = Env { files: &files, ..Env::default() };
    let (config, mut diagnostics) = penstock_config::load([source], &env);
    let rules = Compiler::new(&config, &files, &mut diagnostics).proxies();
    Compiled { config, rules, diagnostics }
}

impl Compiled {
    /// Only what is well formed.
    pub fn fine(self) -> Compiled {
        let errors: Vec<_> = self
            .diagnostics
            .list
            .iter()
            .filter(|d| d.severity == penstock_config::Severity::Error)
            .map(|d| format!("{:?}: {} ({:?})", d.span.map(|s| (s.line, s.start, s.end)), d.message, d.hint))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
        self
    }

    /// The place of a proxy.
    pub fn proxy(&self, name: &str) -> ProxyId {
        self.config.proxies.position(|proxy| proxy.name == name).expect("the proxy is there")
    }
}

/// What a request meets.
pub struct Stage {
    pub now: Now,
    pub conn: ConnFacts,
    pub frontend: ProxyFacts,
    pub request: Option<RequestHead>,
    pub response: Option<ResponseHead>,
    pub body: Vec<u8>,
    pub complete: bool,
    pub session: Session,
    pub txn: Txn,
    pub log: LogFacts,
    pub world: Box<dyn World>,
}

impl Stage {
    /// A connection from 127.0.0.1 that has sent nothing.
    pub fn empty() -> Stage {
        Stage {
            now: Now { mono: 1_000_000, unix_us: 1_700_000_000_000_000 },
            conn: ConnFacts {
                src: Some("127.0.0.1:40000".parse().unwrap()),
                dst: Some("127.0.0.1:22080".parse().unwrap()),
                http_major: 1,
                ..ConnFacts::default()
            },
            frontend: ProxyFacts { name: "f".into(), id: 2, http: true, ..ProxyFacts::default() },
            request: None,
            response: None,
            body: Vec::new(),
            complete: true,
            session: Session::default(),
            txn: Txn::default(),
            log: LogFacts::default(),
            world: Box::new(NoWorld),
        }
    }

    /// A connection that sent this request.
    pub fn request(text: &str) -> Stage {
        Stage::request_of(text.as_bytes())
    }

    /// A connection that sent this request, which need not be text.
    pub fn request_of(bytes: &[u8]) -> Stage {
        let mut stage = Stage::empty();
        let mut head = RequestHead::new();
        let Ok(Parse::Complete { consumed }) = head.parse(bytes, &Limits::default()) else {
            panic!("not a request: {}", bytes.escape_ascii());
        };
        stage.body = bytes[consumed..].to_vec();
        stage.txn.received.keep(&head, 1024);
        stage.session.requests = 1;
        stage.request = Some(head);
        stage
    }

    /// Lends everything for one evaluation.
    pub fn with<T>(&mut self, f: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let announced = Some(self.body.len() as u64);
        let (request, response) = (self.request.is_some(), self.response.is_some());
        let mut ctx = Context {
            now: self.now,
            phase: Phase::During,
            conn: &self.conn,
            frontend: (ProxyId(0), &self.frontend),
            backend: None,
            server: None,
            server_conn: None,
            request: self.request.as_mut(),
            response: self.response.as_mut(),
            input: Buffered { bytes: &self.body, complete: self.complete, raw: !request, announced },
            output: Buffered { bytes: &self.body, complete: self.complete, raw: !response, announced },
            session: &mut self.session,
            txn: &mut self.txn,
            log: &self.log,
            world: &*self.world,
        };
        f(&mut ctx)
    }

    /// Runs the first proxy's `http-request` rules.
    pub fn http_request(&mut self, compiled: &Compiled) -> Verdict {
        self.with(|ctx| compiled.rules[ProxyId(0)].http_request.run(ctx, 0))
    }
}
