#!/usr/bin/env python3
"""What HTTP/2 floods cost: frames until the connection is cut, and server CPU time, penstock beside Debian's haproxy.

Each flood is sent in two ways. Frame by frame, with a millisecond of listening after each, tells how many were taken before
GOAWAY or the end. Then 100,000 frames as fast as they go, on a new connection whenever it is cut, tell what an attacker makes
the server spend. CPU time is the server's own, from /proc/PID/task/*/schedstat.

    scripts/floods.py [--rounds N] [--frames N]       after cargo build --release
"""

import argparse
import statistics
import sys
import tempfile

from library.figures import cpu_ns, load_average, now
from library.servers import LOAD, PROGRAMS, Stage, free_address, run

FLOODS = ["rapid-reset", "continuation", "empty-continuation", "settings", "ping", "empty-data"]

CONFIG = """\
global
    nbthread 1
    maxconn 2000
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend f
    bind {address} proto h2
    default_backend web
backend web
    server s1 {nginx}
"""


class Servers(Stage):
    """An nginx, and both proxies in front of it."""

    def __init__(self, folder):
        super().__init__(folder)
        nginx = self.origin({"index.html": b"x" * 200})
        self.servers = {}
        for name in PROGRAMS:
            address = free_address()
            server = self.serve(name, CONFIG.format(address=address, nginx=nginx), int(address.split(":")[1]))
            self.servers[name] = (server.pid, address)

    def send(self, name, flood, frames, at_a_time, pause):
        """CPU milliseconds, and how many frames each connection took."""
        pid, address = self.servers[name]
        before = cpu_ns(pid)
        command = [str(LOAD), "flood", address, flood, str(frames), str(at_a_time), str(pause)]
        out = run(command)
        return (cpu_ns(pid) - before) / 1e6, [int(line) for line in out.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=100_000)
    options = parser.parse_args()
    middle = lambda values: f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"
    print("| flood | program | frames until cut, one at a time | connections | CPU ms | CPU µs a frame |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="penstock-floods-") as folder:
        servers = Servers(folder)
        try:
            for flood in FLOODS:
                for name in PROGRAMS:
                    # More than any budget: haproxy is shown to take 3,000, and not asked for more.
                    _, slow = servers.send(name, flood, 3000, 1, 1000)
                    until = f"{slow[0]}" if len(slow) > 1 else "not within 3,000"
                    runs = [servers.send(name, flood, options.frames, 50, 1) for _ in range(options.rounds)]
                    cpu = [spent for spent, _ in runs]
                    connections = [len(taken) for _, taken in runs]
                    each = statistics.median(cpu) * 1000 / options.frames
                    print(f"| {flood} | {name} | {until} | {middle(connections)} | {middle(cpu)} | {each:.2f} |", flush=True)
        finally:
            servers.stop()
    print(f"\n{now()}, {options.frames:,} frames, n = {options.rounds}, {load_average()}")


if __name__ == "__main__":
    sys.exit(main())
