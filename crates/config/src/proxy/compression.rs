//! `compression`, and the filters of that name.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed, Reported},
    keyword::{ALL, ANY, Keyword, NONE, ONE, Places, SOME},
    model::{Compression, CompressionAlgorithm},
};

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new(
        "compression algo",
        SOME,
        "How responses are compressed: gzip, deflate, raw-deflate, br, zstd, identity",
        algorithms,
    )
    .at(ALL),
    Entry::new(
        "compression algo-res",
        SOME,
        "How responses are compressed: gzip, deflate, raw-deflate, br, zstd, identity",
        algorithms,
    )
    .at(ALL),
    Entry::new("compression algo-req", ONE, "How requests are compressed, likewise", |d, a| {
        settings(d).request_algorithm = Some(a.choice("a compression algorithm", CompressionAlgorithm::NAMED)?);
        Ok(())
    })
    .spare()
    .at(ALL),
    Entry::new("compression type", SOME, "Beginnings of the content types to compress", types).at(ALL),
    Entry::new("compression type-res", SOME, "Beginnings of the content types to compress", types).at(ALL),
    Entry::new("compression type-req", SOME, "Beginnings of the content types to compress in requests", |d, a| {
        let types = words(a);
        settings(d).request_types.extend(types);
        Ok(())
    })
    .at(ALL),
    Entry::new("compression offload", NONE, "Servers are not asked to compress", |d, a| {
        if d.place.has(Places::DEFAULTS) {
            let span = a.keyword_span;
            let message = "'compression offload' has no effect in a 'defaults' section";
            a.diagnostics().warning(span, message).hint("write it in the sections that need it");
            return Ok(());
        }
        settings(d).offload = true;
        Ok(())
    })
    .spare()
    .at(ALL),
    Entry::new("compression direction", ONE, "What is compressed: responses, requests, or both", |d, a| {
        let (requests, responses) = a.choice("a direction", DIRECTIONS)?;
        let settings = settings(d);
        if !settings.by_filters {
            (settings.requests, settings.responses) = (requests, responses);
        }
        Ok(())
    })
    .spare()
    .at(ALL),
    Entry::new(
        "compression minsize-res",
        ONE,
        "Bytes below which responses of known length are not compressed",
        |d, a| {
            settings(d).min_size = a.size("a size", 0..=u64::from(u32::MAX))?;
            Ok(())
        },
    )
    .at(ALL),
    Entry::new(
        "compression minsize-req",
        ONE,
        "Bytes below which requests of known length are not compressed",
        |d, a| {
            settings(d).request_min_size = a.size("a size", 0..=u64::from(u32::MAX))?;
            Ok(())
        },
    )
    .at(ALL),
    Entry::new("filter compression", NONE, "Compression beside other filters", filter).at(ANY),
    Entry::new("filter comp-req", NONE, "Requests are compressed", |d, a| {
        filter(d, a)?;
        by_filters(settings(d)).requests = true;
        Ok(())
    })
    .at(ANY),
    Entry::new("filter comp-res", NONE, "Responses are compressed", |d, a| {
        filter(d, a)?;
        by_filters(settings(d)).responses = true;
        Ok(())
    })
    .at(ANY),
];

const DIRECTIONS: &[(&str, (bool, bool))] =
    &[("request", (true, false)), ("response", (false, true)), ("both", (true, true))];

fn settings(draft: &mut Draft) -> &mut Compression {
    draft.proxy.compression.get_or_insert_default()
}

/// Settings whose direction is that of the filters, whatever `compression direction` says.
fn by_filters(settings: &mut Compression) -> &mut Compression {
    if !std::mem::replace(&mut settings.by_filters, true) {
        (settings.requests, settings.responses) = (false, false);
    }
    settings
}

fn algorithms(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    while args.peek().is_some() {
        let algorithm = args.choice("a compression algorithm", CompressionAlgorithm::NAMED)?;
        settings(draft).algorithms.push(algorithm);
    }
    Ok(())
}

fn types(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let types = words(args);
    settings(draft).types.extend(types);
    Ok(())
}

fn words(args: &mut Args<'_>) -> Vec<String> {
    std::iter::from_fn(|| args.take()).map(|word| word.text.clone()).collect()
}

/// A filter, of which a section has at most one of each name.
fn filter(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    if draft.compression_filters.iter().any(|known| known == args.keyword) {
        let (span, name) = (args.keyword_span, args.keyword);
        let message = format!("a section has only one '{name}'");
        args.diagnostics().error(span, message).hint("remove one of them");
        return Err(Reported);
    }
    draft.compression_filters.push(args.keyword.to_owned());
    Ok(())
}
