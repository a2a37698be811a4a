//! The TLS that checks speak where their servers' own traffic has none, or other settings.

use penstock_backends::check::script::{Action, Script};
use penstock_config::{
    Diagnostics,
    model::{Server, ServerTls},
};
use penstock_tls::{Connector, Disk, Store};

/// What a server's `check` and the script of its backend ask for; what is wrong with it goes to `diagnostics`.
pub(crate) fn connector(
    script: Option<&Script>,
    server: &Server,
    certificates: &Store,
    diagnostics: &mut Diagnostics,
) -> Option<Connector> {
    let settings = &server.settings;
    let asks = script.is_some_and(|script| script.steps.iter().any(|step| wants_tls(&step.action)));
    let own = settings.check.enabled && (settings.check.ssl == Some(true) || asks);
    if !own || settings.tls.is_some() {
        return None;
    }
    // Without `ssl` the line's TLS settings were kept for this.
    let tls = ServerTls { sni: None, ..settings.tls_settings.clone() };
    Connector::build(&tls, server.span, certificates, &Disk, diagnostics)
}

fn wants_tls(action: &Action) -> bool {
    matches!(action, Action::Connect(connect) if connect.ssl)
}
