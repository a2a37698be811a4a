#!/usr/bin/env python3
"""CPU time of compression beside HAProxy 3.0: seconds a GB of body, and what is left of it, by coding and level.

Each server compresses the same bodies of a megabyte (pages, data and sources of this tree, and random bytes) for one client in turn, one worker each; besides,
it forwards them as they are, and the difference is what compression costs. HAProxy is Debian 13's (scripts/haproxy-3.0.sh), which has libslz; another one, built
with zlib, is an argument: in a folder with HAProxy's sources, 'make TARGET=linux-glibc USE_ZLIB=1 USE_SLZ= USE_OPENSSL=1' makes it.

    scripts/compression.py [--zlib HAPROXY] [--rounds N] [--bodies N] [--write]       PENSTOCK_BIN names another penstock than that of target/release
"""

import argparse
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from library.figures import cpu_ns, machine, middle, write_page
from library.network import own_network, stand_aside
from library.servers import PROGRAMS, TREE, Stage, free_address

NEWER = TREE / "target/haproxy-3.0/haproxy"
SIZE = 1 << 20
CONFIG = """\
global
    nbthread 1
    tune.comp.maxlevel {level}
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen l
    bind {address}
    compression algo {algorithm}
    compression type text/html text/plain application/json application/octet-stream
    server s {nginx}
"""
# Which program, coding and level. Level 1 is the default of both programs.
KINDS = [("haproxy", "gzip", 1), *(("haproxy-zlib", "gzip", level) for level in (1, 3, 6, 9)), *(("penstock", "gzip", level) for level in range(1, 10)),
         ("penstock", "zstd", 1), ("penstock", "zstd", 3), ("penstock", "br", 1), ("penstock", "br", 4)]


def bodies() -> dict[str, bytes]:
    """A megabyte of each kind: what browsers get, what programs get, what people write, and what cannot be compressed."""

    def megabyte(names: str) -> bytes:
        content = b"".join(path.read_bytes() for path in sorted(TREE.glob(names)))
        return (content * (SIZE // len(content) + 1))[:SIZE]

    measured = "docs/measurements/*"
    return {"pages": megabyte(f"{measured}/report.html"), "data": megabyte(f"{measured}/result.json"), "sources": megabyte("crates/proxy/src/**/*.rs"),
            "random": random.Random(22).randbytes(SIZE)}


class Client:
    """A connection on which bodies are asked for, one after another."""

    def __init__(self, address: str, accepts: str) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.file = self.socket.makefile("rb")
        self.fields = f"Host: h\r\nAccept-Encoding: {accepts}\r\n" if accepts else "Host: h\r\n"

    def get(self, path: str) -> tuple[str, int]:
        """The coding of a body, and how many bytes came."""
        self.socket.sendall(f"GET /{path} HTTP/1.1\r\n{self.fields}\r\n".encode())
        if not self.file.readline().startswith(b"HTTP/1.1 200 "):
            sys.exit(f"{path}: no 200")
        fields = dict(line.decode().rstrip().lower().split(": ", 1) for line in iter(self.file.readline, b"\r\n"))
        coding = fields.get("content-encoding", "")
        if "content-length" in fields:
            return coding, len(self.file.read(int(fields["content-length"])))
        total = 0
        while size := int(self.file.readline(), 16):
            total += len(self.file.read(size))
            self.file.readline()
        self.file.readline()
        return coding, total

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zlib", metavar="HAPROXY", help="a HAProxy with zlib")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bodies", type=int, default=64, help="in each round, of each kind")
    parser.add_argument("--write", action="store_true", help="write docs/measurements/compression.md")
    options = parser.parse_args()
    own_network()
    stand_aside()
    subprocess.run([TREE / "scripts/haproxy-3.0.sh"], check=True)
    PROGRAMS["haproxy"] = str(NEWER)
    if options.zlib:
        PROGRAMS["haproxy-zlib"] = options.zlib
    kinds = [kind for kind in KINDS if kind[0] in PROGRAMS]
    rounds: dict[str, list[float]] = {}
    left: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-compression-") as name:
        stage = Stage(name)
        try:
            contents = bodies()
            nginx = stage.origin(contents)
            servers = []
            for number, (program, algorithm, level) in enumerate(kinds):
                folder = pathlib.Path(name) / str(number)
                folder.mkdir()
                one, address = Stage(folder), free_address()
                text = CONFIG.format(level=level, address=address, algorithm=algorithm, nginx=nginx)
                servers.append((program, algorithm, level, one.serve(program, text, int(address.split(":")[1])).pid, address))
                stage.running += one.running
            for at in range(options.rounds):
                for program, algorithm, level, pid, address in servers:
                    for kind in contents:
                        for coding in ("", algorithm):
                            client = Client(address, coding)
                            client.get(kind)
                            before, received = cpu_ns(pid), 0
                            for _ in range(options.bodies):
                                got, length = client.get(kind)
                                received += length
                                if got != coding:
                                    sys.exit(f"{program} {algorithm} {level}: '{got}' instead of '{coding}'")
                            time.sleep(0.02)
                            key = f"{program}|{algorithm}|{level}|{kind}|{coding}"
                            rounds.setdefault(key, []).append((cpu_ns(pid) - before) / (options.bodies * SIZE))
                            left[key] = 100 * received / (options.bodies * SIZE)
                            client.close()
                print(f"round {at + 1} of {options.rounds}", flush=True)
        finally:
            stage.stop()
    median = {key: statistics.median(taken) for key, taken in rounds.items()}
    of = lambda kind, program, algorithm, level: f"{program}|{algorithm}|{level}|{kind}|"
    table = ["| body | program | coding | level | s a GB: median (range) | of it forwarding | left, percent |", "|---|---|---|---|---|---|---|"]
    # Beside each of HAProxy's levels: the cheapest of ours that leaves no more.
    beside = ["| body | HAProxy's | level | s a GB | left, percent | our level | s a GB | left, percent | ratio | without forwarding |", "|---|---|---|---|---|---|---|---|---|---|"]
    for kind in contents:
        for program, algorithm, level in kinds:
            key = of(kind, program, algorithm, level)
            table.append(f"| {kind} | {program} | {algorithm} | {level} | {middle(rounds[key + algorithm], 2)} | {median[key]:.2f} | {left[key + algorithm]:.1f} |")
        ours = [of(kind, *each) for each in kinds if each[:2] == ("penstock", "gzip")]
        for theirs in (of(kind, *each) for each in kinds if each[0] != "penstock"):
            enough = [key for key in ours if left[key + "gzip"] <= left[theirs + "gzip"] + 0.05]
            best = min(enough or ours, key=lambda key: median[key + "gzip"] if enough else left[key + "gzip"])
            library = "zlib" if "zlib" in theirs else "libslz"
            cost, own = median[theirs + "gzip"], median[best + "gzip"]
            extra = (own - median[best]) / max(cost - median[theirs], 0.01)
            beside.append(f"| {kind} | {library} | {theirs.split('|')[2]} | {cost:.2f} | {left[theirs + 'gzip']:.1f} | {best.split('|')[2]}{'' if enough else ' (leaves more)'} | {own:.2f} | "
                          f"{left[best + 'gzip']:.1f} | {own / cost:.2f} | {extra:.2f} |")
    print("\n".join([*table, "", *beside]))
    if not options.write:
        return
    page = ["# CPU time of compression beside HAProxy 3.0", "",
            f"`scripts/compression.py{' --zlib HAPROXY' if options.zlib else ''} --rounds {options.rounds} --bodies {options.bodies}`: each server, with one worker, compresses the same",
            "bodies of a megabyte for one client, in turn; the figure is its own CPU time (`/proc/PID/task/*/schedstat`) for a GB of body before compression, forwarding",
            "included, which is given apart. `haproxy` is Debian's 3.0 with libslz, which keeps no state and has one way to compress; `haproxy-zlib` is built with zlib.", "",
            "<!-- table: costs -->", *table, "", "Beside each of HAProxy's, the cheapest of our levels that leaves no more:", "", "<!-- table: beside -->", *beside, "",
            "<!-- table: machine -->", "| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in machine())]
    write_page(TREE / "docs/measurements/compression.md", page, ["costs", "beside", "machine"], {"seconds a GB": rounds})


if __name__ == "__main__":
    main()
