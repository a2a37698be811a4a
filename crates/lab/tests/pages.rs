//! The studies under docs/measurements are shown as this version would show their data.

use penstock_lab::{report, study::Outcome};
use std::path::Path;

/// With `UPDATE=1` in the environment, the pages are made anew.
#[test]
fn the_pages_of_studies_say_what_their_data_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measurements");
    let mut stale = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let study = entry.unwrap().path();
        let data = study.join("result.json");
        if !data.exists() {
            continue;
        }
        let mut outcome = Outcome::read(&data).unwrap();
        outcome.conclude();
        let figure = report::figure(&outcome).unwrap();
        for (name, text) in
            [("README.md", report::markdown(&outcome)), ("report.html", report::page(&outcome)), ("figure.svg", figure)]
        {
            let page = study.join(name);
            if std::fs::read_to_string(&page).unwrap() == text {
                continue;
            }
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(page, text).unwrap();
            } else {
                stale.push(page);
            }
        }
    }
    assert!(stale.is_empty(), "`make generate` makes them anew: {stale:#?}");
}
