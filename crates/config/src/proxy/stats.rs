//! `stats *` of a proxy: the statistics page.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed},
    keyword::{ANY, Keyword, NONE, ONE, at_least, between},
    model::StatsPage,
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("stats enable", NONE, "Serves the statistics page", |d, _| {
        page(d);
        Ok(())
    })
    .spare(),
    Entry::new("stats uri", ONE, "Path of the statistics page", |d, a| {
        page(d).uri = a.text("a path")?;
        Ok(())
    })
    .spare(),
    Entry::new("stats realm", ONE, "Text of the statistics page's password prompt", |d, a| {
        page(d).realm = Some(a.text("a realm")?);
        Ok(())
    })
    .spare(),
    Entry::new("stats auth", ONE, "A user and password for the statistics page", |d, a| {
        let word = a.word("USER:PASSWORD")?;
        // HAProxy treats a name without a colon as one with an empty password.
        let (user, password) = word.text.split_once(':').unwrap_or((&word.text, ""));
        page(d).auth.push((user.to_owned(), password.to_owned()));
        Ok(())
    })
    .spare(),
    Entry::new("stats refresh", ONE, "How often the browser reloads the statistics page", |d, a| {
        page(d).refresh = Some(a.time_in_unit("a time", std::time::Duration::from_secs(1))?);
        Ok(())
    })
    .spare(),
    Entry::new("stats hide-version", NONE, "The statistics page does not show the version", |d, _| {
        page(d).hide_version = true;
        Ok(())
    })
    .spare(),
    Entry::new("stats show-legends", NONE, "The statistics page shows addresses and settings", |d, _| {
        page(d).show_legends = true;
        Ok(())
    })
    .spare(),
    Entry::new("stats show-modules", NONE, "Shows the counters of modules", |d, _| {
        page(d).show_modules = true;
        Ok(())
    })
    .spare()
    .notice("modules have no counters of their own"),
    Entry::new("stats show-node", between(0, 1), "The statistics page shows the node's name", |d, a| {
        let name = a.take().map(|w| w.text.clone());
        page(d).show_node = Some(name);
        Ok(())
    })
    .spare(),
    Entry::new("stats show-desc", between(0, 255), "The statistics page shows a description", |d, a| {
        let text = super::basics::joined(a);
        page(d).show_desc = Some(Some(text).filter(|t| !t.is_empty()));
        Ok(())
    }),
    Entry::new("stats scope", ONE, "Proxies that the statistics page shows", |d, a| {
        let name = a.text("the name of a proxy, or '.'")?;
        page(d).scope.push(name);
        Ok(())
    })
    .spare(),
    Entry::new(
        "stats admin",
        at_least(2),
        "Condition under which the statistics page may change servers' states",
        |d, a| {
            condition(a)?;
            let line = a.rest();
            page(d).admin.push(line);
            Ok(())
        },
    )
    .at(ANY),
    Entry::new("stats http-request", at_least(1), "Rules for access to the statistics page", |d, a| {
        a.choice("an action", &[("allow", ()), ("deny", ()), ("auth", ())])?;
        a.next = 0;
        let line = a.rest();
        page(d).http_request.push(line);
        Ok(())
    })
    .at(ANY),
];

/// Every `stats` line enables the page.
fn page(draft: &mut Draft) -> &mut StatsPage {
    draft.proxy.stats.get_or_insert_with(|| StatsPage { uri: "/haproxy?stats".into(), ..StatsPage::default() })
}

fn condition(args: &mut Args<'_>) -> Parsed {
    args.choice("a condition", &[("if", ()), ("unless", ())])?;
    args.next = 0;
    Ok(())
}
