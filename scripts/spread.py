#!/usr/bin/env python3
"""How evenly workers share connections that do not arrive evenly: with hand-over to the least busy worker, and without.

SO_REUSEPORT gives a connection to a worker by a hash of its addresses. The skew is planted: clients use only local ports
whose hash leads to one and the same worker (asked of penstock itself, by the fetch `thread`). Each round serves the same
load with `tune.listener.multi-queue on` and `off`, in turns. Figures: the busiest worker's part of all CPU time, from
/proc/PID/task/*/schedstat, and the times of requests counted from when they were due.

    scripts/spread.py [--rounds N] [--seconds N] [--workers N]       after cargo build --release
"""

import argparse
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile

from library import pages
from library.figures import cpu_ns_by_thread, load_average, middle, now
from library.servers import LOAD, PROGRAMS, TREE, certificate, free_port, serve

CONFIG = """\
global
    nbthread {workers}
    maxconn 2000
    tune.listener.multi-queue {switch}
defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 5s
frontend f
    bind 127.0.0.1:{port} ssl crt {cert}
    http-request return status 200 hdr X-Thread %[thread]
"""

# name, kind of load, part of all arrivals that hash to one worker, requests a second, client threads
LOADS = [
    ("a new TLS connection for each request, all hashed to one worker", "new", 1.0, 400, 32),
    ("the same, as the hash spreads them", "new", 0.0, 400, 32),
    ("64 kept connections, all hashed to one worker", "keep", 1.0, 4000, 64),
    ("12 kept connections, as the hash spreads them", "keep", 0.0, 4000, 12),
]


def serving(folder, port, workers, switch):
    text = CONFIG.format(workers=workers, switch=switch, port=port, cert=folder / "rsa2048.pem")
    return serve(PROGRAMS["penstock"], folder / f"{switch}.cfg", text, port)


def ports_by_thread(port, wanted):
    """Local ports whose connections the kernel gives to each worker, at least `wanted` to the first one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    found = {}
    for local in range(20000, 32000):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            try:
                s.bind(("127.0.0.1", local))
                s.connect(("127.0.0.1", port))
                tls = context.wrap_socket(s, server_hostname="localhost")
                tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                head = tls.recv(4096).decode()
                tls.close()
            except OSError:
                continue
        thread = head.lower().split("x-thread: ")[1].split("\r\n")[0]
        found.setdefault(thread, []).append(local)
        if sum(map(len, found.values())) >= 2 * wanted and len(min(found.values(), key=len)) >= wanted:
            return found
    sys.exit("too few local ports are free")


def measure(folder, port, workers, switch, load, by_thread, seconds):
    _, kind, planted, rate, threads = load
    first = by_thread[sorted(by_thread)[0]]
    mixed = [port for ports in zip(*by_thread.values()) for port in ports]
    # The mixed ones in an order that has nothing to do with their worker.
    ports = first if planted else sorted(mixed, key=lambda p: (p * 2654435761) & 0xFFFFFFFF)
    ports = ports[: 6 * threads if kind == "new" else threads]
    with serving(folder, port, workers, switch) as server:
        before = cpu_ns_by_thread(server.pid)
        command = [LOAD, "paced", f"127.0.0.1:{port}", kind, rate, seconds, threads, *ports]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            sys.exit(done.stderr)
        used = sorted((spent - before.get(task, 0) for task, spent in cpu_ns_by_thread(server.pid).items()), reverse=True)[:workers]
    p50, p99 = (int(word) / 1000 for word in done.stdout.split())
    return max(used) / sum(used), p50, p99, sum(used) / 1000 / (rate * seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements/spread.md")
    parser.add_argument("--workers", type=int, default=max(2, os.cpu_count() or 2))
    options = parser.parse_args()
    rows = ["| load | hand-over | busiest worker's part of the CPU time, % | p50 ms | p99 ms | CPU µs a request |", "|---|---|---|---|---|---|"]
    print("\n".join(rows), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-spread-") as name:
        folder = pathlib.Path(name)
        certificate(folder)
        port = free_port()
        with serving(folder, port, options.workers, "off"):
            by_thread = ports_by_thread(port, 6 * 32)
        for load in LOADS:
            results = {"on": [], "off": []}
            for number in range(options.rounds):
                for switch in ("on", "off") if number % 2 == 0 else ("off", "on"):
                    results[switch].append(
                        measure(folder, port, options.workers, switch, load, by_thread, options.seconds))
            for switch, label in (("off", "without"), ("on", "with")):
                share, p50, p99, cost = zip(*results[switch])
                percent = [100 * value for value in share]
                rows.append(f"| {load[0]}, {load[3]:,} requests/s | {label} | {middle(percent, 0)} | "
                            f"{middle(p50, 2)} | {middle(p99, 1)} | {middle(cost, 0)} |")
                print(rows[-1], flush=True)
    if options.write:
        pages.replace(TREE / "docs/measurements/spread.md", "spread", rows)
    print(f"\n{now()}, {options.workers} workers, {os.cpu_count()} CPUs shared with the client, n = {options.rounds} rounds of "
          f"{options.seconds} s, {load_average()}")


if __name__ == "__main__":
    main()
