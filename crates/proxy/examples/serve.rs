//! Runs a configuration without a process around it: no flags, no signals, no daemon. For measuring.

use penstock_config::{Env, model::Source};
use penstock_proxy::{Listeners, Runtime, Services};

fn main() {
    let path = std::env::args().nth(1).expect("a configuration's path");
    let text = std::fs::read_to_string(&path).expect("a readable configuration");
    let read = |path: &std::path::Path| std::fs::read(path);
    let env = Env { files: &read, ..Env::default() };
    let (config, mut diagnostics) = penstock_config::load([Source { name: path, text }], &env);
    let runtime = Runtime::build(config, Services::default(), &mut diagnostics);
    let Some(runtime) = runtime else { panic!("{diagnostics:#?}") };
    let listeners = runtime.listen(Listeners::default()).expect("free ports");
    runtime.start(listeners).expect("threads").wait();
}
