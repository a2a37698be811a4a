//! No text, split over files in any way, with any environment, makes the reader panic; every finding lies in its line,
//! and what is rendered holds no control characters.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_config::{Env, Severity, Source, evaluate_condition, load};

fuzz_target!(|data: &[u8]| {
    let env = Env {
        variables: [("A", "a b"), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        diagnostic_mode: true,
        ..Env::default()
    };
    // A NUL ends a file, as it cannot be part of one.
    let sources = data.split(|b| *b == 0).take(4).enumerate().map(|(i, part)| Source::new(format!("{i}.cfg"), part));
    let (config, diagnostics) = load(sources, &env);
    for span in diagnostics.list.iter().filter_map(|d| d.span) {
        let source = config.source(span.file).expect("a finding names a file that was read");
        let line = source.text.split('\n').nth(span.line as usize - 1).expect("a finding names a line of its file");
        assert!(span.start <= span.end && span.start as usize <= line.len(), "{span:?}");
    }
    let text = diagnostics.render(&config.files, Severity::Notice, false);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    let _ = evaluate_condition(&String::from_utf8_lossy(data), &env);
});
