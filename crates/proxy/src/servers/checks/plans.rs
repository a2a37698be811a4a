//! TLS settings of checks, where they differ from those of the servers' traffic.

use penstock_backends::check::script::{Action, Script};
use penstock_config::{
    Diagnostics,
    model::{Server, ServerTls},
};
use penstock_tls::{Connector, Disk, Store};

/// The TLS settings that a server's `check` and its backend's script ask for; errors are added to `diagnostics`.
pub(crate) fn connector(
    script: Option<&Script>,
    server: &Server,
    certificates: &Store,
    diagnostics: &mut Diagnostics,
) -> Option<Connector> {
    let settings = &server.settings;
    let asks = script.is_some_and(|script| script.steps.iter().any(|step| wants_tls(&step.action)));
    // As in HAProxy, these words have to say how servers are verified without `check` as well.
    if !(settings.check.ssl == Some(true) || asks) || settings.tls.is_some() {
        return None;
    }
    // The TLS settings of a line without `ssl` were kept for this.
    let tls = ServerTls { sni: None, ..settings.tls_settings.clone() };
    Connector::build(&tls, server.span, certificates, &Disk, diagnostics)
}

fn wants_tls(action: &Action) -> bool {
    matches!(action, Action::Connect(connect) if connect.ssl)
}
