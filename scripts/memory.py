#!/usr/bin/env python3
"""Memory around changes at run time: certificate commits, map commits, and servers added and removed, while clients ask over TLS.

Each kind of change is made in three parts of the same size: what a change leaves behind shows in each of them, what is kept for reuse (by the
allocator, for the largest state so far) in the first alone.

    scripts/memory.py [--count N] [--commits N] [--lines N] [--write]       PENSTOCK_BIN names another penstock than that of target/release

Fails if a request or a command fails, or if the last part of a kind leaves more behind than the allocator's noise.
"""

import argparse
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from library import pages
from library.figures import load_average, now, of_penstock, resident_kib
from library.servers import PROGRAMS, TREE, certificate, free_port

CONFIG = """\
global
    nbthread 2
    stats socket {folder}/admin level admin
    runtime-changes-file {folder}/changes
    tune.cli.max-payload-size 4m
defaults
    mode http
    timeout client 30s
    timeout server 30s
    timeout connect 5s
frontend f
    bind 127.0.0.1:{port} ssl crt {pem}
    http-request return status 200 hdr x %[str(k),map({folder}/m.map)]
backend b
    balance roundrobin
    server s 127.0.0.1:9
"""

PARTS = 3
# What the allocator may keep more after a part than after the one before it.
NOISE_KIB = 4096


class Service:
    """A penstock under load, and what is asked of it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.port = folder, free_port()
        self.pem = certificate(folder, "p256")
        (folder / "m.map").write_text("k v\n")
        (folder / "a.cfg").write_text(CONFIG.format(folder=folder, port=self.port, pem=self.pem))
        self.process = subprocess.Popen([PROGRAMS["penstock"], "-db", "-f", folder / "a.cfg"])
        self.over, self.failed, self.served = threading.Event(), list[str](), 0
        until = time.monotonic() + 30
        while not (folder / "admin").exists():
            if time.monotonic() > until:
                sys.exit("it does not start")
            time.sleep(0.05)
        self.client = threading.Thread(target=self.ask)
        self.client.start()

    def say(self, command: str, wanted: str = "") -> str:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{self.folder}/admin")
            s.sendall(command.encode() + b"\n")
            s.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
        if wanted not in answer:
            sys.exit(f"{command[:80]!r} was answered {answer!r}, not {wanted!r}")
        return answer

    def ask(self) -> None:
        """A new TLS connection for each ten requests."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while not self.over.is_set():
            try:
                with context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), timeout=20)) as client:
                    for _ in range(10):
                        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                        if not client.recv(4096).startswith(b"HTTP/1.1 200 "):
                            raise OSError("no 200")
                        self.served += 1
            except OSError as error:
                self.failed.append(str(error))

    def highest(self) -> int:
        """The highest resident memory since this was last called, in KiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))

    def settled(self) -> int:
        """Resident memory once what is freed later is free."""
        time.sleep(4)
        return resident_kib(self.process.pid)

    def end(self) -> None:
        self.over.set()
        self.client.join()
        self.process.terminate()
        self.process.wait()


def kinds(service: Service, lines: int) -> dict[str, Callable[[int], None]]:
    pem, path = service.pem.read_text(), f"{service.folder}/m.map"

    def commit_certificate(number: int) -> None:
        service.say(f"set ssl cert {service.pem} <<\n{pem}\n", "Transaction ")
        service.say(f"commit ssl cert {service.pem}", "Success!")

    def commit_map(number: int) -> None:
        version = service.say(f"prepare map {path}").split(":")[1].strip()
        text = "".join(f"key-{at} {number}\n" for at in range(lines - 1))
        service.say(f"add map @{version} {path} <<\nk {number}\n{text}")
        service.say(f"commit map @{version} {path}")
        service.say(f"get map {path} k", f'value="{number}"')

    def server(number: int) -> None:
        service.say(f"add server b/x{number} 127.0.0.1:9", "New server registered")
        service.say(f"set server b/x{number} weight 7")
        service.say(f"del server b/x{number}", "Server deleted")

    return {
        "certificate commits": commit_certificate,
        f"commits of a map of {lines:,} lines": commit_map,
        "servers added and removed": server,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="certificates and servers")
    parser.add_argument("--commits", type=int, default=1000, help="commits of the map")
    parser.add_argument("--lines", type=int, default=100_000, help="lines of the map")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements/memory.md")
    options = parser.parse_args()
    head = ["change", "before, MiB", "highest, MiB", *(f"after part {part} of {PARTS}, MiB" for part in range(1, PARTS + 1)), "time, s"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    grown = []
    with tempfile.TemporaryDirectory(prefix="penstock-memory-") as name:
        service = Service(pathlib.Path(name))
        try:
            for kind, change in kinds(service, options.lines).items():
                count = options.commits if "map" in kind else options.count
                figures, begun = [service.settled()], time.monotonic()
                service.highest()
                for part in range(PARTS):
                    for number in range(part * count // PARTS, (part + 1) * count // PARTS):
                        change(number)
                    figures.append(service.settled())
                took = time.monotonic() - begun - 4 * PARTS
                mib = [f"{kib / 1024:.1f}" for kib in (figures[0], service.highest(), *figures[1:])]
                lines.append("| " + " | ".join([f"{count:,} {kind}", *mib, f"{took:.0f}"]) + " |")
                print(lines[-1], flush=True)
                if figures[-1] - figures[-2] > NOISE_KIB:
                    grown.append(f"{kind}: the last part left {figures[-1] - figures[-2]} KiB behind")
            size = os.path.getsize(f"{name}/changes")
        finally:
            service.end()
    print(f"{service.served} requests, {len(service.failed)} failed; runtime-changes-file: {size / 1024:.0f} KiB")
    print(f"{now()}, {of_penstock()}, {load_average()}")
    if options.write:
        pages.replace(TREE / "docs/measurements/memory.md", "memory", lines)
    if service.failed:
        sys.exit(f"a request failed: {service.failed[0]}")
    if grown:
        sys.exit("; ".join(grown))


if __name__ == "__main__":
    main()
