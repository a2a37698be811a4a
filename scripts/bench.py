#!/usr/bin/env python3
"""penstock beside Debian's haproxy, on one configuration, one worker each: server CPU time per unit of work.

The two servers run all the time and are loaded in turn (A B A B), so that what else the machine does falls on both. The
figure is the server's own CPU time from /proc/PID/task/*/schedstat, in nanoseconds: neither the client's speed nor the
wall clock enters it. Run through scripts/bench.sh, which builds first; PENSTOCK_BIN names another penstock.

    scripts/bench.sh [--rounds N] [--quick] [--engine ENGINE] [--haproxy PROGRAM] [MEASURE...]
    measures: handshake saturated http1 http2 bulk idle
"""

import argparse
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from library.clients import h2load, handshakes
from library.figures import cpu_ns, machine, resident_kib, write_page
from library.network import own_network, stand_aside
from library.servers import DEFAULTS, PROGRAMS, TREE, Stage, certificate, free_address, pinned

# What HAProxy's figure is multiplied by to give the most penstock may use.
PROMISES = {"handshake": 0.62, "saturated": 0.62, "http1": 0.60, "http2": 1.0, "bulk": 0.75}
IDLE_PROMISE_KIB = 6.0

CONFIG = """\
global
    nbthread 1
    maxconn 9500
    log {syslog} local0
{own}{defaults}frontend tls
    bind {tls} ssl crt {cert} alpn h2,http/1.1
    monitor-uri /alive
    default_backend web
backend web
    server s1 {nginx}
"""

class Bench(Stage):
    def __init__(self, folder, quick, engine="native"):
        super().__init__(folder)
        self.engine = engine
        self.scale = 0.2 if quick else 1.0
        self.servers = {}
        self.sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sink.bind(("127.0.0.1", 0))
        threading.Thread(target=self.swallow, daemon=True).start()
        self.start()

    def swallow(self):
        while True:
            self.sink.recv(65536)

    def start(self):
        nginx = self.origin({"200": b"x" * 200, "1m": os.urandom(1 << 20)})
        cert = certificate(self.folder)
        for name in PROGRAMS:
            address = free_address()
            text = CONFIG.format(syslog=f"127.0.0.1:{self.sink.getsockname()[1]}", tls=address, cert=cert, nginx=nginx, defaults=DEFAULTS,
                                 own=f"    tune.crypto.engine {self.engine}\n" if name == "penstock" else "")
            self.servers[name] = (self.serve(name, text, int(address.split(":")[1])).pid, address)

    def units(self, measure, address):
        """Loads one server and returns how many units of work it did."""
        url = f"https://{address}"
        n = lambda count: max(1, int(count * self.scale))
        if measure in ("handshake", "saturated"):
            if measure == "handshake":
                # 600 a second, about half of what HAProxy takes. One or two more or less may arrive while the window closes.
                wanted, done = n(900), handshakes(address, ["arrivals", 600, 1.5 * self.scale], ["every-suite"])[0]
                complete = done >= 0.99 * wanted
            else:
                wanted, done = n(1000), handshakes(address, ["handshakes", n(1000), 16], ["every-suite"])[0]
                complete = done == wanted
            if not complete:
                sys.exit(f"{done} of {wanted} handshakes were completed")
            return done
        if measure == "http1":
            return h2load(n(40000), ["--h1", "-c", "64"], f"{url}/200")
        if measure == "http2":
            return h2load(n(20000), ["-c", "16", "-m", "8"], f"{url}/200")
        if measure == "bulk":
            return h2load(n(200), ["--h1", "-c", "8"], f"{url}/1m") * (1 << 20) / 1e9
        raise ValueError(measure)

    def cpu_per_unit(self, measure, name):
        pid, address = self.servers[name]
        before = cpu_ns(pid)
        done = self.units(measure, address)
        time.sleep(0.1)
        return (cpu_ns(pid) - before) / done

    def idle(self, name):
        """KiB a connection, from the slope between 1,000 and 9,000 idle ones, which come a thousand a second: a crowd's handshakes at once
        would leave their memory behind."""
        pid, address = self.servers[name]
        sizes = []
        for count in (1000, 9000):
            command = [PROGRAMS["penstock"], "bench", "load", f"https://{address}/alive", "--mode", "idle", "-c", str(count), "-d", "120s",
                       "--rate", "1000", "--tls", "1.3", "--quiet", "--json", "-"]
            client = subprocess.Popen(pinned(1, command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            opened = lambda: len(os.listdir(f"/proc/{pid}/fd"))
            until = time.monotonic() + 60
            while opened() < count and time.monotonic() < until:
                time.sleep(0.1)
            # The last has a handshake and a request before it is idle.
            time.sleep(2)
            sizes.append(resident_kib(pid))
            client.send_signal(signal.SIGINT)
            held = json.loads(client.communicate(timeout=60)[0])["held"]
            if held != count:
                sys.exit(f"{name} held {held} idle connections, not {count}")
            while opened() > 100 and time.monotonic() < until:
                time.sleep(0.1)
        return (sizes[1] - sizes[0]) / 8000


WHAT = {
    "handshake": ("full TLS 1.3 handshake, RSA-2048, X25519, 600 a second", "µs", 1e-3),
    "saturated": ("the same, 16 clients that begin again at once", "µs", 1e-3),
    "http1": ("HTTP/1.1 request over TLS, keep-alive, 200-byte bodies, 64 connections, logging on", "µs", 1e-3),
    "http2": ("HTTP/2 request, 200-byte bodies, 16 connections of 8 streams, logging on", "µs", 1e-3),
    "bulk": ("GB of 1 MB bodies over TLS, 8 connections", "s", 1e-9),
}


def spread(values):
    return f"{min(values):.2f}–{max(values):.2f}"


def report(results, idle, rounds, command, engine):
    lines = ["# penstock beside HAProxy: server CPU time", "",
             f"Both on one configuration, one worker each, engine `{engine}`, loaded in turn. The figure is the server's own CPU",
             "time per unit (`/proc/PID/task/*/schedstat`); the ratio is penstock's over HAProxy's, its spread that of the",
             "rounds' own ratios. The machine was not otherwise idle: trust the ratios before the absolute figures. The server",
             "has one CPU, clients, nginx and log sink the other; nginx is set as Debian sets it (`sendfile`, `tcp_nopush`).", "",
             f"Command: `{command}`", "", "| machine | |", "|---|---|"]
    lines += [f"| {k} | {v} |" for k, v in machine()]
    lines += ["", "| unit | n | HAProxy, median | penstock, median | ratio of medians | ratios of the rounds | promised | |",
              "|---|---|---|---|---|---|---|---|"]
    for measure, figures in results.items():
        what, unit, factor = WHAT[measure]
        mine, theirs = figures["penstock"], figures["haproxy"]
        ratio = statistics.median(mine) / statistics.median(theirs)
        verdict = "kept" if ratio <= PROMISES[measure] else "missed"
        lines.append(f"| {what} | {rounds} | {statistics.median(theirs) * factor:.2f} {unit} | "
                     f"{statistics.median(mine) * factor:.2f} {unit} | **{ratio:.2f}** | "
                     f"{spread([a / b for a, b in zip(mine, theirs)])} | {PROMISES[measure]:.2f} | {verdict} |")
    if idle:
        verdict = "kept" if idle["penstock"] <= IDLE_PROMISE_KIB else "missed"
        lines.append(f"| KiB for each idle TLS connection, slope from 1,000 to 9,000 | 1 | {idle['haproxy']:.1f} KiB | "
                     f"{idle['penstock']:.1f} KiB | **{idle['penstock'] / idle['haproxy']:.2f}** | | "
                     f"{IDLE_PROMISE_KIB:.0f} KiB | {verdict} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a fifth of the work; writes nothing")
    parser.add_argument("--engine", default="native", help="penstock's tune.crypto.engine; another than native writes nothing")
    parser.add_argument("--haproxy", default=PROGRAMS["haproxy"], help="another in its place, such as an earlier penstock; writes nothing")
    parser.add_argument("measures", nargs="*", default=[])
    options = parser.parse_args()
    usual = options.haproxy == PROGRAMS["haproxy"]
    PROGRAMS["haproxy"] = options.haproxy
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # 9,000 connections at both ends
    own_network()
    stand_aside()
    measures = options.measures or [*WHAT, "idle"]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        bench = Bench(folder, options.quick, options.engine)
        try:
            results = {}
            for measure in (m for m in measures if m in WHAT):
                figures = {name: [] for name in PROGRAMS}
                for name in PROGRAMS:
                    bench.cpu_per_unit(measure, name)  # warms caches and pools up
                for round_number in range(options.rounds):
                    # The first of a pair meets the other's leftovers in the caches: take turns at being first.
                    order = list(PROGRAMS) if round_number % 2 == 0 else list(PROGRAMS)[::-1]
                    for name in order:
                        figures[name].append(bench.cpu_per_unit(measure, name))
                results[measure] = figures
                ratio = statistics.median(figures["penstock"]) / statistics.median(figures["haproxy"])
                print(f"{measure}: {ratio:.3f} of HAProxy's CPU time", flush=True)
            idle = {name: bench.idle(name) for name in PROGRAMS} if "idle" in measures else {}
            text = report(results, idle, options.rounds, "make bench", options.engine)
        finally:
            bench.stop()
    print(text)
    if not options.quick and not options.measures and options.engine == "native" and usual:
        target = TREE / "docs/measurements/haproxy-2.6.md"
        write_page(target, text.splitlines(), ["machine", "costs"], {"CPU ns a unit": results, "KiB an idle connection": idle})
        print(f"written to {target.relative_to(TREE)}")


if __name__ == "__main__":
    main()
