//! One request to a service and its answer: what to send, when to send more, and what the service decided.

use crate::{
    chunks::Chunks,
    encapsulated::Encapsulated,
    error::Error,
    head::Head,
    pieces::Pieces,
    request::{IcapMethod, IcapRequest},
};
use penstock_http::{Fields, Known, Limits, Parse, RequestHead, ResponseHead, chunk_head};

/// The body of a message as far as it is known when the service is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start<'a> {
    /// Whether there is a body.
    pub has_body: bool,
    /// What has been read of the body.
    pub bytes: &'a [u8],
    /// Whether `bytes` is the whole body.
    pub complete: bool,
    /// How much of the body the service wants to see first; `None` if it wants the whole at once.
    pub preview: Option<usize>,
    /// Whether the service may refer to the original body.
    pub allow_206: bool,
}

/// What a service decided.
#[derive(Debug)]
pub enum ServiceDecision {
    /// The message goes on as it is.
    Unmodified,
    /// Another message takes the place of the original.
    Modified(Box<Modified>),
    /// The service has described itself.
    Described,
}

/// The message that takes the place of the original. One of the heads is there.
#[derive(Debug, Default)]
pub struct Modified {
    /// A request, without fields that say how it is framed.
    pub request: Option<RequestHead>,
    /// A response, without fields that say how it is framed.
    pub response: Option<ResponseHead>,
    /// The body of the message, if it has one; all of it, or what comes before the rest of the original.
    pub body: Option<Pieces>,
    /// The original body follows, from this offset on.
    pub original_from: Option<u64>,
}

/// The state of one request to a service. It is fed with [`Transaction::input`] whatever the service sends, and with
/// [`Transaction::body`] what it [wants](Transaction::wants_body); what it says in [`Transaction::output`] is to be sent.
#[derive(Debug)]
pub struct Transaction {
    method: IcapMethod,
    allow_206: bool,
    limits: Limits,
    /// The longest body an answer may have.
    body_max: u64,
    output: Vec<u8>,
    sent: usize,
    sending: Sending,
    receiving: Receiving,
    /// What arrived of a head.
    pending: Vec<u8>,
    /// How much of `pending` holds no end of a head.
    scanned: usize,
    head: Option<Head>,
    found: Modified,
    /// Whether anything of an answer has arrived.
    answered: bool,
    /// Whether the service has said `100 Continue`, which it may once.
    continued: bool,
    /// Whether more arrived than an answer.
    surplus: bool,
}

/// How far the request has been written.
#[derive(Debug, PartialEq, Eq)]
enum Sending {
    /// The preview is out, and what else was read of the body is here: the service says whether it wants it.
    Previewed { rest: Vec<u8>, complete: bool },
    /// The service wants the body.
    Body,
    /// Everything is written.
    Complete,
}

/// What comes next of the answer.
#[derive(Debug)]
enum Receiving {
    Head,
    Heads(Encapsulated),
    Body(Chunks),
    Done,
}

impl Transaction {
    /// Begins a request. An answer whose body is longer than `body_max` is refused.
    pub fn new(request: &IcapRequest<'_>, start: Start<'_>, limits: Limits, body_max: u64) -> Transaction {
        let asks = request.method != IcapMethod::Options;
        let allow = match (asks, start.allow_206) {
            (false, _) => "",
            (true, false) => "204",
            (true, true) => "204, 206",
        };
        let preview = start.preview.filter(|_| asks && start.has_body);
        let mut output = Vec::with_capacity(1024);
        request.write(start.has_body, allow, preview, &mut output);
        let mut transaction = Transaction {
            method: request.method,
            allow_206: asks && start.allow_206,
            limits,
            body_max,
            output,
            sent: 0,
            sending: Sending::Complete,
            receiving: Receiving::Head,
            pending: Vec::new(),
            scanned: 0,
            head: None,
            found: Modified::default(),
            answered: false,
            continued: false,
            surplus: false,
        };
        if start.has_body && asks {
            transaction.begin_body(start, preview);
        }
        transaction
    }

    fn begin_body(&mut self, start: Start<'_>, preview: Option<usize>) {
        let Some(preview) = preview else {
            self.sending = Sending::Body;
            self.body(start.bytes);
            if start.complete {
                self.end_body();
            }
            return;
        };
        let (first, rest) = start.bytes.split_at(start.bytes.len().min(preview));
        chunk(first, &mut self.output);
        if rest.is_empty() && start.complete {
            self.output.extend_from_slice(b"0; ieof\r\n\r\n");
        } else {
            self.output.extend_from_slice(b"0\r\n\r\n");
            self.sending = Sending::Previewed { rest: rest.to_vec(), complete: start.complete };
        }
    }

    /// The bytes to be sent now.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }
    /// Says that this many of them were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }
    /// Whether the service is to be sent more of the body.
    pub fn wants_body(&self) -> bool {
        self.sending == Sending::Body && !self.is_done()
    }
    /// Sends more of the body.
    pub fn body(&mut self, bytes: &[u8]) {
        chunk(bytes, &mut self.output);
    }
    /// The body has ended.
    pub fn end_body(&mut self) {
        self.output.extend_from_slice(b"0\r\n\r\n");
        self.sending = Sending::Complete;
    }
    /// Whether anything of an answer has arrived.
    pub fn is_answered(&self) -> bool {
        self.answered
    }
    /// Whether the answer is complete.
    pub fn is_done(&self) -> bool {
        matches!(self.receiving, Receiving::Done)
    }
    /// The head of the answer, once it has arrived.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }
    /// Whether the connection can carry another request after this answer.
    pub fn is_reusable(&self) -> bool {
        // A preview that was answered is a complete request; a body that the service stopped reading is not.
        self.is_done()
            && self.sending != Sending::Body
            && self.output().is_empty()
            && !self.surplus
            && self.head.as_ref().is_some_and(|head| !head.closes())
    }

    /// Takes what the service has sent, all of it.
    ///
    /// # Errors
    /// If it is not a proper answer, or one that says that the service did not do its work.
    pub fn input(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        self.answered |= !bytes.is_empty();
        loop {
            match &mut self.receiving {
                Receiving::Done => {
                    self.surplus |= !bytes.is_empty();
                    return Ok(());
                }
                Receiving::Body(chunks) => {
                    let (body, most) = (self.found.body.get_or_insert_default(), self.body_max);
                    let used = chunks.read(bytes, |data| {
                        if body.len() + data.len() as u64 > most {
                            return Err(Error::BodyTooLong);
                        }
                        body.push(data);
                        Ok(())
                    })?;
                    bytes = &bytes[used..];
                    if !chunks.is_ended() {
                        return Ok(());
                    }
                    self.found.original_from = chunks.original_from;
                    self.end()?;
                }
                Receiving::Heads(_) | Receiving::Head => {
                    self.pending.extend_from_slice(bytes);
                    if !self.heads()? {
                        return Ok(());
                    }
                    // What follows the heads is looked at as if it had arrived only now.
                    let rest = std::mem::take(&mut self.pending);
                    return self.input(&rest);
                }
            }
        }
    }

    /// Reads as much as is there of the heads; whether they are complete.
    fn heads(&mut self) -> Result<bool, Error> {
        loop {
            match &self.receiving {
                Receiving::Head => {
                    let Some((head, end)) = Head::parse(&self.pending, self.scanned)? else {
                        self.scanned = self.pending.len();
                        return Ok(false);
                    };
                    self.pending.drain(..end);
                    self.scanned = 0;
                    self.begin_answer(head)?;
                }
                Receiving::Heads(parts) if self.pending.len() < parts.heads => return Ok(false),
                Receiving::Heads(parts) => {
                    let parts = parts.clone();
                    self.read_http(&parts)?;
                    self.pending.drain(..parts.heads);
                    if parts.has_body {
                        self.receiving = Receiving::Body(Chunks::default());
                    } else {
                        self.end()?;
                    }
                    return Ok(true);
                }
                Receiving::Body(_) | Receiving::Done => return Ok(true),
            }
            if self.pending.is_empty() && matches!(self.receiving, Receiving::Head) {
                return Ok(false);
            }
        }
    }

    fn begin_answer(&mut self, head: Head) -> Result<(), Error> {
        let status = head.status;
        if status == 100 {
            return self.go_on();
        }
        let parts = Encapsulated::of(&head)?;
        self.head = Some(head);
        let asks = self.method != IcapMethod::Options;
        self.receiving = match status {
            // Some services frame even an empty answer.
            204 if asks && !parts.has_body && parts.heads == 0 => Receiving::Done,
            200 if !asks || parts.heads > 0 => Receiving::Heads(parts),
            206 if self.allow_206 && parts.heads > 0 => Receiving::Heads(parts),
            200 | 204 | 206 => return Err(Error::Encapsulated),
            status => return Err(Error::Status(status)),
        };
        Ok(())
    }

    /// `100 Continue`: sends what else was read of the body.
    fn go_on(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.continued, true) {
            return Err(Error::Continue);
        }
        match std::mem::replace(&mut self.sending, Sending::Body) {
            Sending::Previewed { rest, complete } => {
                self.body(&rest);
                if complete {
                    self.end_body();
                }
                Ok(())
            }
            // A preview that was the whole body needs no continuation; one is ignored (RFC 3507, erratum 5893).
            Sending::Complete => {
                self.sending = Sending::Complete;
                Ok(())
            }
            Sending::Body => Err(Error::Continue),
        }
    }

    fn read_http(&mut self, parts: &Encapsulated) -> Result<(), Error> {
        let whole = |parsed: Parse, len: usize| match parsed {
            Parse::Complete { consumed } if consumed == len => Ok(()),
            _ => Err(Error::Encapsulated),
        };
        // In an answer to RESPMOD, the request would only be an echo.
        if let Some(range) = parts.request.clone().filter(|_| self.method == IcapMethod::Reqmod) {
            let mut head = RequestHead::new();
            whole(head.parse(&self.pending[range.clone()], &self.limits)?, range.len())?;
            unframe(&mut head.fields);
            self.found.request = Some(head);
        }
        if let Some(range) = parts.response.clone() {
            let mut head = ResponseHead::new();
            whole(head.parse(&self.pending[range.clone()], &self.limits)?, range.len())?;
            // It is sent as the final response, so it must be one.
            if head.status() < 200 {
                return Err(Error::NoHead);
            }
            unframe(&mut head.fields);
            self.found.response = Some(head);
        }
        match self.method {
            IcapMethod::Reqmod if self.found.request.is_some() == self.found.response.is_some() => Err(Error::NoHead),
            IcapMethod::Respmod if self.found.response.is_none() => Err(Error::NoHead),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        let partial = self.head.as_ref().is_some_and(|head| head.status == 206);
        if self.found.original_from.is_some() && !partial {
            return Err(Error::OriginalBody);
        }
        self.receiving = Receiving::Done;
        Ok(())
    }

    /// The decision, once the answer is complete.
    pub fn finish(self) -> Option<ServiceDecision> {
        let head = self.head.as_ref().filter(|_| self.is_done())?;
        Some(match (self.method, head.status) {
            (IcapMethod::Options, _) => ServiceDecision::Described,
            (_, 204) => ServiceDecision::Unmodified,
            _ => ServiceDecision::Modified(Box::new(self.found)),
        })
    }
}

/// Appends a chunk; nothing for no bytes, which would end the body.
fn chunk(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        chunk_head(bytes.len(), out);
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// Takes out what says how the message is framed, and what belongs to the service's own connection.
fn unframe(fields: &mut Fields) {
    penstock_http::receive_hop_by_hop(fields);
    penstock_http::remove_hop_by_hop(fields, false);
    for known in [
        Known::TransferEncoding,
        Known::ContentLength,
        Known::TransferEncodingTwin,
        Known::ContentLengthTwin,
        Known::Upgrade,
        Known::Http2Settings,
    ] {
        fields.remove_known(known);
    }
}
