//! `filter bwlim-in` and `filter bwlim-out`.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed, Reported},
    keyword::{ANY, Keyword, SOME},
    model::{BandwidthFilter, BandwidthShare},
    span::Line,
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("filter bwlim-in", SOME, "A limit of the bandwidth of uploads, for 'set-bandwidth-limit'", |d, a| {
        filter(d, a, false)
    })
    .at(ANY),
    Entry::new("filter bwlim-out", SOME, "A limit of the bandwidth of downloads, for 'set-bandwidth-limit'", |d, a| {
        filter(d, a, true)
    })
    .at(ANY),
];

fn filter(draft: &mut Draft, args: &mut Args<'_>, download: bool) -> Parsed {
    let name = args.spanned("a name")?;
    if draft.proxy.bandwidth_filters.iter().any(|known| known.name.value == name.value) {
        let message = format!("the section has a bandwidth filter '{}' already", name.value);
        args.diagnostics().error(name.span, message).hint("give it another name");
        return Err(Reported);
    }
    let (mut own, mut period, mut shared, mut key, mut table, mut min_size) = (None, None, None, None, None, 0);
    while let Some(word) = args.take() {
        let bytes = 0..=u64::from(u32::MAX);
        // A limit of nothing would stop the transfer for good.
        let some = 1..=u64::from(u32::MAX);
        match word.text.as_str() {
            "default-limit" => own = Some(args.size("a number of bytes", some)?),
            "default-period" => period = Some(args.time_above_zero("a period of zero is not allowed")?),
            "limit" => shared = Some(args.size("a number of bytes", some)?),
            "key" => key = Some(Line { words: vec![args.word("a sample expression")?.clone()], span: word.span }),
            "table" => table = Some(args.word("the name of a stick table")?.clone()),
            "min-size" => min_size = args.size("a number of bytes", bytes)?,
            other => {
                let hint = "one of default-limit, default-period, limit, key, table, min-size";
                return args.wrong(word, format!("'{other}' is not an argument of a bandwidth filter"), hint);
            }
        }
    }
    let (limit, share) = match (own, period, shared, key) {
        (Some(limit), Some(period), None, None) if table.is_none() => (limit, BandwidthShare::Own(period)),
        (None, None, Some(limit), Some(key)) => (limit, BandwidthShare::Entry { key, table }),
        _ => {
            let hint = "'default-limit' and 'default-period' go together, as do 'limit', 'key' and 'table'";
            args.error(format!("'{}' needs a limit, and a period or a key", args.keyword)).hint(hint);
            return Err(Reported);
        }
    };
    draft.proxy.bandwidth_filters.push(BandwidthFilter { name, download, limit, min_size, share });
    Ok(())
}
