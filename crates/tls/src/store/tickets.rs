//! Session ticket keys from `tls-ticket-keys` files.

use super::{Store, StoreError, certificates::base64_of, error::Refusal};
use base64::Engine as _;
use zeroize::Zeroizing;

/// How many keys of a file are in use: the others have been dropped.
pub const TICKET_KEYS: usize = crate::tickets::KEYS;

/// The keys of one file.
pub struct TicketKeysView {
    /// The number by which commands may refer to it.
    pub id: usize,
    /// The file's name.
    pub file: String,
    /// In base64, oldest first; the last but one encrypts.
    pub keys: Vec<Zeroizing<String>>,
}

impl Store {
    /// The files of ticket keys, with their keys.
    pub fn ticket_keys(&self) -> Vec<TicketKeysView> {
        let state = self.state();
        let encoded = |key: Zeroizing<Vec<u8>>| Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(&*key));
        let view = |(id, (file, ring)): (usize, &(String, std::sync::Arc<crate::tickets::KeyRing>))| TicketKeysView {
            id,
            file: file.clone(),
            keys: ring.secrets().into_iter().map(encoded).collect(),
        };
        state.rings.iter().enumerate().map(view).collect()
    }

    /// Adds a key (in base64) to the file given by `#ID` or name. The oldest key is dropped, and the previously newest
    /// one encrypts from now on.
    ///
    /// # Errors
    ///
    /// If there is no such file, or the key is invalid or has a different size from the file's.
    pub fn add_ticket_key(&self, which: &str, key: &str) -> Result<(), StoreError> {
        let refuse = |refusal, text: &str| Err(StoreError::new(refusal, format!("'set ssl tls-key' {text}")));
        let state = self.state();
        let by_id = which.strip_prefix('#').and_then(|id| id.parse::<usize>().ok());
        let ring = match by_id {
            Some(id) => state.rings.get(id),
            None => state.rings.iter().find(|(file, _)| file == which),
        };
        let Some((_, ring)) = ring else {
            return refuse(Refusal::Unknown, "unable to locate referenced filename");
        };
        let Some(key) = base64_of(key).map(Zeroizing::new) else {
            return refuse(Refusal::BadInput, "received invalid base64 encoded TLS key.");
        };
        match ring.push(key) {
            true => Ok(()),
            false => refuse(Refusal::BadInput, "received a key of wrong size."),
        }
    }
}
