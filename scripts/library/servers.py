"""Servers to measure and test: certificates, ports, penstock and HAProxy by a configuration, an nginx behind them."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
LOAD = TREE / "target/release/penstock-load"
# PENSTOCK_BIN names another penstock, for every program in scripts/.
PROGRAMS = {
    "haproxy": shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin") or "haproxy",
    "penstock": os.environ.get("PENSTOCK_BIN", str(TREE / "target/release/penstock")),
}

KEYS = {
    "rsa2048": ["rsa:2048"],
    "rsa3072": ["rsa:3072"],
    "rsa4096": ["rsa:4096"],
    "p256": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
    "p384": ["ec", "-pkeyopt", "ec_paramgen_curve:secp384r1"],
}

# What requests are measured with.
DEFAULTS = """\
defaults
    mode http
    log global
    option httplog
    timeout connect 5s
    timeout client 300s
    timeout server 60s
"""

NGINX = """\
daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; server_tokens off; etag off; keepalive_requests 100000000; sendfile on; tcp_nopush on;
    client_body_temp_path body; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    server {{ listen {nginx}; root www; }}
}}
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def certificate(folder: pathlib.Path | str, kind: str = "rsa2048", names: str = "DNS:localhost") -> pathlib.Path:
    """A new certificate that signs itself, and its key, in one file: KIND.pem."""
    key, cert = pathlib.Path(folder) / f"{kind}.key", pathlib.Path(folder) / f"{kind}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", *KEYS[kind], "-nodes", "-days", "30", "-subj", "/CN=localhost",
                    "-addext", f"subjectAltName={names}", "-keyout", key, "-out", cert], check=True, capture_output=True)
    cert.write_text(cert.read_text() + key.read_text())
    return cert


def pinned(cpu: int, command: Sequence[Any]) -> list[Any]:
    """Server on one CPU, clients and origin on another, where there are two."""
    if (os.cpu_count() or 1) < 2 or not shutil.which("taskset"):
        return [*command]
    return ["taskset", "-c", str(cpu), *command]


def run(command: Sequence[Any]) -> str:
    """What a client says, beside the servers' CPU; if it fails, so do we."""
    done = subprocess.run(pinned(1, command), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Running:
    """A server in the background; what it says is in a file."""

    def __init__(self, command: Sequence[Any], log: pathlib.Path, cpu: int | None = None, cwd: pathlib.Path | None = None,
                 env: Mapping[str, str] | None = None) -> None:
        self.command, self.log = [str(word) for word in command], log
        with log.open("w") as out:
            # taskset replaces itself by the program, so that the pid is the server's own.
            self.process = subprocess.Popen(self.command if cpu is None else pinned(cpu, self.command), stdout=out, stderr=out, cwd=cwd, env=env)
        self.pid = self.process.pid

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_listening(self, port: int) -> None:
        for _ in range(500):
            if self.has_ended():
                sys.exit(f"{' '.join(self.command)} ended at once: {self.said()}")
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        sys.exit(f"nothing listens on {port}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve(program: pathlib.Path | str, config: pathlib.Path, text: str, port: int, cpu: int | None = None,
          env: Mapping[str, str] | None = None) -> Running:
    """penstock or HAProxy by this configuration, once it listens on `port`; what it says is in CONFIG.out."""
    config.write_text(text)
    server = Running([program, "-db", "-f", config], config.with_suffix(".out"), cpu, config.parent, env)
    server.wait_listening(port)
    return server


class Stage:
    """A folder, and the servers that run in it until `stop`."""

    def __init__(self, folder: pathlib.Path | str) -> None:
        self.folder = pathlib.Path(folder)
        self.running: list[Running] = []

    def serve(self, name: str, text: str, port: int) -> Running:
        """One of PROGRAMS, on the servers' CPU."""
        server = serve(PROGRAMS[name], self.folder / f"{name}.cfg", text, port, cpu=0)
        self.running.append(server)
        return server

    def origin(self, files: Mapping[str, bytes]) -> str:
        """An nginx that serves these files; its address."""
        www = self.folder / "www"
        www.mkdir()
        for name, content in files.items():
            (www / name).write_bytes(content)
        address = free_address()
        (self.folder / "nginx.conf").write_text(NGINX.format(nginx=address))
        command = [shutil.which("nginx") or "/usr/sbin/nginx", "-p", self.folder, "-e", "error.log", "-c", "nginx.conf"]
        server = Running(command, self.folder / "nginx.out", 1, self.folder)
        self.running.append(server)
        server.wait_listening(int(address.split(":")[1]))
        return address

    def stop(self) -> None:
        for server in self.running:
            server.process.terminate()
        for server in self.running:
            server.stop()
