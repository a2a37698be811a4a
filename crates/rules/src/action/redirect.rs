//! `redirect`: where to, and with which code.

use crate::{
    context::Context,
    log::LogFormat,
    verdict::{Reply, ReplyBody},
};
use penstock_config::Span;
use penstock_http::Known;

/// A redirection as written.
#[derive(Clone, Debug)]
pub struct Redirect {
    pub(crate) target: Target,
    pub(crate) to: LogFormat,
    pub(crate) code: u16,
    pub(crate) drop_query: bool,
    pub(crate) append_slash: bool,
    pub(crate) ignore_empty: bool,
    /// A whole `set-cookie` value.
    pub(crate) cookie: Option<Box<[u8]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The whole location.
    Location,
    /// The part before the path.
    Prefix,
    /// Another scheme for the same host and path.
    Scheme,
}

impl Redirect {
    /// The answer; `None` when the location came out empty and `ignore-empty` says to go on.
    pub(crate) fn render(&self, ctx: &Context<'_>, span: Span) -> Option<Reply> {
        let mut location = Vec::with_capacity(64);
        self.to.render(ctx, &mut location);
        if self.ignore_empty && location.is_empty() {
            return None;
        }
        if self.target != Target::Location {
            let head = ctx.request.as_deref()?;
            let path = if self.drop_query { head.path() } else { head.path_and_query() };
            // That of a whole server (`OPTIONS *`) is no path.
            let path = if path == b"*" { b"" } else { path };
            if self.target == Target::Scheme {
                location.extend_from_slice(b"://");
                location.extend_from_slice(head.fields.known(Known::Host).unwrap_or_default());
            } else if location == b"/" {
                // A prefix of one slash adds nothing: the path has its own.
                location.clear();
            }
            location.extend_from_slice(if path.is_empty() { b"/" } else { path });
            if self.append_slash && !path.is_empty() && path.last() != Some(&b'/') {
                location.push(b'/');
            }
        }
        let mut fields = vec![(b"content-length".to_vec(), b"0".to_vec()), (b"location".to_vec(), location)];
        if matches!(self.code, 302 | 303 | 307) {
            fields.push((b"cache-control".to_vec(), b"no-cache".to_vec()));
        }
        if let Some(cookie) = &self.cookie {
            fields.push((b"set-cookie".to_vec(), cookie.to_vec()));
        }
        Some(Reply { status: self.code, fields, body: ReplyBody::Bytes([].into()), close: false, span })
    }
}
