//! Reads the metrics of a process over HTTP, with one request per connection.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

/// The address of a process's metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The host and port.
    host: String,
    path: String,
}

/// How long to wait for an answer before a process is shown as silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer, in bytes: more than the metrics of ten thousand servers.
const ANSWER_MAX: u64 = 64 << 20;

impl Address {
    /// Parses `[http://]HOST[:PORT][/PATH]`; the default path is `/metrics`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn parse(text: &str) -> Result<Address, String> {
        if text.starts_with("https://") {
            return Err("metrics are read over http: let them be served on a loopback address".into());
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (host, path) = match rest.split_once('/') {
            Some((host, path)) => (host, format!("/{path}")),
            None => (rest, "/metrics".into()),
        };
        let path = if path == "/" { "/metrics".into() } else { path };
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == '@';
        if host.is_empty() || host.contains(odd) || path.contains(odd) {
            return Err(format!("'{text}' is no address; write http://HOST:PORT/metrics"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Address { host: if has_port { host.to_owned() } else { format!("{host}:80") }, path })
    }

    /// Fetches the metrics.
    ///
    /// # Errors
    /// A sentence for the user, if there is no answer, or one that is not metrics.
    pub fn fetch(&self) -> Result<String, String> {
        let failed = |e: std::io::Error| format!("cannot read {self}: {e}");
        let until = Instant::now() + PATIENCE;
        let addresses: Vec<_> = self.host.to_socket_addrs().map_err(failed)?.collect();
        let mut stream = Err(std::io::ErrorKind::NotFound.into());
        for address in addresses {
            stream = TcpStream::connect_timeout(&address, PATIENCE);
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream.map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let request = format!("GET {} HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n", self.path, self.host);
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        let mut chunk = [0; 16 * 1024];
        // One time limit for the whole answer, however slowly it arrives.
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("cannot read {self}: it does not answer"));
            }
            stream.set_read_timeout(Some(left)).map_err(failed)?;
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => answer.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(failed(e)),
            }
            if answer.len() as u64 > ANSWER_MAX {
                return Err(format!("cannot read {self}: more than {ANSWER_MAX} bytes"));
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{self} does not speak HTTP"))?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if status != "200" {
            return Err(format!(
                "{self} answers {status}; a frontend serves metrics with \
                 'http-request use-service prometheus-exporter if {{ path {} }}'",
                self.path
            ));
        }
        Ok(body.to_owned())
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.host, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn addresses_are_completed_or_refused() {
        for (text, expected) in [
            ("127.0.0.1:8404", "http://127.0.0.1:8404/metrics"),
            ("http://host/", "http://host:80/metrics"),
            ("http://[::1]:9/m?scope=global", "http://[::1]:9/m?scope=global"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), expected);
        }
        for text in ["", "https://host", "http:// x", "u:p@host", "h/a b"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_answer_is_its_body_and_a_refusal_says_what_to_configure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let answers = ["HTTP/1.0 200 OK\r\n\r\na 1\n", "HTTP/1.1 503 Service Unavailable\r\n\r\n", "SSH-2.0\r\n"];
        let serving = std::thread::spawn(move || {
            for answer in answers {
                let mut stream = listener.accept().unwrap().0;
                let _ = stream.read(&mut [0; 1024]);
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(address.fetch().unwrap(), "a 1\n");
        assert!(address.fetch().unwrap_err().contains("prometheus-exporter"));
        assert!(address.fetch().unwrap_err().contains("does not speak HTTP"));
        serving.join().unwrap();
        assert!(address.fetch().unwrap_err().contains("cannot read"));
    }
}
