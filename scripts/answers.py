#!/usr/bin/env python3
"""Long answers of the runtime API: what they cost the clients of the service, and how much memory they take.

A stick table of a million entries, ten thousand sessions and two thousand servers are shown as text and as JSON, each several times, while a client on
one connection sends a request every millisecond; then by clients that ask and do not read. Writes docs/measurements/answers.md; --check
writes nothing, and fails where a request waits for longer than PAUSE_MAX_MS more than without a command, or where memory is not bounded.

    scripts/answers.py [--entries N] [--sessions N] [--servers N] [--rounds N] [--check]       PENSTOCK_BIN names another penstock
"""

import argparse
import contextlib
import json
import pathlib
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time

from library.figures import machine, middle, resident_kib, write_page
from library.servers import PROGRAMS, TREE, Running, free_port

CONFIG = """\
global
    nbthread 1
    maxconn {maxconn}
    stats socket {folder}/admin level admin
    stats maxconn 100
defaults
    mode http
    timeout client 600s
    timeout server 600s
    timeout connect 5s
    timeout tarpit 600s
frontend f
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string ok
frontend held
    bind 127.0.0.1:{held}
    http-request tarpit
backend entries
    stick-table type integer size {size} expire 1h store http_req_cnt,gpc0
backend many
    server-template s {servers} 127.0.0.1:9
"""
# What a request may wait longer while an answer is made: a turn of the worker, and the noise of a shared machine.
PAUSE_MAX_MS = 20
# Clients that ask and do not read.
DEAF = 50
# What each of those may cost: the buffers of a session and of its socket, and the pointers of the entries of a table that are shown next.
DEAF_KIB = 1024 + 768
QUIET_S = 3


class Client(threading.Thread):
    """A connection, and how long each answer on it took, in ms, since `waits` was emptied."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.going, self.waits = port, True, list[float]()

    def run(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), 30) as client:
            while self.going:
                begun = time.perf_counter()
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                if not client.recv(4096).startswith(b"HTTP/1.1 200"):
                    sys.exit("no 200")
                self.waits.append((time.perf_counter() - begun) * 1000)
                time.sleep(0.001)

    def taken(self) -> list[float]:
        waits, self.waits = self.waits, []
        return waits


class Memory(threading.Thread):
    """The most memory that a process had since `most` was set."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most, self.going = pid, 0, True

    def run(self) -> None:
        # Until the process is gone.
        with contextlib.suppress(OSError):
            while self.going:
                self.most = max(self.most, resident_kib(self.pid))
                time.sleep(0.05)


def asking(path: pathlib.Path, command: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    client.sendall(command.encode() + b"\n")
    return client


def answer(path: pathlib.Path, command: str) -> bytes:
    with asking(path, command) as client:
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 20), b""))


def fill(path: pathlib.Path, entries: int) -> None:
    """Makes the table's entries, many on each line."""
    keys = range(1, entries + 1)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"prompt i\n")
        reader = threading.Thread(target=lambda: [None for _ in iter(lambda: client.recv(1 << 20), b"")])
        reader.start()
        for begin in range(0, entries, 200):
            line = ";".join(f"set table entries key {key} data.gpc0 1" for key in keys[begin : begin + 200])
            client.sendall(line.encode() + b"\n")
        client.sendall(b"quit\n")
        reader.join()


def percentile(waits: list[float], percent: float) -> float:
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * percent / 100))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=10_000, help="each takes two descriptors of the server")
    parser.add_argument("--servers", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    commands = [("show table entries", options.entries), ("show table entries json", options.entries), ("show sess", options.sessions),
                ("show sess json", options.sessions), ("show servers state", options.servers), ("show servers state json", options.servers)]
    port, held, failed = free_port(), free_port(), []
    with tempfile.TemporaryDirectory(prefix="penstock-answers-") as name:
        folder = pathlib.Path(name)
        config, path = folder / "a.cfg", folder / "admin"
        config.write_text(CONFIG.format(folder=folder, port=port, held=held, size=options.entries * 11 // 10, servers=options.servers,
                                        maxconn=options.sessions + 100))
        with Running([PROGRAMS["penstock"], "-db", "-f", config], folder / "out", cwd=folder) as server:
            server.wait_listening(port)
            fill(path, options.entries)
            sessions = []
            for _ in range(options.sessions):
                sessions.append(socket.create_connection(("127.0.0.1", held), 10))
                sessions[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            client, memory = Client(port), Memory(server.pid)
            client.start()
            memory.start()
            time.sleep(1)
            client.taken()
            time.sleep(QUIET_S)
            quiet = client.taken()
            rows = [f"| none | | | | {statistics.median(quiet):.2f} | {percentile(quiet, 99):.2f} | {max(quiet):.1f} | {resident_kib(server.pid) / 1024:.1f} | |"]
            print(rows[-1], flush=True)
            rounds: dict[str, list[float]] = {}
            for command, count in commands:
                waits, times, text, before = list[float](), list[float](), b"", resident_kib(server.pid)
                memory.most = before
                for _ in range(options.rounds):
                    client.taken()
                    begun = time.monotonic()
                    text = answer(path, command)
                    times.append(time.monotonic() - begun)
                    waits += client.taken()
                length = len(text)
                if command.endswith(" json"):
                    json.loads(text)
                elif (lines := text.count(b"\n")) < count:
                    sys.exit(f"{command}: {lines} lines")
                # This program has one interpreter lock: what the client waited for while it checked is not the server's doing.
                time.sleep(0.5)
                rounds[command] = times
                rows.append(f"| `{command}` | {count:,} | {length / 1048576:.1f} | {middle(times, 2)} | {statistics.median(waits):.2f} | {percentile(waits, 99):.2f} | "
                            f"{max(waits):.1f} | {before / 1024:.1f} | {memory.most / 1024:.1f} |")
                print(rows[-1], flush=True)
                if percentile(waits, 99) > percentile(quiet, 99) + PAUSE_MAX_MS:
                    failed.append(f"{command}: a request in a hundred waits {percentile(waits, 99):.1f} ms")
            before = resident_kib(server.pid)
            deaf = [asking(path, commands[at % len(commands)][0]) for at in range(DEAF)]
            time.sleep(QUIET_S)
            held_kib = resident_kib(server.pid) - before
            waits = client.taken()
            for each in deaf:
                each.close()
            client.going = memory.going = False
            for each in sessions:
                each.close()
    if held_kib > DEAF * DEAF_KIB:
        failed.append(f"{DEAF} clients that do not read hold {held_kib} KiB")
    table = ["| command | of | answer, MiB | s: median (range) | request, median ms | p99 ms | longest ms | resident before, MiB | highest, MiB |",
             "|---|---|---|---|---|---|---|---|---|", *rows]
    deafness = f"{DEAF} clients that ask and do not read, after {QUIET_S} s: {held_kib / 1024:.1f} MiB more; p99 of requests meanwhile {percentile(waits, 99):.2f} ms."
    print("\n".join([*table, deafness, f"failed: {failed}"]))
    if options.check or failed:
        if failed:
            sys.exit("\n".join(failed))
        return
    page = ["# Long answers of the runtime API", "",
             f"`scripts/answers.py --entries {options.entries} --sessions {options.sessions} --servers {options.servers} --rounds {options.rounds}`: each command {options.rounds} times, read at once,",
             "while a client on one connection sends a request a millisecond after each answer. One worker; the program that asks, the client and other work share the",
             "machine.", "", *table, "", deafness, "", "| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in machine())]
    write_page(TREE / "docs/measurements/answers.md", page, ["answers", "machine"], {"seconds": rounds})


if __name__ == "__main__":
    main()
