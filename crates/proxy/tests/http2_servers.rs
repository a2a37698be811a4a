//! Servers that speak HTTP/2, behind a running data plane.

mod common;

use bytes::Bytes;
use common::{Client, PATIENCE, Proxy, port};
use h2::{
    Reason, RecvStream,
    client::{self, SendRequest},
    server::{self, SendResponse},
};
use http::{HeaderMap, Request, Response};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// An HTTP/2 server made of a function; counts its connections.
struct Origin {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Origin {
    fn start<F>(behave: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static) -> Origin
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let origin = Origin { port: listener.local_addr().unwrap().port(), connections: Arc::default() };
        let (connections, behave) = (origin.connections.clone(), Arc::new(behave));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::SeqCst);
                    let behave = behave.clone();
                    tokio::spawn(async move {
                        let Ok(mut connection) = server::handshake(stream).await else { return };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            tokio::spawn(behave(request, respond));
                        }
                    });
                }
            });
        });
        origin
    }
    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
    fn proxy(&self, more: &str) -> (Proxy, u16) {
        let port = port();
        let proxy = Proxy::start(&format!(
            "global\n nbthread 1\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
             {more}\nlisten web\n bind 127.0.0.1:{port}\n server s1 127.0.0.1:{} proto h2\n",
            self.port
        ));
        (proxy, port)
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("it hangs") })
}

async fn connect(port: u16) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (send, connection) = client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.example{path}")).body(()).unwrap()
}

async fn read(stream: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    Ok(body)
}

fn response(length: Option<usize>) -> Response<()> {
    let mut response = Response::new(());
    if let Some(length) = length {
        response.headers_mut().insert("content-length", length.into());
    }
    response
}

#[test]
fn an_http_1_client_gets_lengths_and_chunks() {
    let origin = Origin::start(|request, mut respond| async move {
        assert_eq!(request.uri(), "http://x/a?b");
        assert!(!request.headers().contains_key("connection"));
        let length = (request.headers().get("want").unwrap() == "length").then_some(5);
        let mut stream = respond.send_response(response(length), false).unwrap();
        stream.send_data(Bytes::from_static(b"hello"), true).unwrap();
    });
    let (_proxy, port) = origin.proxy("");
    let mut client = Client::connect(port);
    client.send("GET /a?b HTTP/1.1\r\nHost: x\r\nWant: length\r\n\r\n");
    assert_eq!(client.response(), "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    client.send("GET /a?b HTTP/1.1\r\nHost: x\r\nWant: chunks\r\nConnection: close\r\n\r\n");
    let (text, end) = client.rest();
    assert!(end.is_ok());
    assert!(text.contains("\r\ntransfer-encoding: chunked\r\n"), "{text}");
    assert!(text.ends_with("5\r\nhello\r\n0\r\n\r\n"), "{text}");
}

#[test]
fn streams_of_many_clients_share_a_connection_to_the_server() {
    let origin = Origin::start(|request, mut respond| async move {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let path = request.uri().path().to_owned();
        let mut stream = respond.send_response(response(Some(path.len())), false).unwrap();
        stream.send_data(Bytes::from(path), true).unwrap();
    });
    let (_proxy, port) = origin.proxy(" http-reuse always");
    block_on(async {
        let mut first = connect(port).await;
        let (answer, _) = first.send_request(get("/first"), true).unwrap();
        assert_eq!(read(&mut answer.await.unwrap().into_body()).await.unwrap(), b"/first");
        let mut pending = Vec::new();
        for client in 0..5 {
            let mut send = connect(port).await;
            for stream in 0..10 {
                send = send.ready().await.unwrap();
                let path = format!("/{client}/{stream}");
                let (answer, _) = send.send_request(get(&path), true).unwrap();
                pending.push((path, tokio::spawn(answer)));
            }
        }
        for (path, answer) in pending {
            let body = read(&mut answer.await.unwrap().unwrap().into_body()).await.unwrap();
            assert_eq!(String::from_utf8(body).unwrap(), path);
        }
    });
    assert_eq!(origin.connections(), 1);
}

#[test]
fn bodies_and_trailers_go_through_both_ways() {
    let origin = Origin::start(|request, mut respond| async move {
        let mut inbound = request.into_body();
        let body = read(&mut inbound).await.unwrap();
        let trailers = inbound.trailers().await.unwrap().unwrap();
        let mut stream = respond.send_response(response(None), false).unwrap();
        stream.send_data(Bytes::from(body), false).unwrap();
        stream.send_trailers(trailers).unwrap();
    });
    let (_proxy, port) = origin.proxy("");
    block_on(async {
        let request = Request::post("http://a.example/").body(()).unwrap();
        let (answer, mut stream) = connect(port).await.send_request(request, false).unwrap();
        stream.send_data(Bytes::from(vec![b'x'; 30_000]), false).unwrap();
        stream.send_trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())])).unwrap();
        let mut answer = answer.await.unwrap().into_body();
        assert_eq!(read(&mut answer).await.unwrap(), [b'x'; 30_000]);
        assert_eq!(answer.trailers().await.unwrap().unwrap()["x-sum"], "1");
    });
}

#[test]
fn a_stream_that_the_server_resets_in_mid_body_is_seen_by_clients_of_both_versions() {
    let origin = Origin::start(|_, mut respond| async move {
        let mut stream = respond.send_response(response(None), false).unwrap();
        stream.send_data(Bytes::from_static(b"hello"), false).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stream.send_reset(Reason::INTERNAL_ERROR);
    });
    let (_proxy, port) = origin.proxy("");
    let (text, _) = Client::connect(port).send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").rest();
    assert!(text.contains("hello") && !text.ends_with("0\r\n\r\n"), "{text}");
    block_on(async {
        let (answer, _) = connect(port).await.send_request(get("/"), true).unwrap();
        assert!(read(&mut answer.await.unwrap().into_body()).await.is_err());
    });
}

#[test]
fn a_server_that_refuses_a_stream_gives_502_and_nothing_else_breaks() {
    let origin = Origin::start(|request, mut respond| async move {
        if request.uri().path() == "/refuse" {
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        respond.send_response(response(Some(0)), true).unwrap();
    });
    let (_proxy, port) = origin.proxy(" retries 0");
    let mut client = Client::connect(port);
    assert!(client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").response().starts_with("HTTP/1.1 200 "));
    let mut other = Client::connect(port);
    other.send("POST /refuse HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(other.response().starts_with("HTTP/1.1 502 "));
    assert!(client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_connection_on_which_nothing_is_answered_any_more_is_left() {
    let seen = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start(move |_, mut respond| {
        let number = seen.fetch_add(1, Ordering::SeqCst);
        async move {
            if (1..4).contains(&number) {
                // The server has gone without notice.
                std::future::pending().await
            }
            respond.send_response(response(Some(0)), true).unwrap();
        }
    });
    let (_proxy, port) = origin.proxy(" timeout server 200ms\n retries 0\n http-reuse always");
    let mut client = Client::connect(port);
    for status in [200, 504, 504, 504, 200] {
        let answer = client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").response();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn what_a_server_sends_behind_a_head_without_a_body_goes_to_no_client() {
    let origin = Origin::start(|request, mut respond| async move {
        let status = request.uri().path().trim_start_matches('/').parse::<u16>().unwrap();
        let head = Response::builder().status(status).body(()).unwrap();
        let mut stream = respond.send_response(head, false).unwrap();
        let injected = Bytes::from_static(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
        // It may have been reset by now, which is as well.
        let _ = stream.send_data(injected, true);
    });
    let (_proxy, port) = origin.proxy("");
    for status in ["204", "304"] {
        let mut client = Client::connect(port);
        for _ in 0..2 {
            client.send(format!("GET /{status} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let head = client.response();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && head.ends_with("\r\n\r\n"), "{head}");
        }
        client.send(format!("GET /{status} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        let (rest, _) = client.rest();
        assert!(!rest.contains("evil"), "{rest}");
        block_on(async {
            let (answer, _) = connect(port).await.send_request(get(&format!("/{status}")), true).unwrap();
            assert_eq!(read(&mut answer.await.unwrap().into_body()).await.unwrap(), b"");
        });
    }
}

#[test]
fn a_connect_of_an_http_1_client_opens_a_tunnel_to_the_server() {
    let origin = Origin::start(|request, mut respond| async move {
        assert_eq!((request.method(), request.uri().to_string()), (&http::Method::CONNECT, "b.example:443".to_owned()));
        let mut body = request.into_body();
        let mut stream = respond.send_response(response(None), false).unwrap();
        stream.send_data(Bytes::from_static(b"hello, "), false).unwrap();
        let said = read(&mut body).await.unwrap();
        stream.send_data(Bytes::from(said), true).unwrap();
    });
    let (_proxy, port) = origin.proxy("");
    let mut client = Client::connect(port);
    client.send("CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n");
    assert_eq!(client.response(), "HTTP/1.1 200 OK\r\n\r\n");
    client.send("GET / no request\r\n\r\n");
    client.shut();
    let (text, _) = client.rest();
    assert_eq!(text, "hello, GET / no request\r\n\r\n");
}
