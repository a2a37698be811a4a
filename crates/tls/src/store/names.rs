//! The names that `bind` lines have certificates for.

use super::{Store, authorities};

/// A name that a line has a certificate for, for `show ssl sni`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NameView {
    pub frontend: String,
    /// `FILE:LINE` of the `bind` line.
    pub place: String,
    /// A name, or a star and what follows it.
    pub name: String,
    /// Names that the certificate's filters exclude from its wildcards.
    pub excluded: Vec<String>,
    /// `rsa` or `ecdsa`.
    pub kind: &'static str,
    pub certificate: String,
    /// In OpenSSL's format.
    pub not_after: String,
    pub not_before: String,
    /// Whether it has expired.
    pub expired: bool,
}

impl Store {
    /// The names that lines have certificates for, optionally only those of one frontend.
    pub fn names(&self, frontend: Option<&str>) -> Vec<NameView> {
        let state = self.state();
        let mut views = Vec::new();
        for line in state.lines.iter().filter(|line| frontend.is_none_or(|wanted| wanted == line.frontend)) {
            let table = line.live.load_full();
            for (name, contexts) in table.names.all() {
                for context in contexts {
                    let Some(instance) = line.instances.get(&context.order) else { continue };
                    let (not_before, not_after, expired) = authorities::validity(context.certificate.leaf());
                    views.push(NameView {
                        frontend: line.frontend.clone(),
                        place: line.place.clone(),
                        name: name.clone(),
                        excluded: instance.excluded.clone(),
                        kind: match context.certificate.kind() {
                            penstock_engine::KeyKind::Rsa { .. } => "rsa",
                            _ => "ecdsa",
                        },
                        certificate: instance.certificate.to_string(),
                        not_after,
                        not_before,
                        expired,
                    });
                }
            }
        }
        views
    }
}
