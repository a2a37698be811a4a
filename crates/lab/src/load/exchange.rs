//! Key exchange with one key pair for the whole run.
//!
//! A real client makes a new one for every handshake. What the server computes does not depend on it, and making one is a
//! tenth of what a handshake costs this side; nothing that a load test sends needs to be secret tomorrow.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, agree};
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::{Error, NamedGroup};

/// The group with this name. For the curves that most clients use, one key pair serves the whole run.
pub(crate) fn group(name: NamedGroup) -> Option<&'static dyn SupportedKxGroup> {
    Some(match name {
        NamedGroup::X25519 => kept(name, &agreement::X25519)?,
        NamedGroup::secp256r1 => kept(name, &agreement::ECDH_P256)?,
        NamedGroup::secp384r1 => kx_group::SECP384R1,
        NamedGroup::X25519MLKEM768 => kx_group::X25519MLKEM768,
        _ => return None,
    })
}

fn kept(name: NamedGroup, algorithm: &'static agreement::Algorithm) -> Option<&'static dyn SupportedKxGroup> {
    let private = PrivateKey::generate(algorithm).ok()?;
    let public = private.compute_public_key().ok()?.as_ref().to_vec();
    // rustls takes groups that live for ever. At most two are leaked per run, and a process rarely makes more than one
    // run.
    let kept: &'static KeyPair = Box::leak(Box::new(KeyPair { name, algorithm, private, public }));
    Some(Box::leak(Box::new(kept)))
}

#[derive(Debug)]
struct KeyPair {
    name: NamedGroup,
    algorithm: &'static agreement::Algorithm,
    private: PrivateKey,
    public: Vec<u8>,
}

struct Half(&'static KeyPair);

impl SupportedKxGroup for &'static KeyPair {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Half(self)))
    }

    fn name(&self) -> NamedGroup {
        self.name
    }
}

impl ActiveKeyExchange for Half {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer = UnparsedPublicKey::new(self.0.algorithm, peer);
        let bad = Error::PeerMisbehaved(rustls::PeerMisbehaved::InvalidKeyShare);
        agree(&self.0.private, peer, bad, |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0.public
    }

    fn group(&self) -> NamedGroup {
        self.0.name
    }
}
