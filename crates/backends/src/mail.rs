//! Email alerts: the mail about a change of a server's state, and the conversation that delivers it (SMTP, RFC 5321).

use std::collections::VecDeque;

/// The longest reply of a mail server, in bytes. RFC 5321, 4.5.3.1.5, allows 512 a line.
const REPLY_MAX: usize = 4096;

/// A mail to one recipient.
#[derive(Clone, Debug)]
pub struct Mail {
    /// What this host calls itself.
    pub host: String,
    /// The sender's address.
    pub from: String,
    /// The recipient's address.
    pub to: String,
    /// The date, as RFC 5322 section 3.3 writes it.
    pub date: String,
    /// What has happened, in one line: the subject and the text.
    pub text: String,
}

/// What comes next in the conversation.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The reply has not been received whole.
    Receive,
    /// These bytes are to be sent.
    Send(Vec<u8>),
    /// The mail server has the mail, and the connection can be closed.
    Delivered,
}

/// The conversation that delivers a mail: what the mail server sends goes in, what to send it comes out.
#[derive(Debug)]
pub struct Conversation {
    /// The replies still to come, each by its code and what is sent after it.
    steps: VecDeque<(&'static [u8; 3], Vec<u8>)>,
    received: Vec<u8>,
}

impl Conversation {
    /// The conversation for this mail; the mail server speaks first.
    pub fn new(mail: &Mail) -> Conversation {
        let [host, from, to, date, text] =
            [&mail.host, &mail.from, &mail.to, &mail.date, &mail.text].map(|text| one_line(text));
        // A line that begins with a dot would end the mail.
        let dot = if text.starts_with('.') { "." } else { "" };
        let message = format!(
            "From: {from}\r\nTo: {to}\r\nDate: {date}\r\nSubject: [HAProxy Alert] {text}\r\n\r\n{dot}{text}\r\n\r\n.\r\n"
        );
        let steps = [
            (b"220", format!("HELO {host}\r\n")),
            (b"250", format!("MAIL FROM:<{from}>\r\n")),
            (b"250", format!("RCPT TO:<{to}>\r\n")),
            (b"250", "DATA\r\n".to_owned()),
            (b"354", message),
            (b"250", "QUIT\r\n".to_owned()),
            (b"221", String::new()),
        ];
        Conversation { steps: steps.map(|(code, send)| (code, send.into_bytes())).into(), received: Vec::new() }
    }

    /// Takes what was received, none of it after the connection's end, and says what comes next.
    ///
    /// # Errors
    ///
    /// In words, if the mail server refuses, does not speak SMTP, or has left before it had the mail.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Next, String> {
        // What follows QUIT does not matter: the mail has been taken.
        if self.steps.len() <= 1 {
            return Ok(Next::Delivered);
        }
        if bytes.is_empty() {
            return Err("the connection was closed".to_owned());
        }
        self.received.extend_from_slice(bytes);
        let Some(last) = self.last_line() else {
            return if self.received.len() > REPLY_MAX {
                Err("its reply is too long".to_owned())
            } else {
                Ok(Next::Receive)
            };
        };
        let line = self.received[last.clone()].to_vec();
        self.received.drain(..last.end);
        match self.steps.pop_front() {
            Some((code, send)) if line.starts_with(code) => Ok(Next::Send(send)),
            _ => Err(format!("it replied '{}'", one_line(String::from_utf8_lossy(&line).trim_end()))),
        }
    }

    /// The last line of the reply at the beginning of what was received: the first without a hyphen behind its code (RFC 5321, 4.2.1).
    fn last_line(&self) -> Option<std::ops::Range<usize>> {
        let mut from = 0;
        loop {
            let end = from + self.received[from..].iter().position(|byte| *byte == b'\n')? + 1;
            if self.received.get(from + 3) != Some(&b'-') {
                return Some(from..end);
            }
            from = end;
        }
    }
}

/// The text without anything that could begin another line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(text: &str) -> Mail {
        let [host, from, to, date] =
            ["lb1", "lb@example.com", "ops@example.com", "Fri, 27 Nov 2026 08:26:17 +0000 (UTC)"].map(str::to_owned);
        Mail { host, from, to, date, text: text.to_owned() }
    }

    /// Has these replies received in pieces of `size` bytes; returns what was sent, and the error if there was one.
    fn held(text: &str, replies: &[u8], size: usize) -> (Vec<String>, Result<(), String>) {
        let (mut conversation, mut sent) = (Conversation::new(&mail(text)), Vec::new());
        for piece in replies.chunks(size).chain([&b""[..]]) {
            match conversation.receive(piece) {
                Ok(Next::Receive) => {}
                Ok(Next::Send(bytes)) => sent.push(String::from_utf8(bytes).unwrap()),
                Ok(Next::Delivered) => return (sent, Ok(())),
                Err(why) => return (sent, Err(why)),
            }
        }
        panic!("the end of the connection was passed over");
    }

    const REPLIES: &str = "220 mail\r\n250-mail\r\n250 SIZE\r\n250 ok\r\n250 ok\r\n354 go\r\n250 queued\r\n221 bye\r\n";

    #[test]
    fn a_mail_is_delivered_however_the_replies_are_cut() {
        // Each piece holds a reply at most, as from a server that waits for each command.
        for size in 1..=8 {
            let (sent, result) = held("Server b/s is DOWN", REPLIES.as_bytes(), size);
            assert_eq!(result, Ok(()), "in pieces of {size}");
            assert_eq!(
                sent,
                [
                    "HELO lb1\r\n",
                    "MAIL FROM:<lb@example.com>\r\n",
                    "RCPT TO:<ops@example.com>\r\n",
                    "DATA\r\n",
                    "From: lb@example.com\r\nTo: ops@example.com\r\nDate: Fri, 27 Nov 2026 08:26:17 +0000 (UTC)\r\n\
                     Subject: [HAProxy Alert] Server b/s is DOWN\r\n\r\nServer b/s is DOWN\r\n\r\n.\r\n",
                    "QUIT\r\n",
                ]
            );
        }
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_a_field_or_an_end() {
        let (sent, _) = held(".\r\nBcc: all@example.com\r\n.\r\nRSET", REPLIES.as_bytes(), 4);
        let message = &sent[4];
        assert_eq!(message.matches("\r\n.\r\n").count(), 1, "{message}");
        assert!(!message.contains("\nBcc") && message.contains("\r\n\r\n..  Bcc: all@example.com"), "{message}");
    }

    #[test]
    fn a_mail_server_that_refuses_leaves_or_talks_too_much_is_an_error() {
        assert_eq!(held("t", b"554 go away\r\n", 4).1, Err("it replied '554 go away'".to_owned()));
        assert_eq!(
            held("t", b"220 m\r\n250 m\r\n550 who?\x1b[2J\r\n", 7).1,
            Err("it replied '550 who? [2J'".to_owned())
        );
        assert_eq!(held("t", b"220 m\r\n", 4).1, Err("the connection was closed".to_owned()));
        assert_eq!(held("t", &[b'2'; 5000], 100).1, Err("its reply is too long".to_owned()));
        assert_eq!(held("t", &b"220-\r\n".repeat(1000), 6).1, Err("its reply is too long".to_owned()));
    }
}
