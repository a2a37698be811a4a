//! What agents are told (`filter spoe`), and which variables they may set.

use crate::{
    acl::Condition,
    answer::Answer,
    compile::Compiler,
    context::Context,
    expr::Expr,
    keyword::Places,
    link::{Consulted, Linker, Scope},
    problem::Problem,
    value::Value,
    vars::{VarRef, Variables},
    words::Words,
};
use penstock_config::{
    Diagnostics, Word,
    model::{ProxyId, SpoeEngine, SpoeEvent, SpoeMessage},
};
use std::{collections::HashMap, sync::Arc};

/// An engine, ready to be used: what is sent at its events, and the variables of its agent.
#[derive(Debug)]
pub struct SpoeProgram {
    /// The proxy that has the filter.
    pub proxy: ProxyId,
    /// What is sent at each event.
    events: [Vec<SpoeSend>; SpoeEvent::ALL.len()],
    /// What the names of its variables begin with, behind their scope.
    prefix: Arc<str>,
    /// Those of its variables that something names, by scope and name.
    variables: HashMap<String, VarRef>,
    /// Whether it may create variables of the process.
    force: bool,
    /// `option set-on-error`.
    pub on_error: Option<VarRef>,
    /// `option set-process-time`.
    pub process_time: Option<VarRef>,
    /// `option set-total-time`.
    pub total_time: Option<VarRef>,
}

/// A message as it is sent.
#[derive(Clone, Debug)]
pub struct SpoeSend {
    /// The message's name.
    pub name: Arc<str>,
    condition: Condition,
    arguments: Vec<(String, Expr)>,
}

/// The messages of a group, for the rule that sends them.
#[derive(Debug)]
pub struct SpoeGroupSend {
    /// The engine, by its place among those of the configuration.
    pub engine: usize,
    /// The group's name.
    pub name: Arc<str>,
    /// The messages.
    pub messages: Vec<SpoeSend>,
}

impl SpoeProgram {
    /// What is sent at an event.
    pub fn at(&self, event: SpoeEvent) -> &[SpoeSend] {
        &self.events[event as usize]
    }

    /// Finds a variable that the agent names. One that nothing else names would not be seen by anyone, unless it is one of the
    /// process and the agent may create it.
    pub fn variable(&self, scope: &str, name: &[u8], all: &Variables) -> Option<VarRef> {
        let name = std::str::from_utf8(name).ok()?;
        let name = format!("{scope}.{}.{name}", self.prefix);
        match self.variables.get(&name) {
            Some(var) => Some(var.clone()),
            None if self.force && scope == "proc" => all.force(&name),
            None => None,
        }
    }
}

impl SpoeSend {
    /// Whether the message is sent now. What is not known yet does not hold.
    pub fn is_due(&self, ctx: &Context<'_>) -> bool {
        self.condition.holds(ctx) == Answer::Yes
    }

    /// How many arguments it has.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// Evaluates the arguments in order, and gives them with their names; one without a value is `None`.
    pub fn arguments<'c>(&'c self, ctx: &'c Context<'_>) -> impl Iterator<Item = (&'c str, Option<Value<'c>>)> {
        self.arguments.iter().map(move |(name, expr)| (name.as_str(), expr.eval(ctx).ok()))
    }
}

impl Compiler<'_> {
    /// Compiles the engines, in the order of the configuration. To be called when everything else has been compiled, as they
    /// know the variables that it names.
    pub fn spoe(&mut self) -> Vec<SpoeProgram> {
        let (linker, diagnostics) = self.parts();
        let config = linker.config;
        let mut programs: Vec<_> = config.spoe.iter().map(|engine| compile(engine, linker, diagnostics)).collect();
        // An event of one engine may name a variable of another.
        for program in &mut programs {
            program.variables = linker.vars_with_prefix(&program.prefix);
        }
        programs
    }

    /// Compiles the groups that rules send, by number. To be called when all rules have been compiled, and before
    /// [`Compiler::spoe`].
    pub fn spoe_groups(&mut self) -> Vec<SpoeGroupSend> {
        let (linker, diagnostics) = self.parts();
        let consulted = std::mem::take(&mut linker.consulted);
        consulted.into_iter().map(|rule| compile_group(rule, linker, diagnostics)).collect()
    }
}

fn compile(engine: &SpoeEngine, linker: &mut Linker<'_>, diagnostics: &mut Diagnostics) -> SpoeProgram {
    let agent = &engine.agent;
    let mut events: [Vec<SpoeSend>; SpoeEvent::ALL.len()] = Default::default();
    let kind = linker.config.proxies[engine.proxy].kind;
    for word in &agent.messages {
        // One that does not exist has been reported where the file is read.
        let Some(message) = engine.messages.iter().find(|message| message.name.text == word.text) else { continue };
        let Some((event, _)) = &message.event else { continue };
        if event.is_of_frontend() && !kind.has_frontend() {
            continue;
        }
        let is_listen = kind.has_frontend() && kind.has_backend();
        let moment = if is_listen { event.of_listen() } else { *event };
        events[moment as usize].extend(send(message, engine.proxy, place(moment), linker, diagnostics));
    }
    for name in &agent.registered {
        // Elsewhere than in the process, one that nothing else names would not be seen by anyone.
        let _ = linker.var(&format!("proc.{}.{name}", agent.prefix()));
    }
    let mut own = |name: &Option<String>| {
        let name = format!("txn.{}.{}", agent.prefix(), name.as_ref()?);
        linker.var(&name).ok()
    };
    SpoeProgram {
        proxy: engine.proxy,
        events,
        prefix: agent.prefix().into(),
        variables: HashMap::new(),
        force: agent.force_set_var,
        on_error: own(&agent.on_error),
        process_time: own(&agent.process_time),
        total_time: own(&agent.total_time),
    }
}

fn compile_group(rule: Consulted, linker: &mut Linker<'_>, diagnostics: &mut Diagnostics) -> SpoeGroupSend {
    let engine = &linker.config.spoe[rule.engine];
    let group = &engine.groups[rule.group];
    let mut messages = Vec::new();
    for word in &group.messages {
        // One that does not exist has been reported where the file is read.
        let Some(message) = engine.messages.iter().find(|message| message.name.text == word.text) else { continue };
        messages.extend(send(message, engine.proxy, rule.place, linker, diagnostics));
    }
    SpoeGroupSend { engine: rule.engine, name: group.name.text.as_str().into(), messages }
}

/// Where what an event's messages look at has to be known.
fn place(event: SpoeEvent) -> Places {
    match event {
        SpoeEvent::ClientSession => Places::SESSION,
        SpoeEvent::ServerSession => Places::SERVER,
        SpoeEvent::FrontendTcpRequest
        | SpoeEvent::BackendTcpRequest
        | SpoeEvent::FrontendHttpRequest
        | SpoeEvent::BackendHttpRequest => Places::REQUEST,
        SpoeEvent::TcpResponse | SpoeEvent::HttpResponse => Places::RESPONSE,
    }
}

/// Compiles a message for one of the places that it is sent from.
fn send(
    message: &SpoeMessage,
    proxy: ProxyId,
    place: Places,
    linker: &mut Linker<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<SpoeSend> {
    let scope = Scope { proxy: Some(proxy), place };
    let mut arguments = Vec::new();
    for word in &message.arguments {
        match argument(word, linker, scope) {
            Ok(argument) => arguments.push(argument),
            Err(problem) => {
                problem.report(word.span, &word.text, diagnostics);
                return None;
            }
        }
    }
    let mut acls = linker.acls(&message.acls, scope, diagnostics);
    let condition = match &message.event {
        Some((_, line)) => linker.condition(&mut Words::new(line), &mut acls, scope, diagnostics),
        None => Some(Condition::always()),
    };
    Some(SpoeSend { name: message.name.text.as_str().into(), condition: condition?, arguments })
}

/// Compiles `[NAME=]EXPRESSION`.
fn argument(word: &Word, linker: &mut Linker<'_>, scope: Scope) -> Result<(String, Expr), Problem> {
    let text = &word.text;
    linker.line = word.span;
    let is_name = |name: &&str| !name.contains('(');
    let name = text.split_once('=').map(|(name, _)| name).filter(is_name);
    let at = name.map_or(0, |name| name.len() + 1);
    let (expr, end) = linker.expression_in(text, at, scope)?;
    if end < text.len() {
        return Err(Problem::new(end..text.len(), format!("'{}' does not belong to an expression", &text[end..])));
    }
    Ok((name.unwrap_or_default().to_owned(), expr))
}

impl Linker<'_> {
    /// The variables whose names, behind their scope, begin with `prefix` and a dot.
    fn vars_with_prefix(&self, prefix: &str) -> HashMap<String, VarRef> {
        let begins = |name: &str| {
            let rest = name.split_once('.').and_then(|(_, rest)| rest.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        let own = self.vars.iter().filter(|(name, _)| begins(name));
        own.map(|(name, var)| (name.clone(), var.clone())).collect()
    }
}
