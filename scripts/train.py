#!/usr/bin/env python3
"""Runs an instrumented penstock under a typical load, so that the profile it writes is that of a load balancer: full and resumed
handshakes of both TLS versions and each kind of key, requests over HTTP/1.1 and HTTP/2 with rules and logs, large bodies, also in clear
text, on every engine that this CPU supports. The origin server is a second frontend of the same process. Used by scripts/release.sh.

    scripts/train.py FILE        FILE is the instrumented penstock; LLVM_PROFILE_FILE says where it writes its profile
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

from library.servers import certificate, free_address, serve

CONFIG = """\
global
    nbthread 1
    log {log} local0
    tune.crypto.engine {engine}
defaults
    mode http
    log global
    option httplog
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend site
    bind {tls} ssl crt {rsa} crt {ecdsa} alpn h2,http/1.1
    bind {clear}
    acl api path_beg /api/
    http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}
    http-request deny if {{ path_sub /.. }} or {{ req.hdr_cnt(host) gt 1 }}
    http-response set-header Strict-Transport-Security max-age=16000000
    option forwardfor
    use_backend api if api
    default_backend site
backend site
    balance roundrobin
    cookie SRV insert indirect nocache
    server one {origin_clear} check cookie one
    server two {origin_clear} check cookie two
backend api
    balance leastconn
    server one {origin} ssl verify none alpn http/1.1 sni req.hdr(host)
frontend origin
    bind {origin} ssl crt {rsa}
    bind {origin_clear}
    no log
    http-request return status 200 content-type application/octet-stream file {large} if {{ path /large }}
    http-request return status 200 content-type text/plain string "{text}"
"""


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind(("127.0.0.1", 0))
    with tempfile.TemporaryDirectory(prefix="penstock-train-") as folder:
        folder = pathlib.Path(folder)
        (folder / "large").write_bytes(os.urandom(1 << 20))
        files = {"rsa": certificate(folder, "rsa2048"), "ecdsa": certificate(folder, "p256"), "large": folder / "large"}
        for engine in ("native", "auto"):
            serve_and_load(program, folder, engine, {**files, "log": f"127.0.0.1:{sink.getsockname()[1]}"})


def serve_and_load(program, folder, engine, values):
    tls, clear, origin, origin_clear = (free_address() for _ in range(4))
    text = CONFIG.format(tls=tls, clear=clear, origin=origin, origin_clear=origin_clear, engine=engine, text="x" * 200, **values)
    server = serve(program, folder / f"{engine}.cfg", text, int(tls.split(":")[1]))
    try:
        rsa, ecdsa = ["--signature", "rsa_pss_rsae_sha256"], ["--signature", "ecdsa_secp256r1_sha256"]

        def load(address, path, *arguments):
            command = [program, "bench", "load", f"{address}{path}", "--sni", "localhost", "--quiet", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")

        site = f"https://{tls}"
        for version in ("1.2", "1.3"):
            for key in (rsa if version == "1.3" else ["--suite", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], ecdsa):
                for group in ("x25519", "p256"):
                    load(site, "/", "--mode", "handshake", "--tls", version, "--group", group, *key, "-c", "32", "-n", "300")
            load(site, "/", "--mode", "request", "--resume", "--tls", version, "-c", "8", "-n", "300")
        load(site, "/", "--mode", "handshake", "--group", "x25519mlkem768", "-c", "32", "-n", "300")
        load(site, "/page?q=1", "-H", "Cookie: SRV=one", "-H", "User-Agent: Mozilla/5.0", "-c", "64", "-n", "20000")
        load(site, "/api/item", "-c", "16", "-n", "5000")
        load(site, "/page", "--http2", "--streams", "8", "-c", "16", "-n", "20000")
        load(site, "/large", "--mode", "download", "-c", "8", "-n", "200")
        load(f"http://{clear}", "/page", "-c", "64", "-n", "10000")
        # After a drain, main returns, and the profile is written.
        server.process.send_signal(signal.SIGUSR1)
        if server.process.wait(timeout=60) != 0:
            sys.exit(f"{program} ended with {server.process.returncode}:\n{server.said()}")
    finally:
        server.process.kill()


if __name__ == "__main__":
    main()
