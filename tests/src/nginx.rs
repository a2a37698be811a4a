//! One nginx for the whole run: a real backend, in the clear, over TLS, and over HTTP/2.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::certificates::Certificates;
use crate::port::{self, Reserved};

struct Nginx {
    plain: Reserved,
    tls: Reserved,
    http2: Reserved,
    child: Mutex<Child>,
    folder: tempfile::TempDir,
}

static NGINX: OnceLock<Result<Nginx, Failure>> = OnceLock::new();

/// Where it listens: `plain`, `tls` (HTTP/1.1) or `h2` (TLS with HTTP/2). Started at the first call.
pub fn address(which: &str) -> Result<SocketAddr, Failure> {
    let nginx = NGINX.get_or_init(start).as_ref().map_err(Clone::clone)?;
    match which {
        "" | "plain" => Ok(nginx.plain.address),
        "tls" => Ok(nginx.tls.address),
        "h2" => Ok(nginx.http2.address),
        _ => Err(format!("nginx has no listener `{which}`")),
    }
}

/// Ends it: a static is never dropped.
pub fn stop() {
    if let Some(Ok(nginx)) = NGINX.get() {
        let mut child = nginx.child.lock().expect("no holder of this lock panics");
        let _ = child.kill();
        let _ = child.wait();
        let _ = std::fs::remove_dir_all(nginx.folder.path());
    }
}

fn start() -> Result<Nginx, Failure> {
    let failed = |e: std::io::Error| format!("nginx: {e}");
    let folder = tempfile::Builder::new().prefix("penstock-nginx-").tempdir().map_err(failed)?;
    let reserve = || Reserved::loopback().map_err(failed);
    let (plain, tls, http2) = (reserve()?, reserve()?, reserve()?);
    let certificates = Certificates::shared();
    let root = folder.path().join("www");
    std::fs::create_dir(&root).map_err(failed)?;
    for (name, size) in [("1k", 1 << 10), ("100k", 100 << 10), ("1m", 1 << 20), ("8m", 8 << 20)] {
        std::fs::write(root.join(name), crate::origin::pattern(size)).map_err(failed)?;
    }
    let config = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; server_tokens off; client_max_body_size 64m; client_body_temp_path body;
    proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    server {{
        listen {} reuseport;
        listen {} reuseport ssl;
        listen {} reuseport ssl http2;
        ssl_certificate {cert}; ssl_certificate_key {cert};
        root www; etag off;
        location = /small {{ add_header X-Protocol $server_protocol; add_header X-Sni \"$ssl_server_name\"; return 200 \"nginx\\n\"; }}
        location = /upload {{ add_header X-Length $content_length; return 200 \"taken\\n\"; }}
    }}
}}\n",
        plain.address,
        tls.address,
        http2.address,
        cert = certificates.pem("rsa").display(),
    );
    std::fs::write(folder.path().join("nginx.conf"), config).map_err(failed)?;
    let mut child = Command::new("nginx")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin")
        .arg("-p")
        .arg(folder.path())
        .args(["-e", "error.log", "-c", "nginx.conf"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let end = Instant::now() + Duration::from_secs(10);
    for reserved in [&plain, &tls, &http2] {
        while !port::is_listening(reserved.address.port()) {
            if Instant::now() > end || child.try_wait().is_ok_and(|s| s.is_some()) {
                let log = std::fs::read_to_string(folder.path().join("error.log")).unwrap_or_default();
                return Err(format!("nginx does not listen: {log}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(Nginx { plain, tls, http2, child: Mutex::new(child), folder })
}
