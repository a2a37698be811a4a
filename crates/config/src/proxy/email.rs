//! `email-alert`.

use super::{draft::Draft, log};
use crate::{
    keyword::{Keyword, ONE},
    model::EmailAlert,
    span::Span,
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("email-alert from", ONE, "Sender of email alerts", |d, a| {
        alert(d, a.span).from = Some(a.text("an address")?);
        Ok(())
    })
    .spare(),
    Entry::new("email-alert level", ONE, "Least severity of what is mailed", |d, a| {
        alert(d, a.span).level = log::level(a)?;
        Ok(())
    })
    .spare(),
    Entry::new("email-alert mailers", ONE, "The mailers section whose servers deliver email alerts", |d, a| {
        alert(d, a.span).mailers = Some(a.word("the name of a mailers section")?.clone());
        Ok(())
    })
    .spare(),
    Entry::new("email-alert myhostname", ONE, "Host name that is given to the mail server", |d, a| {
        alert(d, a.span).host = Some(a.text("a host name")?);
        Ok(())
    })
    .spare(),
    Entry::new("email-alert to", ONE, "Recipient of email alerts", |d, a| {
        alert(d, a.span).to = Some(a.text("an address")?);
        Ok(())
    })
    .spare(),
];

fn alert(draft: &mut Draft, at: Span) -> &mut EmailAlert {
    draft.proxy.email_alert.get_or_insert_with(|| Box::new(EmailAlert::new(at)))
}
