//! Any bytes as the start of a TLS connection: read at once and as they grow, and never beyond the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_rules::{ClientHello, client_hello};

fuzz_target!(|data: &[u8]| {
    let whole = ClientHello::read(data);
    if let Ok(Some(hello)) = &whole {
        assert!(hello.message().len() <= client_hello::MAX_MESSAGE);
        assert!(hello.consumed >= hello.message().len());
        let _ = (hello.sni(), hello.session_id().len(), hello.random().len());
        let _ = (hello.alpn().count(), hello.groups().count(), hello.key_shares().count());
        let _ = (hello.supported_versions().count(), hello.signature_algorithms().count(), hello.extensions().count());
    }
    if whole.is_ok() && data.len() >= client_hello::MAX_INPUT {
        assert!(matches!(whole, Ok(Some(_))), "that many bytes always decide");
    }
    // A prefix is never refused where the whole is taken, nor decided in another way.
    let cut = data.len() / 2;
    match (ClientHello::read(&data[..cut]), &whole) {
        (Ok(Some(early)), Ok(Some(hello))) => assert_eq!(early.message(), hello.message()),
        (Ok(None), _) | (Err(_), Err(_)) => {}
        (early, whole) => panic!("{early:?} became {whole:?}"),
    }
});
