//! A certificate that a line is to present, before it is read.

use crate::crt_list::Entry;
use penstock_config::{Span, model::TlsConf};
use std::{path::PathBuf, sync::Arc};

/// One certificate that a line is to present.
pub(in crate::store) struct Wanted {
    pub name: Arc<str>,
    pub path: PathBuf,
    pub entry: Option<(Arc<str>, u64)>,
    pub conf: TlsConf,
    pub filters: Vec<String>,
    pub excluded: Vec<String>,
    pub span: Span,
    /// File and line of the certificate's entry in a list.
    pub origin: Option<String>,
    pub group: u64,
}

impl Entry {
    /// What the entry makes a line with its list present.
    pub(in crate::store) fn wanted(&self, path: PathBuf, entry: (Arc<str>, u64), span: Span, group: u64) -> Wanted {
        Wanted {
            name: path.to_string_lossy().into(),
            path,
            origin: (self.line > 0).then(|| format!("{}:{}", entry.0, self.line)),
            entry: Some(entry),
            conf: self.conf.clone(),
            filters: self.filters.clone(),
            excluded: self.excluded.clone(),
            span,
            group,
        }
    }
}
