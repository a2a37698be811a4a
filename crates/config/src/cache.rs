//! `cache` sections, and what proxies say about them.

use crate::{
    args::{Args, Parsed},
    diagnostic::Diagnostics,
    keyword::{Keyword, ONE, Table},
    model::{CacheSection, Config, Proxy},
    proxy::Draft,
    span::{Spanned, Word},
    surroundings::Surroundings,
    units::suggestion,
};

type Entry = Keyword<CacheSection>;

/// The largest cache in MB.
const TOTAL_MAX: u64 = 4095;

pub(crate) static TABLE: Table<CacheSection> = Table::new(
    "cache",
    &[&[
        Entry::new("total-max-size", ONE, "Size of the cache, in megabytes", |c, a| {
            // One that is wrong has been reported, and is not missing.
            c.total_size = TOTAL_MAX << 20;
            c.total_size = a.number("a number of megabytes", 1..=TOTAL_MAX)? << 20;
            Ok(())
        })
        .spare(),
        Entry::new("max-object-size", ONE, "Size of the largest response that is stored, in bytes", |c, a| {
            let span = a.peek().map_or(a.keyword_span, |word| word.span);
            let value = a.number("a number of bytes", 0..=TOTAL_MAX << 20)?;
            c.object_size = (value > 0).then_some(Spanned { value, span });
            Ok(())
        })
        .spare(),
        Entry::new("max-age", ONE, "Longest time, in seconds, for which a stored response is used", |c, a| {
            c.max_age_s = seconds(a)?;
            Ok(())
        })
        .spare(),
        Entry::new("process-vary", ONE, "Whether responses with a Vary field are stored", |c, a| {
            let word = a.word("'on' or 'off'")?;
            match word.text.as_str() {
                "on" => c.process_vary = true,
                "off" => c.process_vary = false,
                // HAProxy only warns, too.
                other => {
                    let message = format!("'process-vary' is 'on' or 'off', not '{other}'");
                    a.diagnostics().warning(word.span, message).hint("responses that vary are not stored");
                }
            }
            Ok(())
        })
        .spare(),
        Entry::new("max-secondary-entries", ONE, "Number of variants stored for one target", |c, a| {
            c.secondary_entries = a.number("a number of responses", 1..=u32::MAX)? as usize;
            Ok(())
        })
        .spare(),
        Entry::new("answer-ranges", ONE, "Whether ranges of stored responses are answered with those parts", |c, a| {
            c.answer_ranges = a.choice("'on' or 'off'", &[("on", true), ("off", false)])?;
            Ok(())
        }),
        Entry::new(
            "collapse",
            ONE,
            "Longest time that a request waits for the response to another for the same, or off",
            |c, a| {
                if a.take_if("off") {
                    c.collapse = None;
                    return Ok(());
                }
                c.collapse =
                    Some(a.time_above_zero("requests cannot wait for no time; 'collapse off' says that they do not")?);
                Ok(())
            },
        ),
    ]],
);

/// Reads a number of seconds, behind which HAProxy ignores a unit.
fn seconds(args: &mut Args<'_>) -> Parsed<u64> {
    let word = args.word("a number of seconds")?;
    let digits = word.text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = word.text.split_at(digits);
    if !number.is_empty() && !unit.is_empty() {
        let message = format!("'{unit}' is ignored: this means {number} seconds");
        args.diagnostics().warning(word.span, message).hint("write the number of seconds alone");
        return args.number_in(word, number, "a number of seconds", 0..=u64::from(u32::MAX));
    }
    args.number_in(word, &word.text, "a number of seconds", 0..=u64::from(u32::MAX))
}

/// Checks a section as a whole.
pub(crate) fn end(cache: &CacheSection, around: &mut Surroundings) {
    if cache.total_size == 0 {
        around
            .diagnostics
            .error(cache.span, format!("the cache '{}' has no size", cache.name))
            .hint("add for instance 'total-max-size 4'");
    } else if let Some(size) = cache.object_size.as_ref().filter(|size| size.value > cache.total_size / 2) {
        around
            .diagnostics
            .error(size.span, "'max-object-size' is more than half of 'total-max-size'")
            .hint(format!("at most {}", cache.total_size / 2));
    }
}

/// The filters that compress.
const COMPRESSING: [&str; 3] = ["filter compression", "filter comp-req", "filter comp-res"];

/// Reads `filter cache`.
pub(crate) fn filter(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let name = args.word("the name of a cache")?;
    if draft.proxy.cache_filters.iter().any(|known| known.value == name.text) {
        return args.wrong(name, format!("the cache '{}' already has a filter here", name.text), "remove one of them");
    }
    // Even if it comes too late, so that a cache that does not exist is reported as well.
    draft.proxy.cache_filters.push(Spanned { value: name.text.clone(), span: name.span });
    if !draft.compression_filters.is_empty() {
        let message = format!("the cache '{}' comes after a filter that compresses", name.text);
        return args.wrong(name, message, "write this line before that filter: responses are stored uncompressed");
    }
    Ok(())
}

/// Checks that a section whose filters are given in their order has one for each cache that its rules name.
pub(crate) fn order(draft: &Draft, diagnostics: &mut Diagnostics) {
    let proxy = &draft.proxy;
    let missing = |name: &&Word| !proxy.cache_filters.iter().any(|known| known.value == name.text);
    let kind = draft.section();
    for name in named_by_rules(proxy).filter(missing) {
        let cache = &name.text;
        if let Some(other) = draft.seen.get("filter trace") {
            let message = format!(
                "{kind} '{}' uses the cache '{cache}', but does not say whether it comes before or after this filter",
                proxy.name
            );
            diagnostics.error(*other, message).hint(format!("add 'filter cache {cache}' before or after it"));
            return;
        }
        let compresses = COMPRESSING.iter().find_map(|filter| draft.seen.get(filter));
        if let Some(first) = compresses.filter(|first| (first.file, first.line) < (name.span.file, name.span.line)) {
            let message = format!("{kind} '{}' compresses before it stores in the cache '{cache}'", proxy.name);
            diagnostics.error(*first, message).hint(format!("add 'filter cache {cache}' before this line"));
            return;
        }
    }
}

/// Checks that the caches of filters exist.
pub(crate) fn references(config: &Config, proxy: &Proxy, diagnostics: &mut Diagnostics) {
    for filter in &proxy.cache_filters {
        if !config.caches.iter().any(|cache| cache.name == filter.value) {
            let finding = diagnostics.error(filter.span, format!("there is no cache '{}'", filter.value));
            finding.hint = suggestion(&filter.value, config.caches.iter().map(|cache| cache.name.as_str()), "caches");
        }
    }
}

/// The words that name caches in rules.
fn named_by_rules(proxy: &Proxy) -> impl Iterator<Item = &Word> {
    let lines = proxy.http_request.iter().chain(&proxy.http_response);
    lines.filter_map(|line| match line.words.as_slice() {
        [action, name, ..] if action.text == "cache-use" || action.text == "cache-store" => Some(name),
        _ => None,
    })
}
