//! The TLS that checks speak where their servers' own traffic has none, or other settings.

use penstock_backends::check::script::{Action, Script};
use penstock_config::{Config, Diagnostics, model::ServerTls};
use penstock_tls::{Connector, Disk, Store};
use std::sync::Arc;

/// The TLS of a configuration's checks. Immutable.
pub(crate) struct Plans {
    /// Where the server's own traffic has none or other settings, by proxy and server.
    pub connectors: Vec<Vec<Option<Connector>>>,
}

impl Plans {
    /// What `check` lines and the scripts of the proxies ask for; what is wrong with it goes to `diagnostics`.
    pub fn build(
        config: &Config,
        scripts: &[Option<Arc<Script>>],
        certificates: &Store,
        diagnostics: &mut Diagnostics,
    ) -> Plans {
        let connectors = config.proxies.iter().zip(scripts).map(|(proxy, script)| {
            let asks = script.as_ref().is_some_and(|s| s.steps.iter().any(|step| wants_tls(&step.action)));
            let servers = proxy.servers.iter().map(|server| {
                let settings = &server.settings;
                let own = settings.check.enabled && (settings.check.ssl == Some(true) || asks);
                let needed = own && settings.tls.is_none();
                // Without `ssl` the line's TLS settings were kept for this.
                let tls = ServerTls { sni: None, ..settings.tls_settings.clone() };
                needed.then(|| Connector::build(&tls, server.span, certificates, &Disk, diagnostics)).flatten()
            });
            servers.collect()
        });
        Plans { connectors: connectors.collect() }
    }
}

fn wants_tls(action: &Action) -> bool {
    matches!(action, Action::Connect(connect) if connect.ssl)
}
