//! Parses the words of rules that respond: `return`, `deny`, `tarpit`, `redirect`, `http-error`.

use super::{Action, Redirect, ReplyTemplate, build::Build, redirect::Target, reply::Body};
use crate::{
    hint,
    log::{LogFormat, Purpose},
};
use penstock_config::{Word, bytes_of, mistake_of_error_file};

/// Statuses that the proxy itself responds with, for which there can be error pages.
pub(crate) const ANSWERED: &[u16] =
    &[200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504];

impl Build<'_, '_, '_> {
    pub(crate) fn deny(&mut self) -> Option<Action> {
        let status = if self.kind.is_response() { 502 } else { 403 };
        self.refusal(status).map(Action::Deny)
    }

    pub(crate) fn tarpit(&mut self) -> Option<Action> {
        self.refusal(500).map(Action::Tarpit)
    }

    /// Without arguments, or with only `deny_status`, the response is the page for the status (manual, `http-request
    /// deny`).
    fn refusal(&mut self, status: u16) -> Option<ReplyTemplate> {
        let rest = self.words.rest();
        let ends_at = |at: usize| rest.get(at).is_none_or(|word| matches!(word.text.as_str(), "if" | "unless"));
        let is_page = ends_at(0) || rest[0].text == "deny_status" && ends_at(2);
        self.reply(status, if is_page { Body::ErrorPage } else { Body::Empty })
    }

    pub(crate) fn return_reply(&mut self) -> Option<Action> {
        self.reply(200, Body::Empty).map(Action::Return)
    }

    /// The arguments that describe a response.
    pub(crate) fn reply(&mut self, status: u16, body: Body) -> Option<ReplyTemplate> {
        let mut reply = ReplyTemplate { status, body, ..ReplyTemplate::default() };
        let mut typed = None;
        let mut errorfiles = None;
        let mut content: Option<&Word> = None;
        while let Some(word) = self.words.peek() {
            if matches!(word.text.as_str(), "if" | "unless") {
                break;
            }
            self.words.next();
            let is_content = matches!(
                word.text.as_str(),
                "default-errorfiles" | "errorfile" | "errorfiles" | "file" | "string" | "lf-string" | "lf-file"
            );
            if is_content && let Some(before) = content.replace(word) {
                let problem = format!("'{}' cannot stand beside '{}'", word.text, before.text);
                self.error(word.span, problem, Some("a response has one body".to_owned()));
                return None;
            }
            match word.text.as_str() {
                "status" | "deny_status" => reply.status = self.status_code(200..=599)?,
                "content-type" => {
                    let kind = self.value_of(word)?;
                    typed = Some(word);
                    reply.content_type = Some(kind.as_bytes().into());
                }
                "default-errorfiles" => reply.body = Body::ErrorPage,
                "errorfile" => {
                    let path = self.value_of(word)?;
                    reply.body = Body::Raw(self.error_file(path)?.into());
                }
                "errorfiles" => {
                    let name = self.value_of(word)?;
                    let sections = &self.linker.config.http_errors;
                    if !sections.contains_key(name.text.as_str()) {
                        let near = hint::nearest(&name.text, sections.keys().map(String::as_str));
                        self.error(name.span, format!("there is no section 'http-errors {}'", name.text), near);
                        return None;
                    }
                    errorfiles = Some(name);
                }
                "file" => {
                    let path = self.value_of(word)?;
                    let content = self.file(path)?;
                    reply.body = if content.is_empty() { Body::Empty } else { Body::Bytes(content.into()) };
                }
                "string" => {
                    let text = self.value_of(word)?;
                    reply.body = Body::Bytes(bytes_of(text).into());
                }
                "lf-string" => {
                    let text = self.value_of(word)?;
                    reply.body = Body::Format(Box::new(self.format_of(text, Purpose::Http)?));
                }
                "lf-file" => {
                    let path = self.value_of(word)?;
                    let content = self.file(path)?;
                    let text = Word { text: penstock_config::text_of(&content), span: path.span };
                    reply.body = Body::Format(Box::new(self.format_of(&text, Purpose::Http)?));
                }
                "hdr" => {
                    let name = self.name()?;
                    if self.words.peek().is_none_or(|value| value.text.is_empty()) {
                        self.error(word.span, "'hdr' needs a name and a value that is not empty".to_owned(), None);
                        return None;
                    }
                    reply.fields.push((name, self.http_format()?));
                }
                other => {
                    let known = [
                        "status",
                        "content-type",
                        "default-errorfiles",
                        "errorfile",
                        "errorfiles",
                        "file",
                        "string",
                        "lf-string",
                        "lf-file",
                        "hdr",
                    ];
                    let near = hint::nearest(other, known.into_iter().chain(["if", "unless"]));
                    self.error(word.span, format!("unknown argument '{other}' of '{}'", self.word.text), near);
                    return None;
                }
            }
        }
        if let Some(name) = errorfiles {
            reply.body = self.of_section(name, reply.status)?;
        }
        let has_body = matches!(&reply.body, Body::Bytes(_) | Body::Format(_));
        match (typed, has_body) {
            (None, true) => {
                let hint = Some("such as content-type text/plain".to_owned());
                self.error(self.word.span, format!("'{}' with a body needs a 'content-type'", self.word.text), hint);
                return None;
            }
            (Some(word), false) => {
                self.diagnostics.warning(word.span, "'content-type' has no effect without a body");
            }
            _ => {}
        }
        if has_body && matches!(reply.status, 204 | 304) {
            self.error(self.word.span, format!("a response with the status {} has no body", reply.status), None);
            return None;
        }
        Some(reply)
    }

    /// The page that an `http-errors` section has for a status.
    fn of_section(&mut self, name: &Word, status: u16) -> Option<Body> {
        if !ANSWERED.contains(&status) {
            let codes: Vec<String> = ANSWERED.iter().map(u16::to_string).collect();
            let message = format!("no 'http-errors' section can have a file for the status {status}");
            self.error(name.span, message, Some(format!("it can for {}", codes.join(", "))));
            return None;
        }
        let section = &self.linker.config.http_errors[name.text.as_str()];
        match section.get(&status) {
            Some(file) => Some(Body::Raw(file.content.as_slice().into())),
            None => {
                let message = format!(
                    "'http-errors {}' has no file for {status}: the body will be empty, or with http-error the usual one",
                    name.text
                );
                self.diagnostics.warning(name.span, message);
                Some(Body::Empty)
            }
        }
    }

    fn error_file(&mut self, path: &Word) -> Option<Vec<u8>> {
        let content = self.file(path)?;
        let mistake = mistake_of_error_file(&content, self.linker.config.global.tune.bufsize);
        if let Some(mistake) = mistake {
            let hint = Some("expected a file that holds a whole HTTP response, header included".to_owned());
            self.error(path.span, format!("the error file '{}' cannot be sent: {mistake}", path.text), hint);
            return None;
        }
        Some(content)
    }

    fn file(&mut self, path: &Word) -> Option<Vec<u8>> {
        match self.linker.read(&path.text) {
            Ok(content) => Some(content),
            Err(why) => {
                self.error(path.span, why, None);
                None
            }
        }
    }

    /// `location <url>` and what may follow it. The URL of a rule may be a format; that of the keyword `redirect`,
    /// which is older than formats, is literal.
    pub(crate) fn redirect(&mut self, formatted: bool) -> Option<Redirect> {
        let mut target = None;
        let mut redirect = Redirect {
            target: Target::Location,
            to: LogFormat::default(),
            code: 302,
            drop_query: false,
            append_slash: false,
            ignore_empty: false,
            cookie: None,
        };
        while let Some(word) = self.words.peek() {
            if matches!(word.text.as_str(), "if" | "unless") {
                break;
            }
            self.words.next();
            let kind = match word.text.as_str() {
                "location" => Some(Target::Location),
                "prefix" => Some(Target::Prefix),
                "scheme" => Some(Target::Scheme),
                _ => None,
            };
            if let Some(kind) = kind {
                let value = self.value_of(word)?;
                redirect.to = match formatted {
                    true => self.format_of(value, Purpose::Http)?,
                    false => LogFormat::literal(&bytes_of(value)),
                };
                redirect.target = kind;
                target = Some(word);
                continue;
            }
            match word.text.as_str() {
                "code" => {
                    let code = self.value_of(word)?;
                    match code.parse() {
                        Ok(n @ (301 | 302 | 303 | 307 | 308)) => redirect.code = n,
                        _ => {
                            let hint = Some("one of 301, 302, 303, 307, 308".to_owned());
                            self.error(code.span, format!("'{}' is not a redirect status", code.text), hint);
                            return None;
                        }
                    }
                }
                "drop-query" => redirect.drop_query = true,
                "append-slash" => redirect.append_slash = true,
                "ignore-empty" => redirect.ignore_empty = true,
                "set-cookie" => {
                    let cookie = self.value_of(word)?;
                    redirect.cookie = Some([&bytes_of(cookie), &b"; path=/;"[..]].concat().into());
                }
                "clear-cookie" => {
                    let cookie = self.value_of(word)?;
                    let equals: &[u8] = if cookie.contains('=') { b"" } else { b"=" };
                    redirect.cookie = Some([&bytes_of(cookie), equals, b"; path=/; Max-Age=0;"].concat().into());
                }
                other => {
                    let known = [
                        "location",
                        "prefix",
                        "scheme",
                        "code",
                        "drop-query",
                        "append-slash",
                        "ignore-empty",
                        "set-cookie",
                        "clear-cookie",
                    ];
                    let near = hint::nearest(other, known);
                    self.error(word.span, format!("unknown argument '{other}' of a redirection"), near);
                    return None;
                }
            }
        }
        if target.is_none() {
            self.error(self.word.span, "a redirection needs a 'location', a 'prefix' or a 'scheme'".to_owned(), None);
            return None;
        }
        Some(redirect)
    }
}
