//! The settings of two sections as they apply to one exchange.

use crate::choice;
use penstock_config::model::{Compression, CompressionAlgorithm};
use penstock_http::RequestHead;

/// The `compression` lines of the frontend and of the backend of an exchange. Where both have some, the backend's apply.
#[derive(Clone, Copy, Debug)]
pub struct CompressionSettings<'a> {
    frontend: Option<&'a Compression>,
    backend: Option<&'a Compression>,
}

impl<'a> CompressionSettings<'a> {
    /// The settings of these sections; `None` if neither has a `compression` line.
    pub fn of(frontend: Option<&'a Compression>, backend: Option<&'a Compression>) -> Option<CompressionSettings<'a>> {
        (frontend.is_some() || backend.is_some()).then_some(CompressionSettings { frontend, backend })
    }

    fn sides(self) -> impl Iterator<Item = &'a Compression> {
        [self.backend, self.frontend].into_iter().flatten()
    }

    fn first<T>(self, list: fn(&'a Compression) -> &'a [T]) -> &'a [T] {
        self.sides().map(list).find(|list| !list.is_empty()).unwrap_or_default()
    }

    /// Beginnings of content types of responses; none for all.
    pub(crate) fn types(self) -> &'a [String] {
        self.first(|side| &side.types)
    }
    /// Beginnings of content types of requests; none for all.
    pub(crate) fn request_types(self) -> &'a [String] {
        self.first(|side| &side.request_types)
    }
    /// The smallest response to compress.
    pub(crate) fn min_size(self) -> u64 {
        self.sides().map(|side| side.min_size).find(|size| *size > 0).unwrap_or(0)
    }
    /// The smallest request to compress.
    pub(crate) fn request_min_size(self) -> u64 {
        self.sides().map(|side| side.request_min_size).find(|size| *size > 0).unwrap_or(0)
    }

    /// The algorithm for the response to this request; `None` for none.
    ///
    /// With `offload`, the server is then not asked to compress, so `Accept-Encoding` is removed, unless only
    /// `identity` was left to choose.
    ///
    /// `may_use` says whether there is a place for an algorithm's encoder. Where there is none, the client's next choice is taken.
    pub fn choose_response(
        self,
        request: &mut RequestHead,
        may_use: impl Fn(CompressionAlgorithm) -> bool,
    ) -> Option<CompressionAlgorithm> {
        if !self.sides().any(|side| side.responses) || choice::is_too_old(&request.fields) {
            return None;
        }
        let offered = self.first(|side| &side.algorithms);
        let chosen = choice::accepted(&request.fields, offered).and_then(|first| {
            if may_use(first) {
                return Some(first);
            }
            let others: Vec<_> = offered.iter().copied().filter(|algorithm| may_use(*algorithm)).collect();
            choice::accepted(&request.fields, &others)
        });
        if let Some(algorithm) = chosen {
            if self.sides().any(|side| side.offload) {
                request.fields.remove(b"accept-encoding");
            }
            return Some(algorithm);
        }
        // The bytes as they are need nobody's consent.
        offered.contains(&CompressionAlgorithm::Identity).then_some(CompressionAlgorithm::Identity)
    }

    /// The algorithm for requests; `None` for none.
    pub fn request_algorithm(self) -> Option<CompressionAlgorithm> {
        self.sides().any(|side| side.requests).then(|| self.sides().find_map(|side| side.request_algorithm)).flatten()
    }
}
