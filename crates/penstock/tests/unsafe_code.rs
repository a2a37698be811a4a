//! ARCHITECTURE.md says where `unsafe` may stand; this reads every source file of the tree, those of tests, benchmarks and fuzz
//! targets included, which are crates of their own and inherit no `forbid` from the crate they test.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// Folders and files that may hold it, as the sentence in ARCHITECTURE.md has them.
const ALLOWED: [&str; 5] =
    ["crates/lanes/", "crates/qat/", "crates/sys/", "tests/qat-double/", "crates/tls/src/suspend.rs"];

#[test]
fn unsafe_code_stands_only_where_the_architecture_says() {
    let root = root();
    let allowed = |file: &Path| {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
        ALLOWED.iter().any(|place| name.starts_with(place))
    };
    let (inside, outside): (Vec<_>, Vec<_>) = sources(&root).into_iter().partition(|file| allowed(file));
    assert!(outside.len() > 300, "the tree has more files than {}", outside.len());
    let holds = |file: &PathBuf| has_unsafe(&std::fs::read_to_string(file).unwrap());
    let found: Vec<_> = outside.into_iter().filter(holds).collect();
    assert!(found.is_empty(), "`unsafe` in {found:?}");
    for place in ALLOWED {
        let used = inside.iter().any(|file| file.starts_with(root.join(place)) && holds(file));
        assert!(used, "{place} has no `unsafe`: strike it from the list and from ARCHITECTURE.md");
    }
}

#[test]
fn every_other_crate_forbids_it() {
    let root = root();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let tops = ["src/lib.rs", "src/main.rs"].map(|top| folder.join(top));
        for top in tops.iter().filter(|top| top.exists()) {
            let text = std::fs::read_to_string(top).unwrap();
            match name.as_str() {
                "lanes" | "qat" | "sys" => {}
                "tls" => {
                    assert!(text.contains("#![deny(unsafe_code)]"));
                    assert_eq!(text.matches("allow(unsafe_code)").count(), 1, "one file of tls may");
                }
                _ => assert!(text.contains("#![forbid(unsafe_code)]"), "{} does not forbid it", top.display()),
            }
        }
    }
}

#[test]
fn the_sentence_in_the_architecture_names_the_same_places() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let sentence = text.lines().find(|line| line.starts_with("- `unsafe` lives in ")).expect("the invariant is stated");
    for word in ["`lanes`", "`qat`", "double", "`sys`", "one file of `tls`", "every other crate forbids it"] {
        assert!(sentence.contains(word), "{word} is missing in: {sentence}");
    }
}

#[test]
fn comments_and_texts_do_not_count() {
    for text in [
        "// unsafe {}",
        "/* unsafe */ fn f() {}",
        "let a = \"unsafe\";",
        "#![forbid(unsafe_code)]",
        "let a = r#\"unsafe \" unsafe\"#;",
        "let quote = '\"'; // unsafe \"",
    ] {
        assert!(!has_unsafe(text), "{text}");
    }
    for text in ["unsafe { f() }", "pub unsafe fn f() {}", "#[unsafe(no_mangle)]", "let a = '\"'; unsafe { f() }"] {
        assert!(has_unsafe(text), "{text}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["crates", "tests", "fuzz"].map(|folder| root.join(folder)).into();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Whether the keyword occurs, outside of comments and of texts in quotes.
fn has_unsafe(text: &str) -> bool {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skip_past = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let step = if rest.starts_with("//") {
            skip_past("\n", 2)
        } else if rest.starts_with("/*") {
            skip_past("*/", 2)
        } else if let Some(hashes) = raw_text(rest) {
            skip_past(&format!("\"{}", "#".repeat(hashes)), hashes + 2)
        } else if first == '"' {
            end_of_text(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\'") {
            3
        } else if word > 0 {
            if &rest[..word] == "unsafe" {
                return true;
            }
            word
        } else {
            first.len_utf8()
        };
        rest = &rest[step..];
    }
    false
}

/// How many hashes open a raw text here, if one begins here.
fn raw_text(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The length of the text in quotes that begins here, with its quotes.
fn end_of_text(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}
