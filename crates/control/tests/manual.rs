//! The page of commands is made from the table: `make generate` writes it anew.

use penstock_control::{TABLE, page};
use std::{fs, path::Path};

#[test]
fn the_page_of_commands_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runtime-api.md");
    let fresh = page(&TABLE);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &fresh).expect("docs/runtime-api.md is written");
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == fresh, "docs/runtime-api.md is stale: run `make generate`");
}
