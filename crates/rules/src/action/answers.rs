//! Reading the words of rules that answer: `return`, `deny`, `tarpit`, `redirect`, `http-error`.

use super::{Action, Redirect, ReplyTemplate, build::Build, redirect::Target, reply::Body};
use crate::{
    hint,
    log::{LogFormat, Purpose},
};
use penstock_config::Word;

impl Build<'_, '_, '_> {
    pub(crate) fn deny(&mut self) -> Option<Action> {
        let status = if self.kind.is_response() { 502 } else { 403 };
        self.reply(status, Body::ErrorPage).map(Action::Deny)
    }

    pub(crate) fn tarpit(&mut self) -> Option<Action> {
        self.reply(500, Body::ErrorPage).map(Action::Tarpit)
    }

    pub(crate) fn return_reply(&mut self) -> Option<Action> {
        self.reply(200, Body::Empty).map(Action::Return)
    }

    /// The arguments that describe an answer.
    pub(crate) fn reply(&mut self, status: u16, body: Body) -> Option<ReplyTemplate> {
        let mut reply = ReplyTemplate { status, body, ..ReplyTemplate::default() };
        let mut typed = None;
        while let Some(word) = self.words.peek() {
            if matches!(word.text.as_str(), "if" | "unless") {
                break;
            }
            self.words.next();
            match word.text.as_str() {
                "status" | "deny_status" => reply.status = self.status_code(200)?,
                "content-type" => {
                    let kind = self.value_of(word)?;
                    typed = Some(word);
                    reply.content_type = Some(kind.as_bytes().into());
                }
                "default-errorfiles" => reply.body = Body::ErrorPage,
                "errorfile" => {
                    let path = self.value_of(word)?;
                    reply.body = Body::Raw(self.file(path)?.into());
                }
                "errorfiles" => {
                    let hint = Some("write `errorfile` with the file itself".to_owned());
                    self.error(word.span, "named groups of error files cannot be used in rules".to_owned(), hint);
                    return None;
                }
                "file" => {
                    let path = self.value_of(word)?;
                    reply.body = Body::Bytes(self.file(path)?.into());
                }
                "string" => {
                    let text = self.value_of(word)?;
                    reply.body = Body::Bytes(text.as_bytes().into());
                }
                "lf-string" => {
                    let text = self.value_of(word)?;
                    reply.body = Body::Format(Box::new(self.format_of(text, Purpose::Http)?));
                }
                "lf-file" => {
                    let path = self.value_of(word)?;
                    let content = self.file(path)?;
                    let Ok(text) = String::from_utf8(content) else {
                        self.error(path.span, format!("{} is not text", path.text), None);
                        return None;
                    };
                    let text = Word { text, span: path.span };
                    reply.body = Body::Format(Box::new(self.format_of(&text, Purpose::Http)?));
                }
                "hdr" => {
                    let name = self.name()?;
                    reply.fields.push((name, self.http_format()?));
                }
                other => {
                    let known = [
                        "status",
                        "content-type",
                        "default-errorfiles",
                        "errorfile",
                        "file",
                        "string",
                        "lf-string",
                        "lf-file",
                        "hdr",
                    ];
                    let near = hint::nearest(other, known.into_iter().chain(["if", "unless"]));
                    self.error(word.span, format!("unknown argument `{other}` of `{}`", self.word.text), near);
                    return None;
                }
            }
        }
        let has_body = matches!(&reply.body, Body::Bytes(_) | Body::Format(_));
        match (typed, has_body) {
            (None, true) => {
                let hint = Some("such as content-type text/plain".to_owned());
                self.error(self.word.span, format!("`{}` with a body wants a `content-type`", self.word.text), hint);
                return None;
            }
            (Some(word), false) => {
                self.diagnostics.warning(word.span, "`content-type` has no effect without a body");
            }
            _ => {}
        }
        Some(reply)
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

    /// `location <url>` and what may follow it.
    pub(crate) fn redirect(&mut self) -> Option<Redirect> {
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
                redirect.to = self.format_of(value, Purpose::Http)?;
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
                            self.error(code.span, format!("`{}` is no code of a redirection", code.text), hint);
                            return None;
                        }
                    }
                }
                "drop-query" => redirect.drop_query = true,
                "append-slash" => redirect.append_slash = true,
                "ignore-empty" => redirect.ignore_empty = true,
                "set-cookie" => {
                    let cookie = self.value_of(word)?;
                    redirect.cookie = Some([cookie.as_bytes(), b"; path=/;"].concat().into());
                }
                "clear-cookie" => {
                    let cookie = self.value_of(word)?;
                    let equals: &[u8] = if cookie.contains('=') { b"" } else { b"=" };
                    redirect.cookie = Some([cookie.as_bytes(), equals, b"; path=/; Max-Age=0;"].concat().into());
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
                    self.error(word.span, format!("unknown argument `{other}` of a redirection"), near);
                    return None;
                }
            }
        }
        if target.is_none() {
            self.error(self.word.span, "a redirection wants a `location`, a `prefix` or a `scheme`".to_owned(), None);
            return None;
        }
        Some(redirect)
    }
}
