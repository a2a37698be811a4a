//! ARCHITECTURE.md says which crate may use which; this compares the table with the manifests, and keeps the modules within
//! each crate from growing into one circle of imports, and files from growing past what can be read at once.

mod imports;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

/// The table's rows from top to bottom: a crate and the crates it uses, sorted.
fn table() -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|l| !l.starts_with("| crate |")).skip(2).take_while(|l| l.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let mut uses: Vec<_> = cells[2].split(", ").filter(|c| !c.is_empty()).map(str::to_owned).collect();
        uses.sort();
        (cells[0].to_owned(), uses)
    })
    .collect()
}

/// The manifests: crate to the workspace crates among its ordinary dependencies, without the `penstock-` in front.
fn manifests() -> BTreeMap<String, Vec<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--edges", "normal", "--depth", "1", "--prefix", "none", "--manifest-path"])
            .arg(path.join("Cargo.toml"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut uses: Vec<String> = text
            .lines()
            .skip(1)
            .filter_map(|l| Some(l.split(' ').next()?.strip_prefix("penstock-")?.to_owned()))
            .collect();
        uses.sort();
        found.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), uses);
    }
    found
}

#[test]
fn the_crates_use_what_the_architecture_says_and_only_downwards() {
    let table = table();
    assert_eq!(table.iter().cloned().collect::<BTreeMap<_, _>>(), manifests());
    let place = |name: &str| table.iter().position(|(row, _)| row == name);
    for (user, uses) in &table {
        for used in uses {
            assert!(place(user) < place(used), "{user} stands below {used} in the table, which it uses");
        }
    }
}

#[test]
fn the_files_that_the_architecture_names_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(crates.join("../ARCHITECTURE.md")).unwrap();
    let is_file = |word: &&str| word.ends_with(".rs") && word.contains("/src/");
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_file).collect();
    let missing: Vec<_> =
        named.iter().filter(|file| !crates.join(file.trim_start_matches("crates/")).is_file()).collect();
    assert!(named.len() > 30 && missing.is_empty(), "{} files, missing: {missing:?}", named.len());
}

/// How many modules may depend on each other in a circle: with more, none can be read, tested or changed by itself.
const CIRCLE_MAX: usize = 10;

#[test]
fn the_modules_of_a_crate_import_each_other_in_small_circles_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut large = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let imports = imports::of_folder(&path.join("src"));
        let circle = imports::largest_circle(&imports);
        let name = path.file_name().unwrap().to_str().unwrap();
        let count: usize = imports.values().map(|to| to.len()).sum();
        println!("{name}: {} modules, {count} imports, largest circle {}", imports.len(), circle.len());
        if circle.len() > CIRCLE_MAX {
            large.push(format!(
                "{name}: {} modules in one circle, at most {CIRCLE_MAX} may be: {}",
                circle.len(),
                circle.join(", ")
            ));
        }
    }
    assert!(large.is_empty(), "{}", large.join("\n"));
}

/// How many lines a file may have: a longer one is usually two things.
const LINES_MAX: usize = 600;

/// Sources of Rust below a folder, without what is built.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_is_longer_than_can_be_read_at_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    ["crates", "fuzz", "tests"].iter().for_each(|folder| sources(&root.join(folder), &mut files));
    assert!(files.len() > 500, "only {} files were found", files.len());
    let lines = |path: &PathBuf| std::fs::read_to_string(path).unwrap().lines().count();
    let long: Vec<_> = files.iter().map(|path| (lines(path), path)).filter(|(lines, _)| *lines > LINES_MAX).collect();
    assert!(long.is_empty(), "more than {LINES_MAX} lines: {long:#?}");
}
