//! Puts a service's message in place of the original.

use crate::exchange::state::Exchange;
use penstock_http::{Error, Fields, Framing, Known, RequestHead, ResponseHead, TargetForm};
use penstock_icap::is_of_connection;

/// Replaces the request's method, target and fields, other than those about the connection, by a service's.
pub(super) fn request(x: &mut Exchange, by: &RequestHead) -> Result<(), Error> {
    // A service may not turn another method into CONNECT, or CONNECT into another: its 2xx would open a tunnel.
    if (by.method() == b"CONNECT") != (x.request.method() == b"CONNECT") {
        return Err(Error::Method);
    }
    x.request.set_method(by.method())?;
    if matches!(by.form(), TargetForm::Origin | TargetForm::Absolute) {
        x.request.set_path_and_query(by.path_and_query())?;
    }
    let host = by.host().map(<[u8]>::to_vec);
    let fields = &mut x.request.fields;
    fields.remove_if(|field| !is_of_connection(field.name));
    if let Some(host) = host {
        fields.append(b"host", &host)?;
    }
    for field in by.fields.iter().filter(|field| field.known != Known::Host) {
        fields.append(field.name, field.value)?;
    }
    x.request.put_host_into_target();
    Ok(())
}

/// Replaces the response's status and fields by a service's; its version stays what the server's was.
pub(super) fn response(x: &mut Exchange, by: ResponseHead) {
    let version = x.response.version();
    x.response = by;
    x.response.set_version(version);
}

/// Makes a head say how its new body is framed.
pub(super) fn frame(fields: &mut Fields, framing: Framing, needs_length: bool) {
    fields.remove_known(Known::ContentLength);
    fields.remove_known(Known::TransferEncoding);
    let length = match framing {
        Framing::Length(length) => Some(length),
        Framing::None if needs_length => Some(0),
        _ => None,
    };
    if let Some(length) = length {
        fields.append(b"content-length", length.to_string().as_bytes()).expect("a name and a number");
    }
}
