//! Every row that says implemented names the test that shows it, and that test contains the word.

use std::path::Path;

use penstock_tests::{proofs, scenario};

#[test]
fn every_implemented_row_names_a_test_that_contains_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = proofs::read(&folder.join("proofs.tsv")).expect("tests/proofs.tsv can be read");
    let scenarios = scenario::load_all(&folder.join("scenarios")).expect("the scenarios can be read");
    let root = folder.parent().expect("the tests lie in the project's folder");
    let wrong = proofs::check(root, &proofs::all(), &table, &scenarios);
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}
