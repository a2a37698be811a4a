//! The scenarios of `tests/scenarios`, through Debian's haproxy and through penstock. The probes of penstock alone
//! run with them. Words on the command line choose
//! among them: `cargo test -p penstock-tests --test differential -- cookies`.

use std::path::Path;

fn main() {
    std::process::exit(penstock_tests::runner::main(
        Path::new(env!("CARGO_MANIFEST_DIR")),
        penstock_tests::probes::all(),
    ));
}
