//! The authority that signs the certificates a line makes for clients.

use super::{Builder, Line};
use crate::{
    certificate::{self, Extras, Parts, Passphrase},
    forge::{Authority, Forge},
};
use penstock_config::model::Generate;
use std::sync::Arc;

impl Builder<'_> {
    /// What makes certificates for the line.
    pub(super) fn forge(&mut self, line: &mut Line, generate: &Generate) -> Option<Arc<Forge>> {
        let file = &generate.ca_sign_file;
        let passphrase = generate.ca_sign_pass.clone().map(|text| Passphrase(text.into()));
        let parts = Parts { passphrase, ..Parts::default() };
        let extras = Extras { ocsp: false, sctl: false, issuer: false, ..self.settings.extras };
        let read = certificate::load(&file.value, &parts, &extras, self.loader, file.span, self.diagnostics);
        let conf = line.tls.conf.clone();
        let (read, shape) = (read?, self.shape(line, &conf, line.span)?);
        match Authority::new(Arc::new(read)) {
            Ok(authority) => {
                let kept = self.settings.forged.clone();
                Some(Arc::new(Forge::new(Arc::new(authority), shape, generate.ca_sign_use_chain, kept)))
            }
            Err(why) => {
                let shown = file.value.display();
                self.diagnostics
                    .error(file.span, format!("the certificate in '{shown}' {why}"))
                    .hint("'openssl req -x509 -addext keyUsage=critical,keyCertSign,cRLSign' makes one that can");
                None
            }
        }
    }
}
