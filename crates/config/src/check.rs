//! What no single line shows: references between sections, and lines that do not fit together.

use crate::{
    diagnostic::Diagnostics,
    model::{Config, Mode, ProxyKind},
    proxy::Draft,
    reading::Surroundings,
    span::Word,
    units::nearest,
};

/// One proxy by itself, when its section ends.
pub(crate) fn proxy(draft: &Draft, around: &mut Surroundings) {
    let proxy = &draft.proxy;
    if proxy.disabled {
        return;
    }
    let (kind, name) = (draft.section(), &proxy.name);
    let diagnostics = &mut around.diagnostics;
    if proxy.kind.has_frontend() && proxy.binds.is_empty() {
        diagnostics
            .error(proxy.span, format!("{kind} '{name}' has no 'bind' line: it would serve nothing"))
            .hint("add for instance 'bind :80'");
    }
}

/// All sections together.
pub(crate) fn references(config: &Config, diagnostics: &mut Diagnostics) {
    for proxy in &config.proxies {
        if let Some(target) = &proxy.default_backend {
            backend(config, proxy.mode, target, diagnostics);
        }
        for rule in &proxy.use_backend {
            if let Some(target) = rule.words.first() {
                backend(config, proxy.mode, target, diagnostics);
            }
        }
    }
}

/// A name that `use_backend` or `default_backend` gives.
fn backend(config: &Config, mode: Mode, target: &Word, diagnostics: &mut Diagnostics) {
    // A log format, known only with the request.
    if target.text.contains("%[") {
        return;
    }
    match config.backend(&target.text) {
        Some(found) if found.mode != mode && found.kind != ProxyKind::Frontend => {
            diagnostics
                .error(target.span, format!("'{}' has another mode than the frontend that uses it", target.text))
                .hint("give both the same 'mode'");
        }
        Some(_) => {}
        None => {
            let known = config.proxies.iter().filter(|p| p.kind.has_backend()).map(|p| p.name.as_str());
            let finding = diagnostics.error(target.span, format!("no backend is called '{}'", target.text));
            if let Some(near) = nearest(&target.text, known) {
                finding.hint(format!("did you mean '{near}'?"));
            }
        }
    }
}
