//! `mailers` sections (manual section 3.6), and whether the `email-alert` lines of proxies are complete.

use crate::{
    diagnostic::Diagnostics,
    keyword::{Keyword, ONE, Table, exactly},
    model::{Config, Mailer, Mailers, Proxy},
    name::valid_name,
    peers::tcp_address,
};

pub(crate) static TABLE: Table<Mailers> = Table::new(
    "mailers",
    &[&[
        Keyword::<Mailers>::new("mailer", exactly(2), "A mail server", |section, a| {
            let name = a.word("the mailer's name")?;
            valid_name(name, a.around)?;
            let word = a.word("the mailer's address and port")?;
            let address = tcp_address(a, word, "mailers")?;
            section.mailers.push(Mailer { name: name.text.clone(), span: a.span, address });
            Ok(())
        })
        .spare(),
        Keyword::<Mailers>::new("timeout mail", ONE, "Time that the delivery of a mail may take", |section, a| {
            section.timeout = a.time("a time")?;
            Ok(())
        })
        .spare(),
    ]],
);

/// Checks that a proxy's email alerts have all that they need.
pub(crate) fn references(config: &Config, proxy: &Proxy, diagnostics: &mut Diagnostics) {
    let Some(alert) = &proxy.email_alert else { return };
    let missing: Vec<&str> =
        [("mailers", alert.mailers.is_none()), ("from", alert.from.is_none()), ("to", alert.to.is_none())]
            .into_iter()
            .filter_map(|(word, is_missing)| is_missing.then_some(word))
            .collect();
    if let [word, ..] = missing[..] {
        let (kind, name) = (proxy.kind.name(), &proxy.name);
        let message = format!("{kind} '{name}' sends no email alerts: 'email-alert {word}' is missing");
        diagnostics.warning(alert.span, message).hint("'email-alert mailers', 'from' and 'to' belong together");
    } else if let Some(section) = &alert.mailers {
        crate::check::named("mailers section", section, config.mailers.iter().map(|m| m.name.as_str()), diagnostics);
    }
}
