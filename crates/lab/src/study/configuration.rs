//! The configurations that contestants are started with: the same words for HAProxy and penstock, and nginx's own for the
//! same service.

use super::{
    catalogue::{Origin, SIZES, Way},
    contestant::{Contestant, Program},
    orchestration::{self, Inspection},
};
use std::{
    fmt::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// A service, whichever contestant offers it.
#[derive(Clone, Debug)]
pub struct Service {
    /// The address on which the service listens.
    pub listen: SocketAddr,
    /// Certificate and key.
    pub certificate: PathBuf,
    /// Processors, one thread each.
    pub cpus: Vec<u32>,
    /// Connections at once, those to servers not counted.
    pub connections: usize,
    /// The backends and their addresses.
    pub origin: Option<(Origin, SocketAddr)>,
    /// Whether connections are kept after a response.
    pub keep_alive: bool,
    /// What is done with connections.
    pub way: Way,
    /// What a proxy that decrypts needs.
    pub inspection: Option<Inspection>,
}

impl Service {
    /// The configuration of this contestant.
    #[must_use]
    pub fn configuration(&self, contestant: &Contestant, directory: &Path) -> String {
        match contestant.program {
            Program::Penstock | Program::Haproxy => self.haproxy(contestant),
            Program::Squid => orchestration::squid(self, contestant, directory),
            Program::Sslsplit => orchestration::sslsplit(self),
            Program::Nginx => self.nginx(directory),
        }
    }

    fn haproxy(&self, contestant: &Contestant) -> String {
        let mut out = format!("global\n{}", thread_lines(&self.cpus));
        for line in &contestant.global {
            // Writing to a String does not fail.
            let _ = writeln!(out, "    {line}");
        }
        let _ = write!(
            out,
            "    maxconn {}\n    tune.ssl.cachesize 0\ndefaults\n    mode http\n    timeout connect 10s\n    timeout client 60s\n    \
             timeout server 60s\n    option {}\n    backlog 16384\n",
            self.connections + 1000,
            // A tunnel is kept in any case: what is in it ends by itself.
            if self.keep_alive || self.way != Way::Server { "http-keep-alive" } else { "httpclose" },
        );
        if self.way != Way::Server {
            return out + &orchestration::sections(self, &contestant.name);
        }
        let _ = write!(
            out,
            "frontend tls\n    bind {} ssl crt {} alpn http/1.1 no-tls-tickets\n    monitor-uri /handshake\n",
            self.listen,
            self.certificate.display()
        );
        if let Some((kind, address)) = self.origin {
            let tls = if kind == Origin::Encrypted { " ssl verify none" } else { "" };
            let _ = write!(out, "    default_backend files\nbackend files\n    server origin {address}{tls}\n");
        }
        out
    }

    fn nginx(&self, directory: &Path) -> String {
        let mut out = nginx_head(&self.cpus, self.connections * 2 + 1000, directory);
        let keep = if self.keep_alive { "keepalive_timeout 60s" } else { "keepalive_timeout 0" };
        let certificate = self.certificate.display();
        let _ = write!(
            out,
            "    server {{\n        listen {} ssl reuseport backlog=16384;\n        ssl_certificate {certificate};\n        \
             ssl_certificate_key {certificate};\n        ssl_protocols TLSv1.2 TLSv1.3;\n        ssl_session_cache off;\n        \
             ssl_session_tickets off;\n        {keep};\n        location = /handshake {{ return 200 \"\"; }}\n",
            self.listen
        );
        match self.origin {
            None => out.push_str("    }\n}\n"),
            Some((kind, address)) => {
                let scheme = if kind == Origin::Encrypted { "https" } else { "http" };
                let _ = write!(
                    out,
                    "        location / {{\n            proxy_pass {scheme}://origin;\n            proxy_http_version 1.1;\n            \
                     proxy_set_header Connection \"\";\n        }}\n    }}\n    upstream origin {{\n        server {address};\n        \
                     keepalive 256;\n    }}\n}}\n"
                );
            }
        }
        out
    }
}

/// Lines of a `global` section: one pinned thread a processor.
pub(super) fn thread_lines(cpus: &[u32]) -> String {
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    format!("    nbthread {0}\n    cpu-map auto:1/1-{0} {1}\n", cpus.len(), list.join(" "))
}

/// What nginx's file begins with: one pinned worker a processor, its own directory for everything.
fn nginx_head(cpus: &[u32], connections: usize, directory: &Path) -> String {
    let places = cpus.iter().max().map_or(1, |most| *most as usize + 1);
    let mask = |cpu: &u32| (0..places).rev().map(|at| if at == *cpu as usize { '1' } else { '0' }).collect::<String>();
    let masks: Vec<String> = cpus.iter().map(mask).collect();
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let directory = directory.display();
    format!(
        "daemon off;\n{user}worker_processes {};\nworker_cpu_affinity {};\npid {directory}/nginx.pid;\nerror_log {directory}/nginx.log warn;\n\
         worker_rlimit_nofile {};\nevents {{ worker_connections {connections}; }}\nhttp {{\n    access_log off;\n    server_tokens off;\n    \
         sendfile on;\n    tcp_nopush on;\n    keepalive_requests 1000000000;\n    client_body_temp_path {directory}/body;\n    \
         proxy_temp_path {directory}/proxy;\n    fastcgi_temp_path {directory}/fastcgi;\n    uwsgi_temp_path {directory}/uwsgi;\n    \
         scgi_temp_path {directory}/scgi;\n",
        cpus.len(),
        masks.join(" "),
        // A descriptor for each side of a connection.
        connections * 2 + 200
    )
}

/// The backend servers: nginx, in clear text and encrypted, with the files of the studies. With `fresh`, they speak TLS 1.3 too, and resume no session.
#[must_use]
pub fn origin(
    clear: SocketAddr,
    encrypted: SocketAddr,
    certificate: &Path,
    cpus: &[u32],
    connections: usize,
    directory: &Path,
    fresh: bool,
) -> String {
    let mut out = nginx_head(cpus, connections + 1000, directory);
    let (files, certificate) = (directory.join("files"), certificate.display());
    let tickets = if fresh { "        ssl_protocols TLSv1.2 TLSv1.3;\n        ssl_session_tickets off;\n" } else { "" };
    let _ = write!(
        out,
        "    server {{\n        listen {clear} reuseport backlog=16384;\n        listen {encrypted} ssl reuseport backlog=16384;\n        \
         ssl_certificate {certificate};\n        ssl_certificate_key {certificate};\n{tickets}        root {};\n        etag off;\n        \
         location = /empty {{ return 200 \"\"; }}\n        location = /handshake {{ return 200 \"\"; }}\n    }}\n}}\n",
        files.display()
    );
    out
}

/// Writes the files of the studies.
///
/// # Errors
/// A sentence: the disk is full, mostly.
pub fn write_files(directory: &Path) -> Result<(), String> {
    let files = directory.join("files");
    std::fs::create_dir_all(&files).map_err(|e| format!("{}: {e}", files.display()))?;
    for (name, bytes) in SIZES {
        let path = files.join(format!("data_{name}"));
        // Nothing between here and the client compresses; what the bytes are makes no difference.
        std::fs::write(&path, vec![b'x'; bytes as usize]).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        Service {
            listen: "127.0.0.1:8443".parse().unwrap(),
            certificate: "/lab/rsa2048.pem".into(),
            cpus: vec![2, 5],
            connections: 400,
            origin: Some((Origin::Encrypted, "127.0.0.1:8180".parse().unwrap())),
            keep_alive: false,
            way: Way::Server,
            inspection: None,
        }
    }

    fn penstock(global: &[&str]) -> Contestant {
        Contestant {
            name: "penstock-sw".into(),
            doc: String::new(),
            program: Program::Penstock,
            path: "/bin/true".into(),
            version: Vec::new(),
            mode: None,
            global: global.iter().map(|line| (*line).to_owned()).collect(),
            environment: Vec::new(),
            double: false,
            configuration: String::new(),
        }
    }

    #[test]
    fn haproxy_and_penstock_are_pinned_and_close_after_each_response() {
        let text = service().haproxy(&penstock(&["tune.crypto.engine sw"]));
        for line in [
            "    nbthread 2\n    cpu-map auto:1/1-2 2 5\n    tune.crypto.engine sw\n    maxconn 1400\n",
            "    option httpclose\n",
            "    bind 127.0.0.1:8443 ssl crt /lab/rsa2048.pem alpn http/1.1 no-tls-tickets\n",
            "    server origin 127.0.0.1:8180 ssl verify none\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let alone = Service { origin: None, ..service() }.haproxy(&penstock(&[]));
        assert!(!alone.contains("backend"), "{alone}");
    }

    #[test]
    fn nginx_is_pinned_by_masks() {
        let text = service().nginx(Path::new("/lab/nginx"));
        assert!(text.contains("worker_processes 2;\nworker_cpu_affinity 000100 100000;"), "{text}");
        assert!(text.contains("proxy_pass https://origin;") && text.contains("keepalive_timeout 0;"), "{text}");
    }
}
