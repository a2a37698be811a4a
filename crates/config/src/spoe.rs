//! `filter spoe`, and the sections of the file that it names.

use crate::{
    args::{Args, Parsed, Reported, expected},
    diagnostic::Diagnostics,
    dispatch::dispatch,
    env::Files,
    keyword::{Keyword, NONE, ONE, SOME, Table, at_least},
    model::{
        Config, Mode, Proxy, ProxyId, ServerHost, ServerPort, Source, SpoeAgent, SpoeEngine, SpoeEvent, SpoeFilter,
        SpoeGroup, SpoeMessage,
    },
    name::valid_name,
    proxy::{Draft, log_target},
    span::{FileId, Line, Span, Spanned, Word},
    surroundings::Surroundings,
    units::suggestion,
    words,
};
use std::path::PathBuf;

/// Frames may have at least this size (SPOE.txt, 3.2).
const FRAME_SIZE_MIN: u32 = 256;
/// The bytes of a frame's length.
const FRAME_PREFIX: usize = 4;

/// Reads `filter spoe [engine NAME] config FILE`.
pub(crate) fn filter(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let (mut engine, mut file): (Option<Word>, Option<Spanned<PathBuf>>) = (None, None);
    while args.peek().is_some() {
        if args.take_if("engine") {
            engine = Some(args.word("the engine's name")?.clone());
        } else if args.take_if("config") {
            file = Some(args.path("the file with the engine's sections")?);
        } else {
            return args.unexpected(&["engine", "config"]);
        }
    }
    let Some(file) = file else {
        args.error("'filter spoe' needs 'config' and a file").hint("filter spoe engine NAME config FILE");
        return Err(Reported);
    };
    draft.proxy.spoe_filters.push(SpoeFilter { engine, file, span: args.span });
    Ok(())
}

/// Refuses what an agent's backend says of clients: a connection to an agent has none.
fn unused(backend: &Proxy, agent: &str, diagnostics: &mut Diagnostics) {
    let filters = backend.spoe_filters.first().map(|filter| ("filter spoe", filter.span));
    let line = |name: &'static str, lines: &[Line]| lines.first().map(|line| (name, line.span));
    let found = filters
        .or_else(|| line("tcp-request content", &backend.tcp_request_content))
        .or_else(|| line("tcp-response content", &backend.tcp_response_content))
        .or_else(|| line("use-server", &backend.use_server))
        .or_else(|| line("stick", &backend.stick));
    let sni = backend.servers.iter().find(|server| {
        let tls = server.settings.prepared_tls();
        tls.is_some_and(|tls| tls.sni.is_some())
    });
    let found = found.or_else(|| sni.map(|server| ("sni", server.span)));
    for server in &backend.servers {
        // The port of a name may come with it.
        let ServerHost::Ip(ip) = server.host else { continue };
        if ip.is_unspecified() || matches!(server.port, ServerPort::Offset(_)) {
            let message =
                format!("the server '{}' of the agent '{agent}' has no address and port of its own", server.name);
            diagnostics
                .error(server.span, message)
                .hint("what is left out is taken from the client, and connections to agents have none");
        }
    }
    if let Some((word, span)) = found {
        diagnostics
            .error(span, format!("'{word}' is not done for connections to the agent '{agent}', whose backend this is"))
            .hint("use a backend of its own for the agent, without this line");
    }
}

type AgentKeyword = Keyword<SpoeAgent>;

pub(crate) static AGENT: Table<SpoeAgent> = Table::new(
    "spoe-agent",
    &[&[
        AgentKeyword::new("messages", SOME, "Messages that are sent at their events", |agent, a| {
            names(&mut agent.messages, a, "message")
        }),
        AgentKeyword::new("groups", SOME, "Groups of messages that rules may send", |agent, a| {
            names(&mut agent.groups, a, "group")
        }),
        AgentKeyword::new("use-backend", ONE, "The backend whose servers are the agent", |agent, a| {
            agent.backend = Some(a.word("the name of a backend")?.clone());
            Ok(())
        }),
        AgentKeyword::new("timeout hello", ONE, "Longest wait for an agent's hello", |agent, a| {
            agent.hello = Some(a.time("a time")?);
            Ok(())
        }),
        AgentKeyword::new(
            "timeout idle",
            ONE,
            "Longest silence of an agent before its connection is closed",
            |agent, a| {
                agent.idle = Some(a.time("a time")?);
                Ok(())
            },
        ),
        AgentKeyword::new("timeout processing", ONE, "Longest wait of a stream for an event", |agent, a| {
            agent.processing = Some(a.time("a time")?);
            Ok(())
        }),
        AgentKeyword::new("max-frame-size", ONE, "The greatest size of a frame", |agent, a| {
            agent.max_frame_size = Some(a.number("a number of bytes", FRAME_SIZE_MIN..=u32::MAX)?);
            Ok(())
        }),
        AgentKeyword::new("max-waiting-frames", ONE, "How many payloads may wait on one connection", |agent, a| {
            agent.waiting_max = a.number("a number of frames", 1..=u16::MAX.into())?;
            Ok(())
        }),
        AgentKeyword::new("maxconnrate", ONE, "How many connections are opened in a second", |agent, a| {
            agent.connection_rate = a.number("a number of connections", 0..=u32::MAX)?;
            Ok(())
        }),
        AgentKeyword::new("maxerrrate", ONE, "How many errors in a second stop the processing", |agent, a| {
            agent.error_rate = a.number("a number of errors", 0..=u32::MAX)?;
            Ok(())
        }),
        AgentKeyword::new(
            "register-var-names",
            SOME,
            "Variables that the agent may set although no rule names them",
            |agent, a| {
                while a.peek().is_some() {
                    agent.registered.push(variable(a)?);
                }
                Ok(())
            },
        ),
        AgentKeyword::new("log", SOME, "Where the lines of events go: a target, or 'global'", |agent, a| {
            if a.negated {
                a.rest();
                agent.logs.clear();
                agent.log_global = false;
                return Ok(());
            }
            if a.take_if("global") {
                agent.log_global = true;
                return a.unexpected(&[]);
            }
            agent.logs.push(log_target(a)?);
            Ok(())
        })
        .no(),
        flag("option async", "Acknowledgements may come over another connection", |agent, a| {
            agent.is_async = a.on();
            Ok(())
        }),
        flag("option pipelining", "Several payloads may wait on one connection", |agent, a| {
            agent.pipelining = a.on();
            Ok(())
        }),
        flag("option send-frag-payload", "Long payloads are sent in fragments", |agent, a| {
            agent.fragments = a.on();
            Ok(())
        }),
        flag("option dontlog-normal", "Events without an error are not logged", |agent, a| {
            agent.dontlog_normal = a.on();
            Ok(())
        }),
        AgentKeyword::new("option continue-on-error", NONE, "An error ends its event alone", |agent, _| {
            agent.continue_on_error = true;
            Ok(())
        }),
        AgentKeyword::new(
            "option force-set-var",
            NONE,
            "The agent may set variables that nothing names",
            |agent, _| {
                agent.force_set_var = true;
                Ok(())
            },
        ),
        AgentKeyword::new(
            "option var-prefix",
            ONE,
            "What the names of the agent's variables begin with",
            |agent, a| {
                agent.var_prefix = Some(variable(a)?);
                Ok(())
            },
        ),
        AgentKeyword::new("option set-on-error", ONE, "The variable that says which error there was", |agent, a| {
            agent.on_error = Some(variable(a)?);
            Ok(())
        }),
        AgentKeyword::new(
            "option set-process-time",
            ONE,
            "The variable that says how long an event took",
            |agent, a| {
                agent.process_time = Some(variable(a)?);
                Ok(())
            },
        ),
        AgentKeyword::new(
            "option set-total-time",
            ONE,
            "The variable that says how long all events took",
            |agent, a| {
                agent.total_time = Some(variable(a)?);
                Ok(())
            },
        ),
    ]],
);

const fn flag(
    name: &'static str,
    doc: &'static str,
    parse: fn(&mut SpoeAgent, &mut Args<'_>) -> Parsed,
) -> AgentKeyword {
    AgentKeyword::new(name, NONE, doc, parse).no()
}

type MessageKeyword = Keyword<SpoeMessage>;

pub(crate) static MESSAGE: Table<SpoeMessage> = Table::new(
    "spoe-message",
    &[&[
        MessageKeyword::new("args", SOME, "What the message says: expressions, perhaps with names", |message, a| {
            message.arguments.extend(a.rest().words);
            match message.arguments.get(ARGUMENTS_MAX) {
                None => Ok(()),
                Some(word) => {
                    let word = word.clone();
                    a.wrong(&word, format!("a message has at most {ARGUMENTS_MAX} arguments"), "use another message")
                }
            }
        }),
        MessageKeyword::new("event", SOME, "When the message is sent, and under which condition", |message, a| {
            let choices = SpoeEvent::ALL.map(|event| (event.name(), event));
            let event = a.choice("an event", &choices)?;
            if let Some(word) = a.peek().filter(|word| !matches!(word.text.as_str(), "if" | "unless")) {
                return a.wrong(word, format!("'{}' is not expected here", word.text), "expected 'if' or 'unless'");
            }
            message.event = Some((event, a.rest()));
            Ok(())
        }),
        MessageKeyword::new("acl", at_least(2), "Declares a condition for the event", |message, a| {
            if let Some(name) = a.peek() {
                valid_name(name, a.around)?;
            }
            message.acls.push(a.rest());
            Ok(())
        }),
    ]],
);

/// The number of a message's arguments is one byte.
const ARGUMENTS_MAX: usize = 255;

pub(crate) static GROUP: Table<SpoeGroup> = Table::new(
    "spoe-group",
    &[&[Keyword::<SpoeGroup>::new("messages", SOME, "The messages of the group", |group, a| {
        names(&mut group.messages, a, "message")
    })]],
);

/// Takes the names on a line; each may be there once.
fn names(list: &mut Vec<Word>, args: &mut Args<'_>, what: &str) -> Parsed {
    while let Some(word) = args.take() {
        if list.iter().any(|known| known.text == word.text) {
            return args.wrong(word, format!("the {what} '{}' is named already", word.text), "remove one of them");
        }
        list.push(word.clone());
    }
    Ok(())
}

/// Whether this can be part of a variable's name.
fn is_of_variable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'))
}

/// Takes the name of a variable, without its scope, or a part of one.
fn variable(args: &mut Args<'_>) -> Parsed<String> {
    let word = args.word("a name")?;
    if is_of_variable(&word.text) {
        return Ok(word.text.clone());
    }
    let message = format!("'{}' cannot be part of a variable's name", word.text);
    args.wrong(word, message, "letters, digits, '.' and '_' can")
}

/// Reads the files of all filters, and adds their engines to the configuration.
pub(crate) fn read(config: &mut Config, around: &mut Surroundings, files: &dyn Files) {
    let filters: Vec<(ProxyId, SpoeFilter)> = config
        .proxies
        .entries()
        .flat_map(|(id, proxy)| proxy.spoe_filters.iter().map(move |filter| (id, filter.clone())))
        .collect();
    for (proxy, filter) in filters {
        if let Ok(scope) = scope(config, &filter, around, files) {
            engine(config, proxy, &filter, scope, around);
        }
    }
}

/// What a scope of a file says.
#[derive(Default)]
struct Scope {
    agent: Option<SpoeAgent>,
    messages: Vec<SpoeMessage>,
    groups: Vec<SpoeGroup>,
}

/// The section that is being read.
enum Section {
    None,
    /// One whose header is wrong.
    Skipped,
    Agent,
    Message,
    Group,
}

/// Reads the scope that a filter names.
fn scope(config: &mut Config, filter: &SpoeFilter, around: &mut Surroundings, files: &dyn Files) -> Parsed<Scope> {
    let path = &filter.file.value;
    let bytes = match files.read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            around
                .diagnostics
                .error(filter.file.span, format!("cannot read '{}': {error}", path.display()))
                .hint("expected a file with the section 'spoe-agent' and others");
            return Err(Reported);
        }
    };
    let file = FileId(config.files.len() as u32);
    let source = Source::new(path.display().to_string(), &bytes);
    around.file_name.clone_from(&source.name);
    around.line = 0;
    let (mut scope, mut section) = (Scope::default(), Section::None);
    let wanted = filter.engine.as_ref().map(|word| word.text.as_str());
    let mut current: Option<String> = None;
    let mut failed = false;
    let mut split = Vec::new();
    for line in source.text.lines() {
        around.line += 1;
        let text = line.trim();
        if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            (current, section) = (Some(name.0.to_owned()), Section::None);
            continue;
        }
        if current.as_deref() != wanted {
            continue;
        }
        split.clear();
        match words::split(line, file, around.line, around, &mut split) {
            Ok(()) if split.is_empty() => {}
            Ok(()) => failed |= statement(&mut scope, &mut section, &split, around).is_err(),
            Err(bad) => {
                let span = Span { file, line: around.line, start: bad.start as u32, end: bad.end as u32 };
                around.diagnostics.error(span, bad.message).hint(bad.hint);
                failed = true;
            }
        }
    }
    config.files.push(source);
    if failed { Err(Reported) } else { Ok(scope) }
}

/// Reads a line of a scope.
fn statement(scope: &mut Scope, section: &mut Section, words: &[Word], around: &mut Surroundings) -> Parsed {
    let kind = words[0].text.as_str();
    if !matches!(kind, "spoe-agent" | "spoe-message" | "spoe-group") {
        return match section {
            Section::Agent => {
                around.section_kind = "spoe-agent";
                let agent = scope.agent.as_mut().expect("its header has been read");
                dispatch(&AGENT, agent, words, around, |_, _, _, _| Ok(None))
            }
            Section::Message => {
                around.section_kind = "spoe-message";
                let message = scope.messages.last_mut().expect("its header has been read");
                dispatch(&MESSAGE, message, words, around, |_, _, _, _| Ok(None))
            }
            Section::Group => {
                around.section_kind = "spoe-group";
                let group = scope.groups.last_mut().expect("its header has been read");
                dispatch(&GROUP, group, words, around, |_, _, _, _| Ok(None))
            }
            Section::Skipped => Ok(()),
            Section::None => {
                let hint = expected(kind, ["spoe-agent", "spoe-message", "spoe-group"].into_iter());
                around.diagnostics.error(words[0].span, format!("'{kind}' stands outside of a section")).hint(hint);
                Err(Reported)
            }
        };
    }
    *section = Section::Skipped;
    let wrong = |span: Span, message: String, hint: String, around: &mut Surroundings| {
        around.diagnostics.error(span, message).hint(hint);
        Err(Reported)
    };
    let Some(name) = words.get(1) else {
        return wrong(words[0].span, format!("'{kind}' needs a name"), format!("for instance '{kind} main'"), around);
    };
    valid_name(name, around)?;
    if let Some(extra) = words.get(2) {
        let hint = "expected the end of the line".to_owned();
        return wrong(extra.span, format!("'{}' is not expected after '{kind}'", extra.text), hint, around);
    }
    let first = match kind {
        "spoe-agent" => scope.agent.as_ref().map(|agent| &agent.name),
        "spoe-message" => scope.messages.iter().map(|message| &message.name).find(|known| known.text == name.text),
        _ => scope.groups.iter().map(|group| &group.name).find(|known| known.text == name.text),
    };
    if let Some(first) = first {
        let message = match kind {
            "spoe-agent" => "this scope has an agent already".to_owned(),
            _ => format!("there is a {kind} '{}' already", name.text),
        };
        return wrong(name.span, message, format!("the first one is at line {}", first.span.line), around);
    }
    let name = name.clone();
    *section = match kind {
        "spoe-agent" => {
            scope.agent = Some(SpoeAgent::new(name));
            Section::Agent
        }
        "spoe-message" => {
            let (arguments, event, acls) = (Vec::new(), None, Vec::new());
            scope.messages.push(SpoeMessage { name, arguments, event, acls });
            Section::Message
        }
        _ => {
            scope.groups.push(SpoeGroup { name, messages: Vec::new() });
            Section::Group
        }
    };
    Ok(())
}

/// Checks a scope as a whole, and adds its engine.
fn engine(config: &mut Config, proxy: ProxyId, filter: &SpoeFilter, scope: Scope, around: &mut Surroundings) {
    let diagnostics = &mut around.diagnostics;
    let Some(agent) = scope.agent else {
        let message = match &filter.engine {
            Some(engine) => format!("there is no 'spoe-agent' under '[{}]' in this file", engine.text),
            None => "there is no 'spoe-agent' before the first '[...]' in this file".to_owned(),
        };
        diagnostics.error(filter.file.span, message).hint("'engine NAME' selects what follows '[NAME]'");
        return;
    };
    let name = filter.engine.as_ref().unwrap_or(&agent.name).text.clone();
    if config.spoe.iter().any(|known| known.proxy == proxy && known.name == name) {
        diagnostics
            .error(filter.span, format!("this section has an engine '{name}' already"))
            .hint("remove one of the filters, or give it another name");
        return;
    }
    if !is_of_variable(agent.prefix()) {
        diagnostics
            .error(agent.name.span, format!("'{}' cannot be part of a variable's name", agent.prefix()))
            .hint("add 'option var-prefix NAME': letters, digits, '.' and '_' can");
    }
    let greatest = config.global.tune.bufsize - FRAME_PREFIX;
    if agent.max_frame_size.is_some_and(|size| size as usize > greatest) {
        let message = format!("'max-frame-size' of agent '{}' is more than a buffer holds", agent.name.text);
        diagnostics
            .error(agent.name.span, message)
            .hint(format!("at most {greatest}, tune.bufsize without four bytes"));
    }
    match &agent.backend {
        None => {
            diagnostics
                .error(agent.name.span, format!("the agent '{}' has no backend", agent.name.text))
                .hint("add 'use-backend NAME'");
        }
        Some(word) => match config.backend(&word.text).filter(|proxy| proxy.service.is_none()) {
            Some(backend) if backend.mode == Mode::Tcp => unused(backend, &agent.name.text, diagnostics),
            Some(backend) => {
                diagnostics
                    .error(word.span, format!("the agent's backend '{}' is not in mode tcp", backend.name))
                    .hint("write 'mode tcp' there");
            }
            None => {
                let backends =
                    config.proxies.iter().filter(|proxy| proxy.kind.has_backend() && proxy.service.is_none());
                let finding = diagnostics.error(word.span, format!("there is no backend '{}'", word.text));
                finding.hint = suggestion(&word.text, backends.map(|proxy| proxy.name.as_str()), "backends");
            }
        },
    }
    let missing: Vec<&str> = [("hello", agent.hello), ("idle", agent.idle), ("processing", agent.processing)]
        .into_iter()
        .filter_map(|(name, timeout)| timeout.is_none().then_some(name))
        .collect();
    if !missing.is_empty() {
        let message = format!("the agent '{}' has no 'timeout {}'", agent.name.text, missing.join("', no 'timeout "));
        diagnostics
            .warning(agent.name.span, message)
            .hint("for instance 'timeout hello 1s', 'timeout idle 2m', 'timeout processing 500ms'");
    }
    if agent.messages.is_empty() && agent.groups.is_empty() {
        let message = format!("the agent '{}' is sent nothing: it has no messages and no groups", agent.name.text);
        diagnostics.warning(agent.name.span, message).hint("add 'messages NAME'");
    }
    for word in agent.messages.iter().chain(scope.groups.iter().flat_map(|group| &group.messages)) {
        let known = scope.messages.iter().map(|message| message.name.text.as_str());
        if !known.clone().any(|name| name == word.text) {
            let finding = diagnostics.error(word.span, format!("there is no spoe-message '{}'", word.text));
            finding.hint = suggestion(&word.text, known, "messages");
        }
    }
    for word in &agent.groups {
        let known = scope.groups.iter().map(|group| group.name.text.as_str());
        if !known.clone().any(|name| name == word.text) {
            let finding = diagnostics.error(word.span, format!("there is no spoe-group '{}'", word.text));
            finding.hint = suggestion(&word.text, known, "groups");
        }
    }
    let has_frontend = config.proxies[proxy].kind.has_frontend();
    for message in
        scope.messages.iter().filter(|message| agent.messages.iter().any(|word| word.text == message.name.text))
    {
        match &message.event {
            None => {
                diagnostics
                    .warning(
                        message.name.span,
                        format!("the message '{}' has no event: it is not sent", message.name.text),
                    )
                    .hint("add for instance 'event on-frontend-http-request'");
            }
            Some((event, _)) if event.is_of_frontend() && !has_frontend => {
                diagnostics
                    .warning(
                        message.name.span,
                        format!("the message '{}' is not sent: its event is one of frontends", message.name.text),
                    )
                    .hint("write the filter in the frontend, or choose an event of backends");
            }
            Some(_) => {}
        }
    }
    let Scope { messages, groups, .. } = scope;
    config.spoe.push(SpoeEngine { name, proxy, agent, messages, groups });
}
