//! What a transaction makes of answers, however they are cut.

use penstock_http::{Limits, RequestHead, ResponseHead};
use penstock_icap::{Error, IcapMethod, IcapRequest, ServiceDecision, Start, Transaction};
use proptest::prelude::*;

const BODY: &[u8] = b"the original body, which is longer than the preview";
const PREVIEW: usize = 8;

fn heads() -> (RequestHead, ResponseHead) {
    let mut request = RequestHead::new();
    request
        .parse(b"POST /up?x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n", &Limits::default())
        .unwrap();
    let mut response = ResponseHead::new();
    response.parse(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", &Limits::default()).unwrap();
    (request, response)
}

fn begin(method: IcapMethod, start: Start<'_>) -> Transaction {
    let (request, response) = heads();
    let fields = [("X-Client-IP", "192.0.2.1".to_owned())];
    let (request, response) = (Some(&request), Some(&response));
    let asked =
        IcapRequest { method, host: "av:1344", path: "/scan", fields: &fields, scheme: "https", request, response };
    Transaction::new(&asked, start, Limits::default(), 1000)
}

fn previewed(method: IcapMethod, read: usize) -> Transaction {
    let (bytes, complete) = (&BODY[..read], read == BODY.len());
    begin(method, Start { has_body: true, bytes, complete, preview: Some(PREVIEW), allow_206: true })
}

fn written(transaction: &mut Transaction) -> String {
    let text = String::from_utf8(transaction.output().to_vec()).unwrap();
    transaction.sent(text.len());
    text
}

#[test]
fn a_request_is_written_as_services_expect_it() {
    let mut preview = previewed(IcapMethod::Reqmod, 20);
    assert_eq!(
        written(&mut preview),
        "REQMOD icap://av:1344/scan ICAP/1.0\r\nHost: av:1344\r\nAllow: 204, 206\r\nPreview: 8\r\nX-Client-IP: 192.0.2.1\r\n\
         Encapsulated: req-hdr=0, req-body=47\r\n\r\n\
         POST https://h/up?x HTTP/1.1\r\nhost: h\r\na: b\r\n\r\n\
         8\r\nthe orig\r\n0\r\n\r\n"
    );
    assert!(!preview.wants_body());
    preview.input(b"ICAP/1.0 100 Continue\r\n\r\n").unwrap();
    assert!(preview.wants_body());
    preview.body(&BODY[20..]);
    preview.end_body();
    assert_eq!(written(&mut preview), "c\r\ninal body, w\r\n1f\r\nhich is longer than the preview\r\n0\r\n\r\n");

    let whole = Start { has_body: true, bytes: b"short", complete: true, preview: Some(PREVIEW), allow_206: false };
    let text = written(&mut begin(IcapMethod::Respmod, whole));
    assert!(text.contains("\r\nAllow: 204\r\nPreview: 8\r\n"), "{text}");
    assert!(text.contains("Encapsulated: req-hdr=0, res-hdr=47, res-body=92\r\n\r\n"), "{text}");
    assert!(
        text.ends_with("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n5\r\nshort\r\n0; ieof\r\n\r\n"),
        "{text}"
    );

    let at_once = Start { preview: None, ..whole };
    assert!(written(&mut begin(IcapMethod::Respmod, at_once)).ends_with("\r\n\r\n5\r\nshort\r\n0\r\n\r\n"));
    let without = Start { preview: Some(PREVIEW), ..Start::default() };
    let text = written(&mut begin(IcapMethod::Reqmod, without));
    assert!(text.contains("Encapsulated: req-hdr=0, null-body=47\r\n\r\n") && !text.contains("Preview"), "{text}");
    let text = written(&mut begin(IcapMethod::Options, Start::default()));
    assert_eq!(
        text,
        "OPTIONS icap://av:1344/scan ICAP/1.0\r\nHost: av:1344\r\nX-Client-IP: 192.0.2.1\r\nEncapsulated: null-body=0\r\n\r\n"
    );
}

/// Everything about a decision, as text.
fn decide(method: IcapMethod, answer: &[u8], cuts: impl Iterator<Item = usize>) -> Result<String, Error> {
    let mut transaction = previewed(method, BODY.len());
    let length = transaction.output().len();
    transaction.sent(length);
    let mut at = 0;
    for cut in cuts.chain([answer.len()]) {
        transaction.input(&answer[at..cut.max(at)])?;
        at = cut.max(at);
        let length = transaction.output().len();
        transaction.sent(length);
    }
    if !transaction.is_done() {
        assert!(transaction.finish().is_none());
        return Ok("unfinished".into());
    }
    let reusable = transaction.is_reusable();
    Ok(match transaction.finish().expect("it is done") {
        ServiceDecision::Unmodified => format!("unmodified, reusable {reusable}"),
        ServiceDecision::Described => format!("described, reusable {reusable}"),
        ServiceDecision::Modified(modified) => {
            let mut text = Vec::new();
            modified.request.iter().for_each(|head| head.write_to(&mut text));
            modified.response.iter().for_each(|head| head.write_to(&mut text));
            let body = modified.body.map(|body| String::from_utf8_lossy(&body.to_vec()).into_owned());
            let head = String::from_utf8_lossy(&text).into_owned();
            format!("{head}|{body:?}|{:?}|reusable {reusable}", modified.original_from)
        }
    })
}

/// Answers, and what each means.
const ANSWERS: &[(IcapMethod, &str, &str)] = &[
    (IcapMethod::Reqmod, "ICAP/1.0 204 No Content\r\nISTag: x\r\n\r\n", "unmodified, reusable true"),
    (
        IcapMethod::Reqmod,
        "ICAP/1.0 204 Done\r\nConnection: close\r\nEncapsulated: null-body=0\r\n\r\n",
        "unmodified, reusable false",
    ),
    (IcapMethod::Respmod, "ICAP/1.0 100 Continue\r\n\r\nICAP/1.0 204 Unmodified\r\n\r\n", "unmodified, reusable true"),
    (
        IcapMethod::Reqmod,
        "ICAP/1.0 200 OK\r\nX-Infection-Found: Type=0;\r\n Threat=E;\r\nEncapsulated: res-hdr=0, res-body=70\r\n\r\n\
         HTTP/1.0 403 Forbidden\r\nConnection: close\r\nContent-Type: text/html\r\n\r\n7\r\nblocked\r\n0\r\n\r\n",
        "HTTP/1.0 403 Forbidden\r\ncontent-type: text/html\r\n\r\n|Some(\"blocked\")|None|reusable true",
    ),
    (
        IcapMethod::Reqmod,
        "ICAP/1.0 100 Continue\r\n\r\nICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, req-body=61\r\n\r\n\
         PUT http://h/other HTTP/1.1\r\nHost: h\r\nContent-Length: 999\r\n\r\n3\r\nnew\r\n2\r\n!!\r\n0\r\n\r\n",
        "PUT http://h/other HTTP/1.1\r\nhost: h\r\n\r\n|Some(\"new!!\")|None|reusable true",
    ),
    (
        IcapMethod::Respmod,
        "ICAP/1.0 206 Partial Content\r\nEncapsulated: res-hdr=0, res-body=19\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\
         2\r\nA:\r\n0; use-original-body=4\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n|Some(\"A:\")|Some(4)|reusable true",
    ),
    (
        IcapMethod::Respmod,
        "ICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, res-hdr=14, null-body=43\r\n\r\nGET / rubbish!HTTP/1.1 304 Not Modified\r\n\r\n\
         ICAP/1.0 200 surplus",
        "HTTP/1.1 304 Not Modified\r\n\r\n|None|None|reusable false",
    ),
];

#[test]
fn an_answer_means_the_same_however_it_is_cut() {
    for (method, answer, expected) in ANSWERS {
        let answer = answer.as_bytes();
        for cut in 0..=answer.len() {
            assert_eq!(decide(*method, answer, [cut].into_iter()).as_deref(), Ok(*expected), "cut at {cut}");
        }
        assert_eq!(decide(*method, answer, 0..answer.len()).as_deref(), Ok(*expected), "byte by byte");
    }
}

#[test]
fn no_part_of_an_answer_is_taken_for_the_whole() {
    for (method, answer, _) in ANSWERS {
        let whole = answer.find("ICAP/1.0 200 surplus").unwrap_or(answer.len());
        for end in 0..whole {
            assert_eq!(
                decide(*method, &answer.as_bytes()[..end], std::iter::empty()).as_deref(),
                Ok("unfinished"),
                "{end} of {answer}"
            );
        }
    }
}

#[test]
fn answers_that_cannot_be_trusted_are_refused() {
    let http = penstock_http::Error::FieldName;
    for (method, answer, error) in [
        (IcapMethod::Reqmod, "HTTP/1.1 200 OK\r\n\r\n", Error::StatusLine),
        (IcapMethod::Reqmod, "ICAP/1.0 404 Not Found\r\n\r\n", Error::Status(404)),
        (IcapMethod::Reqmod, "ICAP/1.0 200 OK\r\n\r\n", Error::Encapsulated),
        (IcapMethod::Reqmod, "ICAP/1.0 204 OK\r\nEncapsulated: req-hdr=0, null-body=9\r\n\r\n", Error::Encapsulated),
        (
            IcapMethod::Reqmod,
            "ICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, null-body=9\r\n\r\nGET / HTT",
            Error::Encapsulated,
        ),
        (
            IcapMethod::Reqmod,
            "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, null-body=41\r\n\r\nHTTP/1.1 200 OK\r\n\r\nGET / HTTP/1.1\r\n\r\n....",
            Error::Encapsulated,
        ),
        (
            IcapMethod::Respmod,
            "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, null-body=32\r\n\r\nHTTP/1.1 200 OK\r\nA : smuggle\r\n\r\n",
            Error::Http(http),
        ),
        (
            IcapMethod::Respmod,
            "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, null-body=25\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
            Error::NoHead,
        ),
        (
            IcapMethod::Respmod,
            "ICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, null-body=27\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
            Error::NoHead,
        ),
        (
            IcapMethod::Respmod,
            "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, res-body=19\r\n\r\nHTTP/1.1 200 OK\r\n\r\n0; use-original-body=0\r\n\r\n",
            Error::OriginalBody,
        ),
        (IcapMethod::Reqmod, "ICAP/1.0 100 Continue\r\n\r\nICAP/1.0 100 Continue\r\n\r\n", Error::Continue),
    ] {
        assert_eq!(decide(method, answer.as_bytes(), std::iter::empty()), Err(error), "{answer}");
    }
    let long = format!(
        "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, res-body=19\r\n\r\nHTTP/1.1 200 OK\r\n\r\n7d0\r\n{}\r\n0\r\n\r\n",
        "x".repeat(2000)
    );
    assert_eq!(decide(IcapMethod::Respmod, long.as_bytes(), std::iter::empty()), Err(Error::BodyTooLong));
}

#[test]
fn a_service_that_may_not_refer_to_the_body_does_not() {
    let start = Start { has_body: true, bytes: BODY, complete: true, preview: Some(PREVIEW), allow_206: false };
    let mut transaction = begin(IcapMethod::Respmod, start);
    let answer = b"ICAP/1.0 206 Partial\r\nEncapsulated: res-hdr=0, res-body=19\r\n\r\n";
    assert_eq!(transaction.input(answer), Err(Error::Encapsulated));
}

#[test]
fn a_body_that_the_service_stopped_reading_ends_its_connection() {
    let mut transaction = begin(IcapMethod::Reqmod, Start { has_body: true, bytes: b"a", ..Start::default() });
    let length = transaction.output().len();
    transaction.sent(length);
    assert!(transaction.wants_body());
    transaction.input(b"ICAP/1.0 204 Enough\r\n\r\n").unwrap();
    assert!(transaction.is_done() && !transaction.wants_body() && !transaction.is_reusable());
}

proptest! {
    #[test]
    fn nothing_a_service_sends_is_read_differently_when_cut(
        picked in 0..ANSWERS.len(),
        at in any::<prop::sample::Index>(),
        with in prop::collection::vec(any::<u8>(), 0..4),
        skip in 0usize..4,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let (method, answer, _) = ANSWERS[picked];
        let mut bytes = answer.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes.splice(at..(at + skip).min(bytes.len()), with);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = decide(method, &bytes, std::iter::empty());
        let cut = decide(method, &bytes, cuts.into_iter());
        // An error is found at the first byte that shows it, so only which one may differ.
        prop_assert_eq!(whole.as_ref().ok(), cut.as_ref().ok());
    }
}
