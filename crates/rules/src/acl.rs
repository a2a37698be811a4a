//! ACLs, and the conditions made of them.

mod operators;

use crate::{
    answer::Answer,
    context::{Context, Decide},
    expr::{Expr, parse::word_at},
    fetch, hint,
    keyword::Places,
    link::{Linker, Scope},
    patterns::{Comparison, Method, Reading, Reference},
    problem::Problem,
    sample::Missing,
    value::Value,
    words::Words,
};
use penstock_config::{Diagnostics, Severity, Span, Word, bytes_of};
use std::{collections::HashMap, ops::Range, sync::Arc};

/// A test: a sample, and the patterns it is compared with.
#[derive(Clone, Debug)]
pub struct Test {
    expr: Expr,
    /// First the patterns written in the line, then those of its files.
    lists: Vec<Reading>,
}

impl Test {
    /// Whether any value of the sample matches.
    pub fn run(&self, ctx: &Context<'_>) -> Answer {
        let matches = |value: &Value<'_>| self.lists.iter().any(|list| list.matches(value));
        match self.expr.any(ctx, matches) {
            Ok(true) => Answer::Yes,
            // A length that is too short may still grow: the test only fails for good once nothing more can arrive.
            Ok(false) | Err(Missing::Absent) if self.expr.may_change(ctx) => Answer::NotYet,
            Ok(false) | Err(Missing::Absent) => Answer::No,
            Err(Missing::NotYet) => Answer::NotYet,
        }
    }
}

/// An ACL: it matches when any of its tests does.
#[derive(Clone, Debug)]
pub struct Acl {
    /// The ACL's name; empty for an anonymous one.
    pub name: String,
    tests: Vec<Test>,
}

impl Acl {
    /// Whether any of its tests matches.
    pub fn run(&self, ctx: &Context<'_>) -> Answer {
        let mut answer = Answer::No;
        for test in &self.tests {
            match test.run(ctx) {
                Answer::Yes => return Answer::Yes,
                Answer::NotYet => answer = Answer::NotYet,
                Answer::No => {}
            }
        }
        answer
    }
    /// Warns if nothing that it looks at is available in `place`.
    fn warn_if_blind(&self, place: Places, span: Span, diagnostics: &mut Diagnostics) {
        if !self.tests.is_empty() && !self.tests.iter().any(|test| test.expr.places.meets(place)) {
            let name = if self.name.is_empty() { "this ACL".to_owned() } else { format!("the ACL '{}'", self.name) };
            let problem =
                format!("{name} never matches here: what it looks at is not available ({})", place.describe());
            diagnostics.warning(span, problem);
        }
    }
}

impl Decide for Acl {
    fn decide(&self, ctx: &Context<'_>) -> Answer {
        self.run(ctx)
    }
}

/// `if` or `unless` and what follows: alternatives, each of which is a list of terms that must all hold.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    unless: bool,
    alternatives: Vec<Vec<Term>>,
}

#[derive(Clone, Debug)]
struct Term {
    negated: bool,
    acl: Arc<Acl>,
}

impl Condition {
    /// The condition of a rule that has none.
    pub fn always() -> Condition {
        Condition::default()
    }
    /// Whether the condition is empty, so that it holds without evaluating anything.
    pub fn is_always(&self) -> bool {
        self.alternatives.is_empty()
    }

    /// Whether everything that the condition looks at is available in `place`.
    pub(crate) fn is_known_at(&self, place: Places) -> bool {
        let terms = self.alternatives.iter().flatten();
        terms.flat_map(|term| &term.acl.tests).all(|test| test.expr.places.meets(place))
    }

    /// Whether the condition holds; [`Answer::NotYet`] if that depends on bytes that have not arrived.
    pub fn holds(&self, ctx: &Context<'_>) -> Answer {
        if self.alternatives.is_empty() {
            return Answer::Yes;
        }
        let mut answer = Answer::No;
        for terms in &self.alternatives {
            let mut all = Answer::Yes;
            // As in HAProxy, the first term that does not hold yet is waited for, even if a later one never will: rules
            // that follow may rely on the wait.
            for term in terms {
                all = term.acl.run(ctx).negated(term.negated);
                if all != Answer::Yes {
                    break;
                }
            }
            match all {
                Answer::Yes => {
                    answer = Answer::Yes;
                    break;
                }
                Answer::NotYet => answer = Answer::NotYet,
                Answer::No => {}
            }
        }
        answer.negated(self.unless)
    }
}

/// The ACLs of a section by name. Those that the manual predefines are created when first used.
#[derive(Clone, Debug, Default)]
pub struct Acls(HashMap<String, Arc<Acl>>);

/// The ACLs of the manual's section 7.4.
pub const PREDEFINED: &[(&str, &str)] = &[
    ("ALWAYS_FALSE", "always_false"),
    ("ALWAYS_TRUE", "always_true"),
    ("FALSE", "always_false"),
    ("HTTP", "req.proto_http"),
    ("HTTP_1.0", "req.ver 1.0"),
    ("HTTP_1.1", "req.ver 1.1"),
    ("HTTP_2.0", "req.ver 2.0"),
    ("HTTP_3.0", "req.ver 3.0"),
    ("HTTP_CONTENT", "req.hdr_val(content-length) gt 0"),
    ("HTTP_URL_ABS", "url_reg ^[^/:]*://"),
    ("HTTP_URL_SLASH", "url_beg /"),
    ("HTTP_URL_STAR", "url *"),
    ("LOCALHOST", "src 127.0.0.1/8 ::1"),
    ("METH_CONNECT", "method CONNECT"),
    ("METH_DELETE", "method DELETE"),
    ("METH_GET", "method GET HEAD"),
    ("METH_HEAD", "method HEAD"),
    ("METH_OPTIONS", "method OPTIONS"),
    ("METH_PATCH", "method PATCH"),
    ("METH_POST", "method POST"),
    ("METH_PUT", "method PUT"),
    ("METH_TRACE", "method TRACE"),
    ("RDP_COOKIE", "req.rdp_cookie_cnt gt 0"),
    ("REQ_CONTENT", "req.len gt 0"),
    ("TRUE", "always_true"),
    ("WAIT_END", "wait_end"),
];

/// Fetches with a variant for each way of comparing text (`path_beg` and so on).
const WITH_FORMS: &[&str] = &["base", "cook", "hdr", "path", "scook", "shdr", "url", "urlp", "ssl_fc_sni"];
const FORMS: &[&str] = &["beg", "dir", "dom", "end", "len", "reg", "sub"];

/// The fetch and the matching method that an ACL's own keyword stands for.
fn criterion(word: &str) -> Option<(&str, Method)> {
    let (fetch, form) = word.rsplit_once('_')?;
    (WITH_FORMS.contains(&fetch) && FORMS.contains(&form)).then(|| Some((fetch, Method::parse(form)?)))?
}

/// Names of all criteria that are not fetches, for the manual and for hints.
pub fn criteria() -> impl Iterator<Item = String> {
    WITH_FORMS.iter().flat_map(|fetch| FORMS.iter().map(move |form| format!("{fetch}_{form}")))
}

impl Linker<'_> {
    /// Compiles the criterion, flags and values of an ACL.
    ///
    /// # Errors
    ///
    /// The first problem, and the word it is in.
    pub fn test(&mut self, words: &[Word], scope: Scope) -> Result<Test, (Span, Problem)> {
        let Some((first, values)) = words.split_first() else {
            return Err((Span::default(), Problem::new(0..0, "a criterion is missing")));
        };
        let wrong = |problem| (first.span, problem);
        let name = word_at(first, 0);
        let word = &first.text[name.clone()];
        let form = criterion(word).filter(|_| fetch::find(word, scope.place).is_none());
        let fetch = form.map_or(word, |(fetch, _)| fetch).to_owned();
        let (expr, end) = self.expression_of(&first.text, name.clone(), &fetch, scope).map_err(|problem| {
            let near = hint::nearest(word, criteria().collect::<Vec<_>>().iter().map(String::as_str));
            wrong(if problem.hint.is_none() && problem.at == name { problem.hint(near) } else { problem })
        })?;
        if end < first.text.len() {
            let rest = &first.text[end..];
            return Err(wrong(Problem::new(
                end..first.text.len(),
                format!("'{rest}' does not belong to an expression"),
            )));
        }
        let dotted = expr.fetch == "req.ssl_ver" && !expr.has_converters();
        // The method of a keyword only applies if no converter follows.
        let binary = matches!(word, "payload" | "payload_lv");
        let mut method = match form {
            Some((_, method)) if !expr.has_converters() => Some(method),
            _ if binary && !expr.has_converters() => Some(Method::Bin),
            _ => Method::of_type(expr.output()),
        };
        let Flags { patterns, files, id } = self.values(values, &mut method, &expr)?;
        let Some(method) = method else {
            let message = format!("what '{}' gives ({}) has no usual way of matching", first.text, expr.output());
            return Err(wrong(
                Problem::new(0..first.text.len(), message).hint("say how with -m, such as -m str".to_owned()),
            ));
        };
        if !method.takes(expr.output()) {
            let message =
                format!("'-m {}' does not go with {}, the type of '{}'", method.name(), expr.output(), first.text);
            return Err(wrong(Problem::new(0..first.text.len(), message)));
        }
        let inline =
            self.inline(if expr.has_converters() { expr.fetch } else { word }, id, patterns, method, dotted)?;
        Ok(Test { expr, lists: std::iter::once(inline).chain(files).collect() })
    }

    fn values(&mut self, words: &[Word], method: &mut Option<Method>, expr: &Expr) -> Result<Flags, (Span, Problem)> {
        let mut flags = Flags::default();
        let mut ignore_case = false;
        let mut as_map = false;
        let mut at = 0;
        let mut named = Vec::new();
        while let Some(word) = words.get(at) {
            let value = |what: &str| {
                words.get(at + 1).ok_or_else(|| {
                    (word.span, Problem::new(0..word.text.len(), format!("'{}' needs {what}", word.text)))
                })
            };
            match word.text.as_str() {
                "-i" => ignore_case = true,
                "-n" => {}
                "-M" => as_map = true,
                "-u" => {
                    let id = value("an identifier")?;
                    let wrong =
                        |what: &str| Err((id.span, Problem::new(0..id.text.len(), format!("'{}' {what}", id.text))));
                    flags.id = match id.parse::<u32>() {
                        Ok(number) if self.take_id(number) => Some(number),
                        Ok(_) => return wrong("is the identifier of another list of patterns"),
                        Err(_) => return wrong("is not a number"),
                    };
                    at += 1;
                }
                "-f" => {
                    named.push((value("a file")?, ignore_case, as_map));
                    at += 1;
                }
                "-m" => {
                    let name = value("a matching method")?;
                    let Some(found) = Method::parse(&name.text) else {
                        let problem =
                            Problem::new(0..name.text.len(), format!("unknown matching method '{}'", name.text));
                        let all: Vec<&str> = Method::NAMES.iter().map(|(name, _)| *name).collect();
                        let near = hint::nearest(&name.text, all.iter().copied());
                        return Err((name.span, problem.hint(near.or(Some(format!("one of {}", all.join(", ")))))));
                    };
                    *method = Some(found);
                    at += 1;
                }
                "--" => {
                    at += 1;
                    break;
                }
                other if other.len() == 2 && other.starts_with('-') && other.as_bytes()[1].is_ascii_alphabetic() => {
                    return Err((
                        word.span,
                        Problem::new(0..2, format!("unknown flag '{other}' of an ACL"))
                            .hint("the flags are -i -f -m -n -M -u; -- ends them".to_owned()),
                    ));
                }
                _ => break,
            }
            at += 1;
        }
        let numeric = matches!(method, Some(Method::Int | Method::Len));
        let mut operator = None;
        for word in &words[at..] {
            match word.text.as_str() {
                op @ ("eq" | "ge" | "gt" | "le" | "lt") if numeric => operator = Some(op.to_owned()),
                _ => flags.patterns.list.push((word.clone(), ignore_case, operator.clone())),
            }
        }
        let file_method = method.or_else(|| Method::of_type(expr.output())).unwrap_or(Method::Str);
        for (word, ignore_case, as_map) in named {
            let how = Comparison { ignore_case, ..Comparison::by(file_method) };
            let file = self.pattern_file(&word.text, how, as_map, None).map_err(|p| (word.span, p))?;
            flags.files.push(file);
        }
        Ok(flags)
    }

    /// Compiles a section's `acl` lines.
    pub fn acls(&mut self, lines: &[penstock_config::Line], scope: Scope, diagnostics: &mut Diagnostics) -> Acls {
        let mut acls = Acls::default();
        self.acls.clear();
        for line in lines {
            self.line = line.span;
            let mut words = Words::new(line);
            let Some(name) = words.next() else {
                diagnostics.error(line.span, "'acl' needs a name and a criterion");
                continue;
            };
            let valid = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
            if !valid || matches!(name.text.as_str(), "or" | "if" | "unless") {
                diagnostics.error(name.span, format!("'{}' is not a valid ACL name", name.text)).hint = Some(
                    "names consist of letters, digits, '-', '_', '.' and ':'; 'if', 'unless' and 'or' are reserved"
                        .to_owned(),
                );
                continue;
            }
            if words.is_empty() {
                diagnostics.error(name.span, format!("the ACL '{}' needs a criterion", name.text));
                continue;
            }
            // The rules that use it are not known yet, so it may look at anything.
            let anywhere = Scope { place: Places::ALWAYS, ..scope };
            match self.test(words.rest(), anywhere) {
                Ok(test) => {
                    let acl = acls
                        .0
                        .entry(name.text.clone())
                        .or_insert_with(|| Arc::new(Acl { name: name.text.clone(), tests: Vec::new() }));
                    Arc::make_mut(acl).tests.push(test);
                    self.acls.insert(name.text.clone(), acl.clone());
                }
                Err((span, problem)) => {
                    problem.report(span, word_text(words.rest(), span), diagnostics);
                    // A rule that uses it should not be reported as well.
                    acls.0
                        .entry(name.text.clone())
                        .or_insert_with(|| Arc::new(Acl { name: name.text.clone(), tests: Vec::new() }));
                }
            }
        }
        acls
    }

    /// The ACL of this name that lines above declare in the section, or that the manual has.
    pub(crate) fn acl_named(&mut self, name: &str, at: Range<usize>, scope: Scope) -> Result<Arc<dyn Decide>, Problem> {
        if let Some(acl) = self.acls.get(name) {
            return Ok(Arc::clone(acl));
        }
        let Some((_, text)) = PREDEFINED.iter().find(|(known, _)| *known == name) else {
            let known = self.acls.keys().map(String::as_str).chain(PREDEFINED.iter().map(|(name, _)| *name));
            return Err(Problem::new(at, format!("there is no ACL '{name}' above")).hint(hint::nearest(name, known)));
        };
        let line = crate::words::line_of(text);
        let anywhere = Scope { place: Places::ALWAYS, ..scope };
        let test = self.test(&line.words, anywhere).expect("the predefined ACLs are well formed");
        Ok(Arc::new(Acl { name: name.to_owned(), tests: vec![test] }))
    }

    /// Compiles `if ...` or `unless ...`, or nothing at all.
    pub fn condition(
        &mut self,
        words: &mut Words<'_>,
        acls: &mut Acls,
        scope: Scope,
        diagnostics: &mut Diagnostics,
    ) -> Option<Condition> {
        let Some(first) = words.next() else { return Some(Condition::always()) };
        self.line = first.span;
        let unless = match first.text.as_str() {
            "if" => false,
            "unless" => true,
            other => {
                diagnostics.error(first.span, format!("'{other}' is not expected here")).hint =
                    hint::nearest(other, ["if", "unless"]).or(Some("a condition begins with 'if' or 'unless'".into()));
                return None;
            }
        };
        if words.is_empty() {
            diagnostics.error(first.span, format!("'{}' needs a condition", first.text));
            return None;
        }
        self.terms(words, acls, scope, diagnostics).map(|alternatives| Condition { unless, alternatives })
    }

    fn terms(
        &mut self,
        words: &mut Words<'_>,
        acls: &mut Acls,
        scope: Scope,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<Vec<Term>>> {
        let mut alternatives = vec![Vec::new()];
        // Also a term with an error, which has been reported.
        let mut has_term = false;
        let mut negated = false;
        let mut fine = true;
        while let Some(word) = words.next() {
            let mut text = word.text.as_str();
            if matches!(text, "or" | "||") {
                if !has_term || negated || words.is_empty() {
                    diagnostics.error(word.span, format!("'{text}' needs a term on each side"));
                    return None;
                }
                alternatives.push(Vec::new());
                has_term = false;
                continue;
            }
            while let Some(rest) = text.strip_prefix('!') {
                negated = !negated;
                text = rest;
            }
            let acl = match text {
                "" if words.is_empty() => {
                    diagnostics.error(word.span, "'!' needs a term after it");
                    return None;
                }
                "" => continue,
                "{" => {
                    let rest = words.rest();
                    let Some(len) = rest.iter().position(|word| word.text == "}") else {
                        diagnostics.error(word.span, "'{' is not closed").hint =
                            Some("spaces stand before and after each brace".into());
                        return None;
                    };
                    let inside = &rest[..len];
                    (0..=len).for_each(|_| {
                        words.next();
                    });
                    let anywhere = Scope { place: Places::ALWAYS, ..scope };
                    match self.test(inside, anywhere) {
                        Ok(test) => {
                            let acl = Acl { name: String::new(), tests: vec![test] };
                            acl.warn_if_blind(self.place(scope), inside.first().unwrap_or(word).span, diagnostics);
                            Some(Arc::new(acl))
                        }
                        Err((span, problem)) => {
                            let span = if inside.is_empty() { word.span } else { span };
                            problem.report(span, word_text(inside, span), diagnostics);
                            None
                        }
                    }
                }
                name => self.named(name, word, acls, scope, diagnostics),
            };
            match acl {
                Some(acl) => alternatives.last_mut().expect("there is always one").push(Term { negated, acl }),
                None => fine = false,
            }
            has_term = true;
            negated = false;
        }
        fine.then_some(alternatives)
    }

    fn named(
        &mut self,
        name: &str,
        word: &Word,
        acls: &mut Acls,
        scope: Scope,
        diagnostics: &mut Diagnostics,
    ) -> Option<Arc<Acl>> {
        if !acls.0.contains_key(name)
            && let Some((_, text)) = PREDEFINED.iter().find(|(known, _)| *known == name)
        {
            let line = crate::words::line_of(text);
            let anywhere = Scope { place: Places::ALWAYS, ..scope };
            let test = self.test(&line.words, anywhere).expect("the predefined ACLs are well formed");
            acls.0.insert(name.to_owned(), Arc::new(Acl { name: name.to_owned(), tests: vec![test] }));
        }
        let Some(acl) = acls.0.get(name) else {
            let own = acls.0.keys().map(String::as_str);
            let known = own.clone().chain(PREDEFINED.iter().map(|(name, _)| *name));
            diagnostics.error(word.span, format!("there is no ACL '{name}'")).hint = mistaken(name)
                .map(str::to_owned)
                .or_else(|| hint::nearest(name, known))
                .or_else(|| penstock_config::units::suggestion(name, own, "ACLs of this section"));
            return None;
        };
        acl.warn_if_blind(self.place(scope), word.span, diagnostics);
        Some(Arc::clone(acl))
    }
}

/// What is meant by a word of a condition that is no name.
fn mistaken(word: &str) -> Option<&'static str> {
    match word {
        "and" | "AND" | "&&" => Some("ACLs side by side have to be true together: leave this word out"),
        "OR" => Some("write 'or', or '||'"),
        "not" | "NOT" => Some("write '!' in front of the ACL"),
        _ if word.contains(['{', '}']) => {
            Some("braces are words of their own: { path /x }, with blanks and without quotes")
        }
        _ => None,
    }
}

#[derive(Default)]
struct Flags {
    patterns: Patterns,
    files: Vec<Reading>,
    /// `-u`.
    id: Option<u32>,
}

/// Patterns written in the line, each with its case sensitivity and the operator before it.
#[derive(Default)]
struct Patterns {
    list: Vec<(Word, bool, Option<String>)>,
}

impl Linker<'_> {
    /// Makes a list of the patterns written in an ACL, which operators can change like a file's.
    fn inline(
        &mut self,
        fetch: &str,
        id: Option<u32>,
        patterns: Patterns,
        method: Method,
        dotted: bool,
    ) -> Result<Reading, (Span, Problem)> {
        let list = if method.wants_patterns() { patterns.list } else { Vec::new() };
        let with_operators = list.iter().any(|(_, _, operator)| operator.is_some());
        let ignore_case = list.first().is_some_and(|(_, ignore_case, _)| *ignore_case);
        let texts = list.iter().map(|(word, _, operator)| {
            let text = match with_operators {
                true => operators::range_of(&word.text, operator.as_deref(), dotted),
                false => word.text.clone(),
            };
            (bytes_of(&text).into_owned(), "")
        });
        let reference = Reference::new("", false, texts);
        let reading = reference.reading(Comparison { ignore_case, dotted, ..Comparison::by(method) }, None);
        let reading = reading.map_err(|(at, problem)| {
            let (word, _, operator) = &list[at];
            (word.span, operators::misread(&word.text, operator.as_deref(), problem))
        })?;
        let (file, line) = self.written();
        reference.describe(&format!("acl '{fetch}' file '{file}' line {line}"), true);
        self.keep(reference, id);
        Ok(reading)
    }
}

/// The text of the word at a span, to tell whether quotes were removed from it.
fn word_text(words: &[Word], span: Span) -> &str {
    words.iter().find(|word| word.span == span).map_or("", |word| &word.text)
}

impl Problem {
    /// Reports the problem and underlines the affected bytes at the word's place in the original file.
    pub(crate) fn report(self, span: Span, text: &str, diagnostics: &mut Diagnostics) {
        let span = self.place(span, text);
        // The configuration's parser checks names of backends too: each word is reported only once.
        let known = diagnostics.list.iter().any(|d| d.span == Some(span) && d.severity == Severity::Error);
        if !known {
            diagnostics.error(span, self.message).hint = self.hint;
        }
    }

    /// Reports it as something that does no more than change nothing.
    pub(crate) fn warn(self, span: Span, text: &str, diagnostics: &mut Diagnostics) {
        let at = self.place(span, text);
        diagnostics.warning(at, self.message).hint = self.hint;
    }

    fn place(&self, span: Span, text: &str) -> Span {
        let plain = (span.end - span.start) as usize == text.len();
        match plain && self.at.end <= text.len() && self.at.start < self.at.end {
            true => Span { start: span.start + self.at.start as u32, end: span.start + self.at.end as u32, ..span },
            false => span,
        }
    }
}
