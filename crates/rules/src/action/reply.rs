//! Responses of `return`, `deny`, `tarpit` and `http-error`.

use crate::{
    context::Context,
    log::LogFormat,
    verdict::{Reply, ReplyBody},
};
use penstock_config::Span;
use std::sync::Arc;

/// A response as written in the configuration.
#[derive(Clone, Debug, Default)]
pub struct ReplyTemplate {
    /// The response's status.
    pub status: u16,
    pub(crate) content_type: Option<Box<[u8]>>,
    pub(crate) fields: Vec<(Box<[u8]>, LogFormat)>,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Body {
    /// The proxy's own page for the status.
    #[default]
    ErrorPage,
    /// No body.
    Empty,
    Bytes(Arc<[u8]>),
    Format(Box<LogFormat>),
    /// A complete response.
    Raw(Arc<[u8]>),
}

impl ReplyTemplate {
    /// The response to this request.
    pub fn render(&self, ctx: &Context<'_>, span: Span) -> Reply {
        let mut fields = Vec::with_capacity(self.fields.len() + 1);
        let body = match &self.body {
            Body::ErrorPage => ReplyBody::ErrorPage,
            Body::Empty => ReplyBody::Bytes(Arc::default()),
            Body::Bytes(bytes) => ReplyBody::Bytes(Arc::clone(bytes)),
            Body::Format(format) => ReplyBody::Bytes(format.to_bytes(ctx).into()),
            Body::Raw(raw) => ReplyBody::Raw(Arc::clone(raw)),
        };
        for (name, value) in &self.fields {
            let value = value.to_bytes(ctx);
            // A format whose result is empty adds no field.
            if !value.is_empty() {
                fields.push((name.to_vec(), value));
            }
        }
        if let (Some(kind), ReplyBody::Bytes(bytes)) = (&self.content_type, &body)
            && !bytes.is_empty()
        {
            fields.push((b"content-type".to_vec(), kind.to_vec()));
        }
        Reply { status: self.status, fields, body, close: false, span }
    }
}
