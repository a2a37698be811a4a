//! rustls acceptor and connector: ClientHello reader, certificates, SNI, tickets, handshakes that wait for an operation.
