//! A search for differences between HAProxy and penstock, from a seed. `tests/README.md` says what can be set.

use std::path::Path;

fn main() {
    std::process::exit(penstock_tests::differences::main(Path::new(env!("CARGO_MANIFEST_DIR"))));
}
