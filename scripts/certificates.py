#!/usr/bin/env python3
"""Many certificates: how long penstock and HAProxy take to load them, in turn, and what clients of established connections wait while some of
them are replaced.

Loading is a check (-c) of a configuration with `bind ... ssl crt DIRECTORY`, by wall and by CPU time. For the second figure three clients, each on one TLS
connection, send a request a millisecond after each answer, in phases without commits (A) and with one each 5 ms (B): A B A B A B. Writes
docs/measurements/certificate-changes.md; --check writes nothing, and fails where the load takes more than a twentieth of HAProxy's CPU time
or a request fails.

    scripts/certificates.py [--count N] [--loads N] [--phases N] [--seconds N] [--check]       PENSTOCK_BIN names another penstock
"""

import argparse
import datetime
import pathlib
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from library.figures import machine, middle, resident_kib, write_page
from library.servers import PROGRAMS, TREE, Running, free_port

CONFIG = """\
global
    nbthread {threads}
    stats socket {folder}/{name}.sock level admin
defaults
    mode http
    timeout client 30s
    timeout server 30s
    timeout connect 5s
frontend f
    bind 127.0.0.1:{port} ssl crt {folder}/certificates
    http-request return status 200 content-type text/plain string ok
"""
CLIENTS = 3
# Between two commits.
PAUSE_S = 0.005


def made(number: int) -> str:
    """A certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"site{number}.example")])
    today = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.DNSName(f"site{number}.example"), x509.DNSName(f"www.site{number}.example")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), today, today + datetime.timedelta(30))
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return (signed.public_bytes(serialization.Encoding.PEM) + private).decode()


def cpu_s() -> float:
    """CPU time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def load(program: str, config: pathlib.Path) -> tuple[float, float]:
    """Wall and CPU time of one check."""
    begun, before = time.monotonic(), cpu_s()
    done = subprocess.run([PROGRAMS[program], "-c", "-f", config], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program}: {done.stdout}{done.stderr}")
    return time.monotonic() - begun, cpu_s() - before


class Client(threading.Thread):
    """One connection, and how long each answer on it took, by phase."""

    def __init__(self, port: int, phases: int) -> None:
        super().__init__()
        self.port, self.phase, self.going = port, -1, True
        self.waits: list[list[float]] = [[] for _ in range(phases)]
        self.failed: str | None = None

    def run(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 20)) as client:
                while self.going:
                    phase, begun = self.phase, time.perf_counter()
                    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                    if not client.recv(4096).startswith(b"HTTP/1.1 200"):
                        raise OSError("no 200")
                    if phase >= 0:
                        self.waits[phase].append((time.perf_counter() - begun) * 1000)
                    time.sleep(0.001)
        except OSError as error:
            self.failed = str(error)


def say(path: pathlib.Path, command: str) -> str:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        s.sendall(command.encode() + b"\n")
        s.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: s.recv(65536), b"")).decode()


def commits(path: pathlib.Path, file: pathlib.Path, seconds: float) -> int:
    pem, until, done = file.read_text(), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        begun = time.monotonic()
        say(path, f"set ssl cert {file} <<\n{pem}\n")
        answer = say(path, f"commit ssl cert {file}")
        if "Success!" not in answer:
            sys.exit(f"not committed: {answer!r}")
        done += 1
        time.sleep(max(0.0, PAUSE_S - (time.monotonic() - begun)))
    return done


def percentile(waits: list[float], percent: float) -> float:
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * percent / 100))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000, help="certificates")
    parser.add_argument("--loads", type=int, default=3, help="loads of each program")
    parser.add_argument("--phases", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10, help="length of a phase")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-certificates-") as name:
        folder = pathlib.Path(name)
        (folder / "certificates").mkdir()
        for number in range(options.count):
            (folder / f"certificates/{number:06}.pem").write_text(made(number))
        configs, port = {}, free_port()
        for program in ("penstock", "haproxy"):
            configs[program] = folder / f"{program}.cfg"
            configs[program].write_text(CONFIG.format(folder=folder, name=program, port=port, threads=2))
        times: dict[str, list[tuple[float, float]]] = {"penstock": [], "haproxy": []}
        for _ in range(options.loads):
            for program, measured in times.items():
                measured.append(load(program, configs[program]))
                print(program, measured[-1], flush=True)
        loads = ["| program | n | wall s: median (range) | CPU s: median (range) |", "|---|---|---|---|"]
        for program, measured in times.items():
            wall, cpu = zip(*measured)
            loads.append(f"| {program} | {len(measured)} | {middle(wall, 2)} | {middle(cpu, 2)} |")
        medians = {program: statistics.median(cpu for _, cpu in measured) for program, measured in times.items()}
        share = medians["penstock"] / medians["haproxy"]
        with Running([PROGRAMS["penstock"], "-db", "-f", configs["penstock"]], folder / "out", cwd=folder) as server:
            server.wait_listening(port)
            clients = [Client(port, options.phases) for _ in range(CLIENTS)]
            for client in clients:
                client.start()
            time.sleep(2)
            rows, made_commits, memory = [], 0, [resident_kib(server.pid)]
            for phase in range(options.phases):
                for client in clients:
                    client.phase = phase
                count = 0
                if phase % 2:
                    count = commits(folder / "penstock.sock", folder / f"certificates/{options.count // 2:06}.pem", options.seconds)
                else:
                    time.sleep(options.seconds)
                for client in clients:
                    client.phase = -1
                made_commits += count
                memory.append(resident_kib(server.pid))
                waits = [wait for client in clients for wait in client.waits[phase]]
                cells = [f"{statistics.median(waits):.2f}", *(f"{percentile(waits, percent):.2f}" for percent in (99, 99.9)), f"{max(waits):.1f}"]
                rows.append(f"| {'AB'[phase % 2]} {phase // 2 + 1} | {count} | {len(waits)} | {' | '.join(cells)} | {memory[-1] / 1024:.1f} |")
                print(rows[-1], flush=True)
            for client in clients:
                client.going = False
                client.join()
        failed = [client.failed for client in clients if client.failed]
    trips = ["| phase | commits | requests | median ms | p99 ms | p99.9 ms | longest ms | resident MiB after it |", "|---|---|---|---|---|---|---|---|", *rows]
    print("\n".join([*loads, f"CPU time: {share:.3f} of HAProxy's", *trips, f"failed: {failed}"]))
    if options.check or failed:
        if failed or share > 0.05:
            sys.exit(f"failed: {failed}; {share:.3f} of HAProxy's CPU time")
        return
    lines = ["# Certificates loaded and replaced", "",
             f"`scripts/certificates.py --count {options.count} --loads {options.loads} --phases {options.phases} --seconds {options.seconds:g}`: {options.count:,} self-signed ECDSA P-256",
             "certificates of two names each in one directory. Loading is `-c`, the two programs in turn; CPU time is user and system time. Servers, clients",
             "and other work share the machine, so that CPU times say more than wall times.", "", *loads, "",
             f"penstock takes {share:.3f} of HAProxy's CPU time (medians).", "",
             f"{CLIENTS} clients on one TLS connection each send a request a millisecond after each answer; A without commits, B with one certificate set and",
             f"committed each {PAUSE_S * 1000:.0f} ms at most. No request failed. Resident memory before the first phase: {memory[0] / 1024:.1f} MiB.", "", *trips, "",
             "| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in machine())]
    write_page(TREE / "docs/measurements/certificate-changes.md", lines, ["load", "trips", "machine"], {"seconds": times})


if __name__ == "__main__":
    main()
