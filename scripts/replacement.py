#!/usr/bin/env python3
"""How long clients wait when the worker is killed: penstock's master replaces it, HAProxy's ends the service.

Eight clients make a connection and a request each, over and over, over TLS. Each round kills the worker with SIGKILL. The figure is the
time from the kill to the first answer on a connection that was made after it; beside it, how many requests failed, and how many
connections were refused, which a client sees as a service that is down. Writes docs/measurements/replacement.md; --check
writes nothing, and fails where a connection was refused by penstock.

    scripts/replacement.py [--rounds N] [--check]       after make release; PENSTOCK_BIN names another penstock
"""

import argparse
import os
import pathlib
import signal
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time

from library.figures import machine, middle, resident_kib, write_page
from library.servers import PROGRAMS, TREE, Running, certificate, free_port

CONFIG = """\
global
    nbthread 1
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 5s
frontend f
    bind 127.0.0.1:{port} ssl crt {cert}
    http-request return status 200 content-type text/plain string ok
"""
CLIENTS = 8
# How long a worker serves before it is killed, so that it does not count as one that fails.
SERVES_S = 1.5
# What a client waits at most.
PATIENCE_S = 5


class Crowd:
    """Clients that ask until they are told to end; for each request when its connection began, when it was answered, and how it failed."""

    def __init__(self, port: int) -> None:
        self.port, self.going = port, True
        self.requests: list[tuple[float, float, str | None]] = []
        self.threads = [threading.Thread(target=self.ask) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while self.going:
            begun, failed = time.monotonic(), None
            try:
                with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as plain, context.wrap_socket(plain) as tls:
                    tls.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                    if not tls.recv(4096).startswith(b"HTTP/1.1 200"):
                        failed = "no answer"
            except OSError as error:
                failed = "refused" if isinstance(error, ConnectionRefusedError) else type(error).__name__
                if failed == "refused":
                    time.sleep(0.01)
            self.requests.append((begun, time.monotonic(), failed))

    def end(self) -> None:
        self.going = False
        for thread in self.threads:
            thread.join()


def children(pid: int) -> list[int]:
    found = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def measure(folder: pathlib.Path, name: str, rounds: int) -> tuple[list[float], int, int, bool, str]:
    """Milliseconds to the first answer for each kill, failed requests, refused connections, whether the service goes on, and the memory of master
    and worker before the first kill and after the last."""
    port = free_port()
    config = folder / f"{name}.cfg"
    config.write_text(CONFIG.format(port=port, cert=folder / "rsa2048.pem"))
    waits, goes_on = [], True
    with Running([PROGRAMS[name], "-W", "-f", config], config.with_suffix(".out"), cwd=folder) as master:
        master.wait_listening(port)
        time.sleep(SERVES_S)
        crowd = Crowd(port)
        time.sleep(SERVES_S)
        memory = lambda: "/".join(str(resident_kib(pid)) for pid in (master.pid, *children(master.pid)))
        before = after = memory()
        for _ in range(rounds):
            time.sleep(SERVES_S)
            workers = children(master.pid)
            if len(workers) != 1:
                sys.exit(f"{name} has {len(workers)} workers: {master.said()}")
            killed = time.monotonic()
            os.kill(workers[0], signal.SIGKILL)
            answered = None
            while answered is None and time.monotonic() < killed + PATIENCE_S:
                time.sleep(0.02)
                later = (end for begun, end, failed in list(crowd.requests) if begun > killed and failed is None)
                answered = min(later, default=None)
            if answered is None:
                goes_on = False
                break
            waits.append((answered - killed) * 1000)
        if goes_on:
            time.sleep(SERVES_S)
            after = memory()
        crowd.end()
    failed = [why for _, _, why in crowd.requests if why is not None]
    return waits, len(failed), failed.count("refused"), goes_on, f"{before}, {after}" if goes_on else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows, rounds = [], {}
    with tempfile.TemporaryDirectory(prefix="penstock-replacement-") as name:
        folder = pathlib.Path(name)
        certificate(folder)
        for program in ("haproxy", "penstock"):
            waits, failed, refused, goes_on, memory = measure(folder, program, options.rounds if program == "penstock" else 1)
            after = middle(waits, 0) if goes_on else f"none within {PATIENCE_S} s: the service has ended"
            late = f"{statistics.quantiles(waits, n=20)[-1]:.0f}" if len(waits) > 1 else ""
            rows.append(f"| {program} | {max(len(waits), 1)} | {after} | {late} | {failed - refused} | {refused} | {memory} |")
            rounds[program] = waits
            if options.check and program == "penstock" and (refused or not goes_on):
                sys.exit(f"{refused} connections were refused, and the service {'goes on' if goes_on else 'has ended'}")
    table = ["| program | kills | ms to the first answer | 95 of 100 within, ms | requests in flight that failed | connections refused | KiB of master/worker before, after |",
             "|---|---|---|---|---|---|---|", *rows]
    print("\n".join(table))
    if options.check:
        return
    lines = ["# A worker that is killed", "",
             f"`scripts/replacement.py --rounds {options.rounds}`: {CLIENTS} clients make a TLS connection and a request each, over and over; the only worker is",
             "killed (SIGKILL), and the time counts from there to the first answer on a connection that was made afterwards. Clients and server",
             "share the machine. Median (range).", "", *table, "", "| | |", "|---|---|",
             *(f"| {what} | {value} |" for what, value in machine())]
    write_page(TREE / "docs/measurements/replacement.md", lines, ["replacement", "machine"], {"ms": rounds})


if __name__ == "__main__":
    main()
