//! A client's connection: the ClientHello, the configuration it selects, and the handshake.

use crate::{
    HandshakeError, Loader, TlsStream, certificate,
    context::{Context, Protocols, Shape, Table},
    forge::{Forge, Mirrored, Name, Subject},
    handshake::{self, Flight, Opening, has_left, read_some},
    judge::Invalid,
    line,
    session::Session,
    store::{self, Store},
    verify::Clients,
};
use arc_swap::ArcSwap;
use penstock_config::{Config, Diagnostics, model::Bind};
use penstock_engine::{KeyKind, Share, worker::InProgress};
use penstock_rules::{Captured, ClientHello, HelloError, TlsFacts};
use rustls::{ContentType, Error, PeerIncompatible, server::UnbufferedServerConnection};
use rustls_pki_types::UnixTime;
use std::{io, net::IpAddr, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Everything a `bind ... ssl` line needs to accept connections, shared by all workers. Handshakes read it without a
/// lock.
pub struct Acceptor {
    /// Certificates and names; replaced when a command changes them.
    pub(crate) live: Arc<ArcSwap<Table>>,
    pub(crate) strict_sni: bool,
    /// Whether certificates are made for the address that a client connected to, if it names no host: clients of a transparent
    /// proxy name none with an address in their URL.
    pub(crate) destination: bool,
    /// `tune.ssl.capture-buffer-size`: how many bytes of the cipher list in a ClientHello are kept.
    pub(crate) capture: usize,
    /// The share that these handshakes count towards while several wait: the frontend's.
    pub(crate) share: Share,
    /// `tune.crypto.max-wait`.
    pub(crate) max_wait: Duration,
}

impl Acceptor {
    /// Loads what a `bind` line names into the store. Errors are added to `diagnostics`; `None` if the line cannot be
    /// used.
    pub fn build(
        config: &Config,
        bind: &Bind,
        store: &Store,
        loader: &dyn Loader,
        diagnostics: &mut Diagnostics,
    ) -> Option<Acceptor> {
        store::acceptor(config, bind, store, loader, diagnostics)
    }

    /// Sets the frontend it belongs to: while many handshakes wait, frontends take turns.
    #[must_use]
    pub fn with_share(mut self, share: u32) -> Acceptor {
        self.share = share;
        self
    }

    /// Accepts on a fresh connection, of which `prefix` has been read already.
    ///
    /// Dropping the future drops the connection, at any point. The caller limits the time.
    ///
    /// # Errors
    ///
    /// Why the handshake failed; the peer has been sent its alert.
    pub async fn accept<S>(&self, stream: S, prefix: Vec<u8>) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_at(stream, prefix, || None).await
    }

    /// Accepts like [`Acceptor::accept`], for callers that know which address the client connected to: `destination` is called
    /// if the choice of the certificate depends on it.
    ///
    /// # Errors
    ///
    /// As [`Acceptor::accept`].
    pub async fn accept_at<S>(
        &self,
        stream: S,
        prefix: Vec<u8>,
        destination: impl Fn() -> Option<IpAddr>,
    ) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_as(stream, prefix, |hello| self.choose(hello, &destination).ok_or(HandshakeError::UnknownName))
            .await
    }

    /// Accepts in place of a server that has been connected to, with a certificate that says what the server's own says. The whole
    /// ClientHello, as [`Acceptor::asked`] has read it, is the prefix.
    ///
    /// # Errors
    ///
    /// As [`Acceptor::accept`].
    pub async fn accept_for<S>(
        &self,
        stream: S,
        prefix: Vec<u8>,
        origin: &ServerSeen<'_>,
    ) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_as(stream, prefix, |hello| self.mirror(hello, origin).ok_or(HandshakeError::UnknownName)).await
    }

    /// Reads a whole ClientHello to `input`, before anything is decided. If this line could not answer it, it is refused here.
    ///
    /// # Errors
    ///
    /// As [`Acceptor::accept`].
    pub async fn asked<S>(&self, stream: &mut S, input: &mut Vec<u8>) -> Result<Requested, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if line::is_closed(self.max_wait) {
            return Err(HandshakeError::TurnedAway);
        }
        read_hello(stream, input, |hello| match can_verify(hello, KeyKind::EcdsaP256) {
            true => Ok(Requested::of(hello)),
            // The certificates made here have such a key.
            false => Err(HandshakeError::Tls(PeerIncompatible::NoSignatureSchemesInCommon.into())),
        })
        .await
    }

    /// Refuses a client, whose ClientHello has been read, because of its server.
    pub async fn refuse<S: AsyncWrite + Unpin>(&self, stream: &mut S, invalid: Option<Invalid>) {
        let refused = invalid.map_or(HandshakeError::Internal("no server"), HandshakeError::Origin);
        let _ = stream.write_all(&alert(&refused, &[])).await;
    }

    /// Whether certificates are made for servers that do not validate: `ca-sign-untrusted`.
    pub fn presents_untrusted(&self) -> bool {
        self.live.load().untrusted.is_some()
    }

    async fn accept_as<S>(
        &self,
        mut stream: S,
        prefix: Vec<u8>,
        choose: impl Fn(&ClientHello<'_>) -> Result<Chosen, HandshakeError>,
    ) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if line::is_closed(self.max_wait) {
            return Err(HandshakeError::TurnedAway);
        }
        let presence = InProgress::handshake();
        let mut input = prefix;
        let chosen = read_hello(&mut stream, &mut input, choose).await?;
        let permit = line::enter(self.share, self.max_wait).await.map_err(|_| HandshakeError::TurnedAway)?;
        if permit.waited && has_left(&mut stream, &mut input).await {
            line::left();
            return Err(HandshakeError::Aborted(io::ErrorKind::ConnectionAborted.into()));
        }
        let Chosen { ready, wanted, known } = chosen;
        let made = match wanted {
            Some(Wanted { forge, subject, protocols }) => {
                forge.make(&subject, certificate::now(), self.share).await.map(|context| (context, protocols))
            }
            None => None,
        };
        let Some((context, protocols)) = made.or(ready) else {
            let _ = stream.write_all(&alert(&HandshakeError::UnknownName, &input)).await;
            return Err(HandshakeError::UnknownName);
        };
        let config = context.config(&protocols);
        let session = UnbufferedServerConnection::new(config).map_err(HandshakeError::Tls)?;
        let flight = Flight::new(Session::Server(Box::new(session)), input);
        let mut open = handshake::run(
            stream,
            flight,
            Opening { presence, permit: Some(permit), share: self.share },
            Duration::ZERO,
        )
        .await?;
        let facts = open.facts_mut();
        (facts.sni, facts.hello) = (known.sni, known.hello);
        facts.own = Some(context.built().leaf.clone());
        if let Some(clients) = context.shape.clients.as_deref().filter(|clients| clients.ignores()) {
            ignored_refusal(clients, facts);
        }
        Ok(open)
    }

    /// What a ClientHello selects, before a connection is made.
    fn choose(&self, hello: &ClientHello<'_>, destination: &dyn Fn() -> Option<IpAddr>) -> Option<Chosen> {
        let table = self.live.load();
        let sni = name_in(hello);
        let named = sni.as_deref().map(|name| table.names.find(name)).unwrap_or_default();
        let (mut context, mut wanted) = (None, None);
        let candidates = match (named.is_empty(), &table.forge) {
            (false, _) => &*named,
            (true, Some(forge)) if can_verify(hello, KeyKind::EcdsaP256) => {
                match self.name(sni.as_deref(), destination).map(Subject::Name) {
                    Some(subject) => match forge.known(&subject, certificate::now()) {
                        Some(known) => context = Some(known),
                        None => wanted = Some(Wanted::new(forge, subject, protocols(hello, forge.shape()))),
                    },
                    None if sni.is_some() => forge.refuse(),
                    None => {}
                }
                &table.defaults
            }
            (true, _) => &table.defaults,
        };
        if context.is_none() && !(named.is_empty() && self.strict_sni) {
            context = Some(best(candidates, hello)?.clone());
        }
        if context.is_none() && wanted.is_none() {
            return None;
        }
        let ready = context.map(|context| {
            let protocols = protocols(hello, &context.shape);
            (context, protocols)
        });
        Some(Chosen { ready, wanted, known: self.known(hello) })
    }

    /// The certificate that is made in a server's place.
    fn mirror(&self, hello: &ClientHello<'_>, origin: &ServerSeen<'_>) -> Option<Chosen> {
        let table = self.live.load();
        let forge = if origin.is_valid { table.forge.as_ref()? } else { table.untrusted.as_ref()? };
        let known = self.known(hello);
        let Some(mirrored) = Mirrored::of(origin.certificate, known.sni.as_deref()) else {
            forge.refuse();
            return None;
        };
        let offered = |protocol: &[u8]| hello.alpn().any(|offer| offer == protocol);
        let of_line = protocols(hello, forge.shape());
        let protocols = match &origin.protocol {
            Agreed::NotAsked => of_line,
            Agreed::On(protocol) if of_line == Protocols::OfLine && offered(protocol) => {
                Protocols::Only(protocol.to_vec())
            }
            Agreed::On(_) | Agreed::Nothing => Protocols::None,
        };
        Some(Chosen { ready: None, wanted: Some(Wanted::new(forge, Subject::Mirror(mirrored), protocols)), known })
    }

    /// The parts of a hello that are kept as facts.
    fn known(&self, hello: &ClientHello<'_>) -> TlsFacts {
        let captured = |most: usize| {
            let ciphers = hello.cipher_suites_bytes();
            Captured { version: hello.legacy_version, ciphers: ciphers[..ciphers.len().min(most)].into() }
        };
        let captured = (self.capture > 0).then(|| Box::new(captured(self.capture)));
        TlsFacts { sni: name_in(hello), hello: captured, ..TlsFacts::default() }
    }

    /// What a certificate is made for, if it can be made.
    fn name(&self, sni: Option<&str>, destination: &dyn Fn() -> Option<IpAddr>) -> Option<Name> {
        match sni {
            Some(name) => Name::of(name),
            None if self.destination => destination().map(|address| Name::Ip(address.to_canonical())),
            None => None,
        }
    }
}

/// What a ClientHello selects. One of the first two is there.
struct Chosen {
    /// A certificate, and what ALPN may choose.
    ready: Option<(Arc<Context>, Protocols)>,
    /// One to make first; if that fails, the other is used.
    wanted: Option<Wanted>,
    /// The parts of the hello that are kept as facts.
    known: TlsFacts,
}

/// A certificate to be made.
struct Wanted {
    forge: Arc<Forge>,
    subject: Subject,
    protocols: Protocols,
}

impl Wanted {
    fn new(forge: &Arc<Forge>, subject: Subject, protocols: Protocols) -> Wanted {
        Wanted { forge: forge.clone(), subject, protocols }
    }
}

/// A server in whose place a client is answered.
pub struct ServerSeen<'a> {
    /// Its certificate in DER.
    pub certificate: &'a [u8],
    /// The protocol that it speaks.
    pub protocol: Agreed<'a>,
    /// Whether its certificate validates. If not, another authority signs.
    pub is_valid: bool,
}

/// What a server said about protocols (ALPN), which clients are told too.
pub enum Agreed<'a> {
    /// It was not asked: clients agree with the line.
    NotAsked,
    /// It chose none.
    Nothing,
    /// It chose this one.
    On(&'a [u8]),
}

/// What a client asks for, as far as a connection to its server depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requested {
    /// The name of the server, in lower case.
    pub sni: Option<String>,
    /// The protocols that it offers.
    pub alpn: Vec<Vec<u8>>,
    /// Whether it speaks nothing older than TLS 1.3.
    pub only_tls13: bool,
}

impl Requested {
    fn of(hello: &ClientHello<'_>) -> Requested {
        let alpn = hello.alpn().map(<[u8]>::to_vec).collect();
        Requested { sni: name_in(hello), alpn, only_tls13: !hello.supports_version(TLS12) }
    }
}

/// Reads a ClientHello to `input`, and what it is answered with by `choose`. A hello that is refused is answered with an alert.
async fn read_hello<S, T>(
    stream: &mut S,
    input: &mut Vec<u8>,
    choose: impl Fn(&ClientHello<'_>) -> Result<T, HandshakeError>,
) -> Result<T, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let refused = match ClientHello::read(input) {
            // Checked first, since such a hello has no list of signature schemes either.
            Ok(Some(hello)) if !(hello.supports_version(TLS13) || hello.supports_version(TLS12)) => {
                HandshakeError::Tls(PeerIncompatible::Tls12NotOffered.into())
            }
            Ok(Some(hello)) => match choose(&hello) {
                Ok(chosen) => return Ok(chosen),
                Err(refused) => refused,
            },
            Ok(None) => {
                if read_some(stream, input).await.map_err(HandshakeError::Aborted)? > 0 {
                    continue;
                }
                return Err(match input.is_empty() {
                    true => HandshakeError::Empty,
                    false => HandshakeError::Aborted(io::ErrorKind::UnexpectedEof.into()),
                });
            }
            Err(HelloError::NotTls) if is_http(input) => HandshakeError::ClearHttp,
            Err(error) => HandshakeError::BadHello(error),
        };
        let _ = stream.write_all(&alert(&refused, input)).await;
        return Err(refused);
    }
}

/// The name that a client asks for, in lower case.
fn name_in(hello: &ClientHello<'_>) -> Option<String> {
    hello.sni().map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
}

/// What ALPN may choose: the line's protocols, if the client offers one of them.
fn protocols(hello: &ClientHello<'_>, shape: &Shape) -> Protocols {
    let agreed = hello.alpn().any(|offer| shape.base.alpn_protocols.iter().any(|ours| ours == offer));
    if agreed { Protocols::OfLine } else { Protocols::None }
}

/// Among certificates for one name, the first whose signature the client can verify; ECDSA before RSA, since it is
/// cheaper.
fn best<'c>(candidates: &'c [Arc<Context>], hello: &ClientHello<'_>) -> Option<&'c Arc<Context>> {
    let first = candidates.first()?;
    if candidates.len() == 1 {
        return Some(first);
    }
    let find = |accept: &dyn Fn(KeyKind) -> bool| candidates.iter().find(|context| accept(context.certificate.kind()));
    let elliptic = |kind| !matches!(kind, KeyKind::Rsa { .. }) && can_verify(hello, kind);
    let rsa = |kind| matches!(kind, KeyKind::Rsa { .. }) && can_verify(hello, kind);
    find(&elliptic).or_else(|| find(&rsa)).or(Some(first))
}

/// Protocol versions as encoded in a hello.
const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

/// Whether the client can verify signatures of this kind of key and, in TLS 1.2, offers a suite for it.
fn can_verify(hello: &ClientHello<'_>, kind: KeyKind) -> bool {
    let scheme = |scheme: u16| match kind {
        // PKCS#1 with SHA-2 for TLS 1.2, PSS for both.
        KeyKind::Rsa { .. } => matches!(scheme, 0x0401 | 0x0501 | 0x0601 | 0x0804..=0x0806),
        KeyKind::EcdsaP256 => scheme == 0x0403,
        KeyKind::EcdsaP384 => scheme == 0x0503,
        KeyKind::EcdsaP521 => scheme == 0x0603,
        KeyKind::Ed25519 => scheme == 0x0807,
    };
    // The suites that authenticate by elliptic curve and by RSA; those of TLS 1.3 (0x13..) work with either.
    let suite = |suite: u16| match kind {
        KeyKind::Rsa { .. } => matches!(suite, 0xC02F | 0xC030 | 0xCCA8),
        _ => matches!(suite, 0xC02B | 0xC02C | 0xCCA9),
    };
    hello.signature_algorithms().any(scheme) && (hello.supports_version(TLS13) || hello.cipher_suites().any(suite))
}

/// Whether a client starts with what OpenSSL recognises as an HTTP request.
fn is_http(input: &[u8]) -> bool {
    [&b"GET "[..], b"POST ", b"HEAD ", b"PUT "].iter().any(|method| input.starts_with(method))
}

/// Fills in the error numbers of a session that is open because the refusal of its certificate is ignored. They are
/// found by verifying again, which is stateless, so that it works for resumed sessions too.
fn ignored_refusal(clients: &Clients, facts: &mut TlsFacts) {
    let Some(peer) = facts.peer.clone() else { return };
    let chain: Vec<_> = peer.chain.iter().map(|der| der.as_slice().into()).collect();
    let Some((leaf, above)) = chain.split_first() else { return };
    if let Err(rejected) = clients.verdict(leaf, above, UnixTime::now()) {
        let faults = rejected.faults;
        // OpenSSL goes on, and keeps the last.
        facts.verify = faults.last().map_or(0, |fault| fault.code);
        facts.leaf_err = faults.iter().find(|fault| fault.depth == 0).map_or(0, |fault| fault.code);
        if let Some(fault) = faults.iter().find(|fault| fault.depth > 0) {
            (facts.ca_err, facts.ca_err_depth) = (fault.code, fault.depth);
        }
    }
}

/// The plaintext alert (RFC 8446, 6.2) for a hello that is refused before the handshake starts. If rustls would refuse
/// the hello too, its alert is used.
fn alert(refused: &HandshakeError, input: &[u8]) -> Vec<u8> {
    const UNEXPECTED_MESSAGE: u8 = 10;
    const DECODE_ERROR: u8 = 50;
    const HANDSHAKE_FAILURE: u8 = 40;
    const PROTOCOL_VERSION: u8 = 70;
    const INTERNAL_ERROR: u8 = 80;
    const UNRECOGNIZED_NAME: u8 = 112;
    let fatal = |description| vec![0x15, 3, 3, 0, 2, 2, description];
    if matches!(refused, HandshakeError::UnknownName) {
        return fatal(UNRECOGNIZED_NAME);
    }
    match refused {
        HandshakeError::Tls(Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon)) => {
            return fatal(HANDSHAKE_FAILURE);
        }
        HandshakeError::Tls(Error::PeerIncompatible(_)) => return fatal(PROTOCOL_VERSION),
        HandshakeError::Origin(invalid) => return fatal(invalid.alert()),
        HandshakeError::Internal(_) => return fatal(INTERNAL_ERROR),
        _ => {}
    }
    let mut reader = rustls::server::Acceptor::default();
    let mut rest = input;
    while matches!(reader.read_tls(&mut rest), Ok(1..)) {
        match reader.accept() {
            Ok(_) => {}
            // rustls' stand-alone hello reader has no alert for this, although its connections have.
            Err((Error::InappropriateMessage { got_type, .. }, _)) if got_type != ContentType::Alert => {
                return fatal(UNEXPECTED_MESSAGE);
            }
            Err((Error::InappropriateHandshakeMessage { .. }, _)) => return fatal(UNEXPECTED_MESSAGE),
            Err((_, mut alert)) => {
                let mut bytes = Vec::new();
                // Writing to memory does not fail. A peer that sent an alert itself gets none.
                let _ = alert.write_all(&mut bytes);
                return bytes;
            }
        }
    }
    // It is longer than we read, or contains a list that rustls does not parse.
    fatal(DECODE_ERROR)
}
