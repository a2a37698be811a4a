//! What is sent in place of errors: `errorfile` and its relatives, applied once all `http-errors` sections are known.

use crate::{
    args::{Args, Parsed},
    model::{ErrorFile, Proxy},
    span::{Line, Spanned, Word},
    surroundings::Surroundings,
};

/// `http-errors NAME`.
#[derive(Clone, Debug)]
pub(crate) struct HttpErrors {
    pub(crate) name: String,
    pub(crate) files: Vec<(u16, ErrorFile)>,
}

/// The statuses for which HAProxy has error messages.
const STATUSES: &[u16] =
    &[200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504];

pub(crate) fn status(args: &mut Args<'_>) -> Parsed<u16> {
    let word = args.word("a status")?;
    match word.text.parse() {
        Ok(code) if STATUSES.contains(&code) => Ok(code),
        _ => {
            let known: Vec<String> = STATUSES.iter().map(u16::to_string).collect();
            args.wrong(
                word,
                format!("'{}' is not a status with an error page", word.text),
                format!("expected one of {}", known.join(", ")),
            )
        }
    }
}

/// Parses `CODE FILE`.
pub(crate) fn errorfile(args: &mut Args<'_>) -> Parsed<(u16, ErrorFile)> {
    let code = status(args)?;
    let Spanned { value: path, span } = args.path("a file")?;
    Ok((code, ErrorFile { path, content: Vec::new(), span }))
}

/// What one directive sends in place of errors. If there are several for one status, the last applies.
#[derive(Clone)]
pub(crate) enum ErrorPages {
    /// `errorfile`.
    File(u16, ErrorFile),
    /// `errorloc`: the status it replaces, the redirect's status, and its URL.
    Location(u16, u16, String),
    /// `errorfiles`: the files of an `http-errors` section for these statuses; for all if none are given.
    Section(Word, Vec<u16>),
    /// `http-error`.
    Reply(u16, Line),
}

impl ErrorPages {
    /// Applies it, replacing what earlier directives set.
    pub(crate) fn apply(self, proxy: &mut Proxy, sections: &[HttpErrors], around: &mut Surroundings) {
        match self {
            ErrorPages::File(code, file) => put_file(proxy, code, file),
            ErrorPages::Location(code, with, url) => {
                forget_page(proxy, code);
                proxy.errorlocs.insert(code, (with, url));
            }
            ErrorPages::Section(name, codes) => apply_errorfiles(proxy, &name, &codes, sections, around),
            ErrorPages::Reply(code, line) => {
                forget_page(proxy, code);
                proxy.http_errors.insert(code, line);
            }
        }
    }
}

fn put_file(proxy: &mut Proxy, code: u16, file: ErrorFile) {
    forget_page(proxy, code);
    proxy.errorfiles.insert(code, file);
}

fn forget_page(proxy: &mut Proxy, code: u16) {
    proxy.errorfiles.remove(&code);
    proxy.errorlocs.remove(&code);
    proxy.http_errors.remove(&code);
}

/// Copies the files of an `http-errors` section: those for `codes`, or all if there are none.
fn apply_errorfiles(proxy: &mut Proxy, name: &Word, codes: &[u16], sections: &[HttpErrors], around: &mut Surroundings) {
    let Some(section) = sections.iter().find(|s| s.name == name.text) else {
        let finding = around.diagnostics.error(name.span, format!("no http-errors section is called '{}'", name.text));
        if let Some(near) = crate::units::nearest(&name.text, sections.iter().map(|s| s.name.as_str())) {
            finding.hint(format!("did you mean '{near}'?"));
        }
        return;
    };
    for (code, file) in &section.files {
        if codes.is_empty() || codes.contains(code) {
            put_file(proxy, *code, file.clone());
        }
    }
    for code in codes.iter().filter(|code| !section.files.iter().any(|(known, _)| known == *code)) {
        around.diagnostics.error(name.span, format!("the http-errors section '{}' has no file for {code}", name.text));
    }
}
