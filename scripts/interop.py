#!/usr/bin/env python3
"""Other people's clients, on every engine: each asks for a page over TLS 1.2 and 1.3, of an RSA and of an ECDSA certificate, several at
once, so that on lanes their operations come together. The device of `hw` and `hw+sw` is the double of tests/qat-double: every figure of
these is the double's.

    scripts/interop.py [--engine NAME]... [CLIENT...]     clients: openssl gnutls curl python node go java chromium

A client or a double that is not there is skipped, and said to be. Build with `cargo build --release --bin penstock` and
`cargo build --release -p penstock-qat-double` first.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from library.servers import PROGRAMS, TREE, certificate, free_port, serve

ENGINES = ["native", "sw", "hw", "hw+sw"]
DOUBLE = TREE / "target/release/libpenstock_qat_double.so"
AT_ONCE = 6
READY = "Service ready"

CONFIG = """\
global
    nbthread 1
    tune.crypto.engine {engine}
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend tls
    bind 127.0.0.1:{rsa} ssl crt {folder}/rsa2048.pem alpn h2,http/1.1
    bind 127.0.0.1:{ecdsa} ssl crt {folder}/p256.pem alpn h2,http/1.1
    monitor-uri /alive
frontend metrics
    bind 127.0.0.1:{metrics}
    http-request use-service prometheus-exporter if {{ path /metrics }}
"""

PYTHON = """\
import socket, ssl, sys
port, version = int(sys.argv[1]), {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[sys.argv[2]]
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.minimum_version = context.maximum_version = version
with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as s:
    s.sendall(b"GET /alive HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    while data := s.recv(4096):
        print(data.decode())
"""

NODE = """\
const https = require('https'), [port, version] = process.argv.slice(2);
https.get({host: '127.0.0.1', port, path: '/alive', servername: 'localhost', rejectUnauthorized: false,
           minVersion: 'TLSv' + version, maxVersion: 'TLSv' + version},
          answer => { answer.pipe(process.stdout); }).on('error', e => { console.error(e); process.exit(1); });
"""

GO = """\
package main

import ("crypto/tls"; "io"; "net/http"; "os"; "time")

func main() {
	version := uint16(tls.VersionTLS12)
	if os.Args[2] == "1.3" { version = tls.VersionTLS13 }
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, ServerName: "localhost"}}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	answer, err := client.Get("https://127.0.0.1:" + os.Args[1] + "/alive")
	if err != nil { println(err.Error()); os.Exit(1) }
	io.Copy(os.Stdout, answer.Body)
}
"""

JAVA = """\
import java.io.*;
import java.security.cert.X509Certificate;
import javax.net.ssl.*;

public class Client {
    public static void main(String[] args) throws Exception {
        TrustManager all = new X509ExtendedTrustManager() {
            public void checkClientTrusted(X509Certificate[] c, String a) {}
            public void checkServerTrusted(X509Certificate[] c, String a) {}
            public void checkClientTrusted(X509Certificate[] c, String a, java.net.Socket s) {}
            public void checkServerTrusted(X509Certificate[] c, String a, java.net.Socket s) {}
            public void checkClientTrusted(X509Certificate[] c, String a, SSLEngine e) {}
            public void checkServerTrusted(X509Certificate[] c, String a, SSLEngine e) {}
            public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
        };
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, new TrustManager[] { all }, null);
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket("127.0.0.1", Integer.parseInt(args[0]));
        socket.setEnabledProtocols(new String[] { "TLSv" + args[1] });
        OutputStream out = socket.getOutputStream();
        out.write("GET /alive HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n".getBytes());
        out.flush();
        socket.getInputStream().transferTo(System.out);
    }
}
"""

FAULTS = ["redone_total", "wrong_total", "late_total", "benched_total"]
REQUEST = "GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Clients:
    """How each client is run: a command and its input, for a port and a version of TLS; None where it is not installed."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def openssl(self):
        def one(port, version):
            group = {"1.2": "P-256", "1.3": "X25519"}[version]
            return ["openssl", "s_client", "-quiet", "-ign_eof", "-connect", f"127.0.0.1:{port}", "-groups", group,
                    "-tls" + version.replace(".", "_")], REQUEST
        return shutil.which("openssl") and one

    def gnutls(self):
        def one(port, version):
            priority = f"NORMAL:-VERS-ALL:+VERS-TLS{version}"
            return ["gnutls-cli", "--insecure", "--sni-hostname", "localhost", "--priority", priority, "-p", str(port),
                    "127.0.0.1"], REQUEST
        return shutil.which("gnutls-cli") and one

    def curl(self):
        def one(port, version):
            return ["curl", "-sSk", "--max-time", "30", f"--tlsv{version}", "--tls-max", version,
                    f"https://127.0.0.1:{port}/alive"], ""
        return shutil.which("curl") and one

    def python(self):
        program = self.write("client.py", PYTHON)
        return lambda port, version: ([sys.executable, program, str(port), version], "")

    def node(self):
        program = self.write("client.js", NODE)
        return shutil.which("node") and (lambda port, version: (["node", program, str(port), version], ""))

    def go(self):
        if not shutil.which("go"):
            return None
        source, program = self.write("client.go", GO), str(self.folder / "client-go")
        subprocess.run(["go", "build", "-o", program, source], check=True, env={**os.environ, "GOFLAGS": "-mod=mod"})
        return lambda port, version: ([program, str(port), version], "")

    def java(self):
        if not shutil.which("javac"):
            return None
        subprocess.run(["javac", "-d", str(self.folder), self.write("Client.java", JAVA)], check=True)
        return lambda port, version: (["java", "-cp", str(self.folder), "Client", str(port), version], "")

    def chromium(self):
        program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)

        def one(port, version):
            # Nothing in the browser asks for less than its best version: TLS 1.3, X25519MLKEM768 where it knows that.
            home = tempfile.mkdtemp(dir=self.folder)
            return [program, "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--dump-dom",
                    f"--user-data-dir={home}", f"https://127.0.0.1:{port}/alive"], ""
        return program and one


NAMES = ["openssl", "gnutls", "curl", "python", "node", "go", "java", "chromium"]


class Double:
    """A directory in which libqat seems to be installed: a device of two instances, each answering four requests at a time in 100 µs."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        shutil.copy(DOUBLE, folder / "libqat.so.4")
        # One file under both names is loaded once, as one state.
        os.link(folder / "libqat.so.4", folder / "libusdm.so.0")
        (folder / "commands").write_text("service_us 100\n")

    def complaints(self):
        """What it has seen that a real library would not have forgiven."""
        log = (self.folder / "log").read_text().splitlines()
        wrong = [line for line in log if line.startswith("violation")]
        return wrong + ([] if any(line.startswith("stop, 0 unanswered") for line in log) else ["it was not stopped, or not in order"])


def ask(command, text):
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "no answer within two minutes"
    said = done.stdout + done.stderr
    return "" if READY in said else f"{' '.join(command)}\n{said[-800:]}"


def counters(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for line in lines:
        if line.startswith(("penstock_engine_", "penstock_device_")) and line.count(" ") == 1:
            name = line.split("{")[0].split(" ")[0].removeprefix("penstock_engine_").removeprefix("penstock_")
            found[name] = found.get(name, 0) + float(line.rsplit(" ", 1)[1])
    return found


def gauge(port, series):
    """One value, by its name with its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(series + " "):
                return float(line.rsplit(" ", 1)[1])
    sys.exit(f"there is no {series}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=" ".join(NAMES))
    options = parser.parse_args()
    failed, skipped = 0, []
    with tempfile.TemporaryDirectory(prefix="penstock-interop-") as folder:
        folder = pathlib.Path(folder)
        for kind in ("rsa2048", "p256"):
            certificate(folder, kind, "DNS:localhost,IP:127.0.0.1")
        clients = Clients(folder)
        runs = {name: getattr(clients, name)() for name in options.clients or NAMES}
        skipped = [f"{name} is not installed" for name, run in runs.items() if not run]
        for engine in options.engine or ENGINES:
            double = None
            if engine.startswith("hw"):
                if not DOUBLE.exists():
                    skipped.append(f"{engine}: {DOUBLE} is not built")
                    continue
                double = Double(folder / f"libqat-{engine}")
            ports = {name: free_port() for name in ("rsa", "ecdsa", "metrics")}
            environment = {**os.environ, "LD_LIBRARY_PATH": str(double.folder)} if double else None
            text = CONFIG.format(engine=engine, folder=folder, **ports)
            server = serve(PROGRAMS["penstock"], folder / f"{engine}.cfg", text, ports["rsa"], env=environment)
            # Beside a crowd, or each client would be alone with its handshake and would not wait for others.
            crowd = subprocess.Popen([PROGRAMS["penstock"], "bench", "load", f"https://127.0.0.1:{ports['ecdsa']}/", "--mode", "handshake", "-c", "4",
                                      "-d", "1h", "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for name, run in runs.items():
                if not run:
                    continue
                at_once = 1 if name == "chromium" else AT_ONCE
                for version in ["1.3"] if name == "chromium" else ["1.2", "1.3"]:
                    for cert in ("rsa", "ecdsa"):
                        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                            said = list(pool.map(lambda _: ask(*run(ports[cert], version)), range(at_once)))
                        bad = [text for text in said if text]
                        failed += len(bad)
                        print(f"{engine:8} {name:9} TLS {version} {cert:6} {at_once - len(bad)} of {at_once}", flush=True)
                        if bad:
                            print(bad[0])
            crowd.kill()
            crowd.wait()
            time.sleep(0.5)
            counted = counters(ports["metrics"])
            summary = {name: int(counted.get(name, 0)) for name in
                       ["operations_total", "batches_total", *FAULTS]}
            given = int(counted.get("device_operations_total", 0))
            print(f"{engine:8} {summary}" + (f"; {given} by the device double" if double else ""))
            if double and not given:
                failed += 1
                print(f"{engine}: the device was given nothing")
            # The double computes on this machine's processors: where those are busy it is late, and the library stands in.
            excused = ["late_total", "redone_total", "benched_total"] if double and not summary["wrong_total"] else []
            failed += sum(count for name, count in summary.items() if name in FAULTS and name not in excused)
            if server.has_ended():
                failed += 1
                print(f"{engine} ended: {server.said()}")
            server.stop()
            for complaint in double.complaints() if double else []:
                failed += 1
                print(f"{engine}: the device double: {complaint}")
    for what in skipped:
        print(f"SKIPPED: {what}")
    print("every client was served" if not failed else f"{failed} failure(s)")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
