//! The authority that signs the certificates a line makes for clients.

use super::{Builder, Line};
use crate::{
    certificate::{self, Extras, Parts, Passphrase},
    context::Shape,
    forge::{Authority, Forge},
};
use penstock_config::{Spanned, model::Generate};
use std::{path::PathBuf, sync::Arc};

/// Distinguishes what the second authority has signed.
const UNTRUSTED: &str = "ca-sign-untrusted";

impl Builder<'_> {
    /// What makes certificates for the line, and what makes them for servers that do not validate.
    pub(super) fn forges(&mut self, line: &mut Line, generate: &Generate) -> [Option<Arc<Forge>>; 2] {
        let conf = line.tls.conf.clone();
        let Some(shape) = self.shape(line, &conf, line.span) else { return [None, None] };
        let (kept, with_chain) = (self.settings.forged.clone(), generate.ca_sign_use_chain);
        let trusted = self.authority_that_signs(&generate.ca_sign_file, generate.ca_sign_pass.as_deref());
        let second = generate.ca_sign_untrusted.as_ref();
        let untrusted = second.and_then(|file| self.authority_that_signs(file, None));
        if let (Some(trusted), Some(untrusted), Some(second)) = (&trusted, &untrusted, second)
            && untrusted.signs_as(trusted)
        {
            self.diagnostics
                .error(
                    second.span,
                    "'ca-sign-untrusted' has the key of 'ca-sign-file': clients would trust every server",
                )
                .hint("make a second authority, which no client trusts");
            return [None, None];
        }
        let apart = Arc::new(shape.apart(UNTRUSTED));
        let forge = |authority, shape| Arc::new(Forge::new(authority, shape, with_chain, kept.clone()));
        [trusted.map(|authority| forge(authority, shape)), untrusted.map(|authority| forge(authority, apart))]
    }

    fn authority_that_signs(&mut self, file: &Spanned<PathBuf>, pass: Option<&str>) -> Option<Arc<Authority>> {
        let passphrase = pass.map(|text| Passphrase(text.to_owned().into()));
        let parts = Parts { passphrase, ..Parts::default() };
        let extras = Extras { ocsp: false, sctl: false, issuer: false, ..self.settings.extras };
        let read = certificate::load(&file.value, &parts, &extras, self.loader, file.span, self.diagnostics);
        match Authority::new(Arc::new(read?)) {
            Ok(authority) => Some(Arc::new(authority)),
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

impl Forge {
    /// The same under the settings that the line has now: what was made under the former ones is not presented again.
    pub(super) fn renewed(&self, shape: &Arc<Shape>, is_untrusted: bool) -> Arc<Forge> {
        Arc::new(self.with_shape(if is_untrusted { Arc::new(shape.apart(UNTRUSTED)) } else { shape.clone() }))
    }
}
