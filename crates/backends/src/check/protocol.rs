//! The fixed protocols: what is sent, and what counts as a valid answer.

use super::{
    Outcome, Verdict,
    script::{Action, Connect, Expect, Judge, Kind, Pattern, Script, Step, Text},
};
use penstock_config::model::MysqlUser;

/// A connection, followed by the steps of one protocol. With `counted`, messages count the connection as a step, and it
/// is closed in an orderly way; HAProxy differs here from protocol to protocol.
fn script(counted: bool, steps: impl IntoIterator<Item = Action>) -> Script {
    let connect = Connect { implicit: !counted, as_server: true, linger: counted, ..Connect::default() };
    let connect = Action::Connect(connect);
    let steps = std::iter::once(connect).chain(steps).map(|action| Step { action, comment: None });
    Script { steps: steps.collect(), kind: Kind::Plain, ..Script::default() }
}

fn send(bytes: impl AsRef<[u8]>) -> Action {
    Action::Send(Text::bytes(bytes.as_ref()))
}

fn expect(judge: Judge) -> Action {
    Action::Expect(Expect::new(Pattern::Protocol(judge)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_string()
}

/// The first line without its end.
fn line(input: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b'\n', input)?;
    Some(input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]))
}

/// Only connects.
pub fn connect() -> Script {
    script(false, [])
}

/// `option smtpchk`: greeting, hello, goodbye.
pub fn smtp(hello: &str, domain: &str) -> Script {
    script(
        true,
        [
            expect(smtp_line),
            send(format!("{hello} {domain}\r\n")),
            expect(smtp_reply),
            send("QUIT\r\n"),
            expect(smtp_line),
        ],
    )
}

/// Three digits and text; 2xx is a success.
fn smtp_line(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    let line = line(input)?;
    let (code, rest) = line.split_at_checked(3).unwrap_or((line, &[]));
    let Some(code) = std::str::from_utf8(code).ok().and_then(|code| code.parse::<u32>().ok()) else {
        return Some(Err(Outcome::new(Verdict::L7Response, text(line))));
    };
    let rest = text(rest.strip_prefix(b"-").unwrap_or(rest));
    Some(match code {
        200..=299 => Ok(Outcome::new(Verdict::L7Ok, rest).code(code)),
        _ => Err(Outcome::new(Verdict::L7Status, rest).code(code)),
    })
}

/// An answer of several lines, whose last one has no dash after the number.
fn smtp_reply(mut input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    loop {
        let judged = smtp_line(input)?;
        if judged.is_err() || input.get(3) != Some(&b'-') {
            return Some(judged);
        }
        input = &input[memchr::memchr(b'\n', input)? + 1..];
    }
}

/// `option redis-check`.
pub fn redis() -> Script {
    let mut pong = Expect::new(Pattern::Protocol(redis_pong));
    pong.error_status = Some(Verdict::L7Status);
    script(false, [send("*1\r\n$4\r\nPING\r\n"), Action::Expect(pong)])
}

fn redis_pong(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    const PONG: &[u8] = b"+PONG\r\n";
    if input.len() < PONG.len() && !input.contains(&b'\n') {
        return None;
    }
    Some(match input.starts_with(PONG) {
        true => Ok(Outcome::new(Verdict::L7Ok, "Redis server is ok")),
        false => Err(Outcome::new(Verdict::L7Status, text(input))),
    })
}

/// `option spop-check`: what an agent says of itself.
pub fn spop() -> Script {
    script(false, [send(penstock_spop::check_request(SPOP_FRAME)), expect(spop_hello)])
}

/// The greatest frame that is offered to an agent in a check: what fits into a buffer of the usual size.
const SPOP_FRAME: u32 = 16_384 - 4;

fn spop_hello(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    match penstock_spop::check_answer(input, SPOP_FRAME) {
        Ok(None) => None,
        Ok(Some(())) => Some(Ok(Outcome::new(Verdict::L7Ok, "SPOA server is ok"))),
        Err(status) => Some(Err(Outcome::new(Verdict::L7Response, status.to_string()))),
    }
}

/// `option pgsql-check`: sends a start-up message; any request for authentication is a success.
pub fn pgsql(user: &str) -> Script {
    // Protocol 3.0, then pairs of names and values, each terminated by a zero.
    let mut body = vec![0, 3, 0, 0];
    body.extend_from_slice(b"user\0");
    body.extend_from_slice(user.as_bytes());
    body.extend_from_slice(b"\0\0");
    let mut message = (body.len() as u32 + 4).to_be_bytes().to_vec();
    message.append(&mut body);
    script(true, [send(message), expect(pgsql_answer)])
}

fn pgsql_answer(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    match input.first()? {
        b'R' if input.len() < 9 => None,
        // A request for a method of authentication that starts an exchange, or for none.
        b'R' if input[1..4] == [0; 3] && input[5..8] == [0; 3] && matches!(input[8], 0 | 2..=7 | 9 | 10) => {
            Some(Ok(Outcome::new(Verdict::L7Ok, "PostgreSQL server is ok")))
        }
        b'E' => {
            // Type and length are followed by fields, each a letter and text up to a NUL; the first one is the
            // severity.
            let said = input.get(6..)?.split(|&byte| byte == 0).next()?;
            Some(Err(Outcome::new(Verdict::L7Response, text(said))))
        }
        _ => Some(Err(Outcome::new(Verdict::L7Status, "PostgreSQL unknown error"))),
    }
}

/// `option ldap-check`: an anonymous bind of version 3.
pub fn ldap() -> Script {
    const BIND: [u8; 14] = [0x30, 0x0c, 2, 1, 1, 0x60, 7, 2, 1, 3, 4, 0, 0x80, 0];
    script(false, [send(BIND), expect(ldap_answer)])
}

fn ldap_answer(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    let refused = || Some(Err(Outcome::new(Verdict::L7Response, "Not LDAPv3 protocol")));
    if input.first() != Some(&0x30) {
        return refused();
    }
    // A length over 127 is preceded by the number of its bytes.
    let long = *input.get(1)?;
    let header = 2 + if long & 0x80 != 0 { usize::from(long & 0x7f) } else { 0 };
    let message = input.get(header..)?;
    let bound = message.get(..10)?;
    if bound[..4] != [2, 1, 1, 0x61] {
        return refused();
    }
    let skip = if bound[4] & 0x80 != 0 { usize::from(bound[4] & 0x7f) } else { 0 };
    let result = message.get(5 + skip..8 + skip)?;
    if result[..2] != [0x0a, 1] {
        return refused();
    }
    Some(match result[2] {
        0 => Ok(Outcome::new(Verdict::L7Ok, "Success")),
        code => Err(Outcome::new(Verdict::L7Status, "See RFC: http://tools.ietf.org/html/rfc4511#section-4.1.9")
            .code(u32::from(code))),
    })
}

/// `option mysql-check`: reads the greeting, and with a user also authenticates without a password.
pub fn mysql(user: Option<&MysqlUser>) -> Script {
    let Some(user) = user else { return script(true, [expect(mysql_greeting)]) };
    let mut body = if user.pre_41 {
        // Protocol 3.20, packets up to 16 MB.
        vec![0x00, 0x80, 0x00, 0x00, 0x01]
    } else {
        // Protocol 4.1 with authentication, no compression, packets up to 16 MB, latin1 replaced by UTF-8.
        let mut body = vec![0x00, 0x82, 0x00, 0x00, 0x00, 0x80, 0x00, 0x01, 0x21];
        body.resize(body.len() + 23, 0);
        body
    };
    body.extend_from_slice(user.name.as_bytes());
    body.extend_from_slice(&[0, 0]);
    let mut login = (body.len() as u32).to_le_bytes()[..3].to_vec();
    login.push(1);
    login.append(&mut body);
    const QUIT: [u8; 5] = [1, 0, 0, 0, 1];
    login.extend_from_slice(&QUIT);
    // What is sent neither depends on the greeting nor waits for it.
    script(true, [send(login), expect(mysql_greeting), expect(mysql_answer)])
}

/// The packet at the start of the input, and what follows it: three bytes of length, a sequence number, the body.
fn mysql_packet(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = input.split_at_checked(4)?;
    let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    rest.split_at_checked(length)
}

fn mysql_error(body: &[u8]) -> Outcome {
    let code = body.get(1..3).map_or(0, |code| u32::from(code[0]) | u32::from(code[1]) << 8);
    // With a 4.1 server, the SQL state, marked by '#', precedes the text.
    let said = body.get(3..).unwrap_or_default();
    let said = if said.first() == Some(&b'#') { said.get(6..).unwrap_or_default() } else { said };
    Outcome::new(Verdict::L7Status, text(said)).code(code)
}

fn mysql_greeting(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    let (body, _) = mysql_packet(input)?;
    Some(match body.first() {
        Some(0xff) => Err(mysql_error(body)),
        Some(_) => {
            let version = body[1..].split(|&c| c == 0).next().unwrap_or_default();
            Ok(Outcome::new(Verdict::L7Ok, text(version)))
        }
        None => Err(Outcome::new(Verdict::L7Response, "")),
    })
}

/// The packet after the greeting; the version in the greeting is reported.
fn mysql_answer(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    let (_, rest) = mysql_packet(input)?;
    let (body, _) = mysql_packet(rest)?;
    Some(match body.first() {
        Some(0xff) => Err(mysql_error(body)),
        Some(_) => return mysql_greeting(input),
        None => Err(Outcome::new(Verdict::L7Response, "")),
    })
}

/// `option ssl-hello-chk`: sends a hello that every TLS server answers, even if with an alert; the handshake is not
/// continued.
pub fn ssl_hello() -> Script {
    let mut hello = vec![0x03, 0x03];
    hello.extend_from_slice(b"an answer is all that this asks.");
    // No session, four suites that servers of any age support, no compression.
    hello.push(0);
    hello.extend_from_slice(&[0, 8, 0xc0, 0x2f, 0xc0, 0x2b, 0x00, 0x9c, 0x00, 0x2f]);
    hello.extend_from_slice(&[1, 0]);
    let mut message = vec![0x16, 0x03, 0x01];
    message.extend_from_slice(&(hello.len() as u16 + 4).to_be_bytes());
    message.extend_from_slice(&[0x01, 0x00]);
    message.extend_from_slice(&(hello.len() as u16).to_be_bytes());
    message.append(&mut hello);
    let mut answer = Expect::new(Pattern::Protocol(ssl_answer));
    answer.ok_status = Some(Verdict::L6Ok);
    answer.error_status = Some(Verdict::L6Response);
    answer.timeout_status = Some(Verdict::L6Timeout);
    script(false, [send(message), Action::Expect(answer)])
}

/// A handshake record or an alert.
fn ssl_answer(input: &[u8]) -> Option<Result<Outcome, Outcome>> {
    Some(match input.first()? {
        0x15 | 0x16 => Ok(Outcome::new(Verdict::L6Ok, "")),
        _ => Err(Outcome::new(Verdict::L6Response, "")),
    })
}
