#!/usr/bin/env python3
"""A million handshakes of every kind on the engine `sw`, one client in a hundred vanishing at some point of its own: nothing may leak, no
stack may stay behind, no signature may fail.

    scripts/endurance.py [--handshakes N] [--clients N] [--seed N]

Build with `cargo build --release -p penstock -p penstock-tests --bins` first.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import interop
from library.figures import resident_kib
from library.servers import LOAD, PROGRAMS, certificate, free_port, serve

CONFIG = """\
global
    nbthread 2
    maxconn 9500
    tune.crypto.engine auto
    tune.ssl.cachesize 1000
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend tls
{binds}
    monitor-uri /alive
frontend metrics
    bind 127.0.0.1:{metrics}
    http-request use-service prometheus-exporter if {{ path /metrics }}
"""
KINDS = ["rsa2048", "rsa3072", "p256", "p384"]
# Parts of the whole after which memory is looked at; it may grow by so much from the second of them, when caches are full, to
# the last.
PARTS = 10
GROWTH = 1.10


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handshakes", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="penstock-endurance-") as folder:
        folder = pathlib.Path(folder)
        ports = {}
        for kind in KINDS:
            certificate(folder, kind)
            ports[kind] = free_port()
        metrics = free_port()
        binds = "\n".join(f"    bind 127.0.0.1:{port} ssl crt {folder}/{name}.pem" for name, port in ports.items())
        server = serve(PROGRAMS["penstock"], folder / "penstock.cfg", CONFIG.format(binds=binds, metrics=metrics), metrics)
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        problems, sizes, began = [], [], time.monotonic()
        for part in range(PARTS):
            command = [str(LOAD), "mixed", addresses, str(options.handshakes // PARTS), str(options.clients), str(options.seed + part)]
            done = subprocess.run(command, capture_output=True, text=True)
            sizes.append(resident_kib(server.pid))
            print(f"{part + 1} of {PARTS}: {done.stdout.strip()}; {sizes[-1]} KiB; {time.monotonic() - began:.0f} s", flush=True)
            if done.returncode or " 0 failed" not in done.stdout:
                problems.append(done.stderr[-2000:] or "the load ended without a word")
        # Those that vanished last are noticed within their deadlines.
        time.sleep(2)
        found = interop.counters(metrics)
        wanted = {"operations_total": None, "batches_total": None, "wrong_total": 0, "late_total": 0, "redone_total": 0, "benched_total": 0,
                  "waiting": 0, "turned_away_total": 0}
        for name, want in wanted.items():
            value = int(found.get(name, 0))
            print(f"{name} {value}")
            if want is not None and value != want:
                problems.append(f"{name} is {value}")
        stuck = interop.gauge(metrics, 'penstock_engine_stacks{state="used"}')
        if stuck:
            problems.append(f"{stuck:.0f} stacks are still in use")
        open_now = interop.gauge(metrics, "haproxy_process_current_connections")
        # This question's own.
        if open_now > 1:
            problems.append(f"{open_now - 1:.0f} connections are still open")
        if sizes[-1] > sizes[1] * GROWTH:
            problems.append(f"resident memory grew from {sizes[1]} to {sizes[-1]} KiB")
        if server.has_ended():
            problems.append(f"the server ended: {server.said()[-2000:]}")
        server.stop()
    print("\n".join(problems) if problems else "nothing leaked, nothing is stuck, nothing failed")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
