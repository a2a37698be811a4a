#!/usr/bin/env python3
"""How long an innocent client waits behind eight that pipeline or flood: penstock beside Debian's haproxy, one worker each.

Eight clients keep a worker busy, each in a process of its own: they pipeline requests that are answered at once, over clear text or TLS,
some of which cost the rules much (`LONG`), or ask over HTTP/2 for streams, PINGs or SETTINGS. Another client asks every five milliseconds
and waits for its answer; the time counts from when it was due, or from when the client woke if it slept longer than that. The server has
one CPU, the clients another. Where this process may say so, the server goes before all others on its CPU, and the innocent client on the
other: what it waits for is the server. Run this where nothing else runs.

    scripts/turns.py [--rounds N] [--seconds N] [--floods N] [KIND...]       after cargo build --release
"""

import argparse
import multiprocessing
import os
import pathlib
import random
import socket
import ssl
import statistics
import sys
import tempfile
import time

from library import pages
from library.figures import cpu_ns, load_average, middle, now
from library.servers import PROGRAMS, TREE, certificate, free_port, serve

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
    bind 127.0.0.1:{clear}
    bind 127.0.0.1:{h2} proto h2
    bind 127.0.0.1:{tls} ssl crt {cert}
    http-request track-sc0 hdr(key) table keys if {{ path /keys }}
{rules}    http-request return status 200
backend keys
    stick-table type string len 1024 size 100k expire 1h store http_req_cnt
"""

RULES = "".join(f"    http-request set-header x-{n} %[path,lower] if {{ path_beg /{n} }}\n" for n in range(16))
RULES += "    http-request set-header x-matched %[req.hdr(long),regsub(a.?a.?b,x,g)] if { path /regsub }\n"
RULES += 300 * ("    http-request set-header x-digest %[req.hdr(long),sha2(512),hex,sha2(512),hex,digest(md5),hex,upper,lower,url_dec,"
                "base64,b64dec,length] if { path /digests }\n")
REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + bytes(8)
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def asks(path, *fields):
    return "\r\n".join((f"GET /{path} HTTP/1.1", "host: a", *fields, "\r\n")).encode()


# Requests that cost much: by kind, what a client sends again and again.
LONG = {
    "300 rules with digests of 8 KB": lambda: asks("digests", "long: " + "a" * 8000) * 10,
    "regsub of 12 KB": lambda: asks("regsub", "long: " + "a" * 12_000) * 10,
    "new keys of 1 KB": lambda: b"".join(asks("keys", f"key: {random.getrandbits(60)}{'k' * 1000}") for _ in range(20)),
    "90 fields": lambda: asks("", *(f"x{n}: v" for n in range(90))) * 20,
}


# Streams, by kind: how many fields their requests have.
STREAMS = {"h2 streams": 0, "h2 streams of 80 fields": 80}


def streams(first, fields):
    """A hundred requests: `:method GET`, `:scheme http`, `:path /`, all from HPACK's static table, and fields that enter the other one."""
    block = bytes([0x82, 0x86, 0x84])
    for n in range(fields):
        name, value = f"x-field-{n}".encode(), f"value-{n * 7919 % 1000}".encode()
        block += bytes([0x40, len(name)]) + name + bytes([len(value)]) + value
    heads = (len(block).to_bytes(3, "big") + bytes([1, 5]) + (first + 2 * n).to_bytes(4, "big") + block for n in range(100))
    return b"".join(heads)


def connect(port, tls):
    s = socket.create_connection(("127.0.0.1", port), timeout=10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s)
    return s


def flood(kind, ports, until):
    """Sends as fast as answers are taken, again on a new connection whenever it is cut."""
    while time.monotonic() < until:
        try:
            s = connect(ports["h2" if kind.startswith("h2") else "tls" if kind == "tls" else "clear"], kind == "tls")
            s.setblocking(False)
            first, waiting = 1, b"" if not kind.startswith("h2") else PREFACE
            while time.monotonic() < until:
                if not waiting:
                    if kind in STREAMS:
                        waiting, first = streams(first, STREAMS[kind]), first + 200
                    elif kind in LONG:
                        waiting = LONG[kind]()
                    else:
                        waiting = {"h2 PING": PING, "h2 SETTINGS": SETTINGS}.get(kind, REQUEST) * 500
                moved = False
                try:
                    waiting = waiting[s.send(waiting):]
                    moved = True
                except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    pass
                try:
                    if not s.recv(1 << 18):
                        break
                    moved = True
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
                if not moved:
                    time.sleep(0.0005)
            s.close()
        except OSError:
            time.sleep(0.01)


def go_first():
    """This process takes the CPU that is not the server's, before all others on it: its own scheduling is not to be measured."""
    if os.cpu_count() >= 2:
        os.sched_setaffinity(0, {1})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        print("not root: server and innocent client wait for their CPUs as well", file=sys.stderr)


def goes_first(pid):
    """The server is not to wait for other processes on its CPU."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), -15)
    except PermissionError:
        pass  # go_first has said so.


def innocent(port, seconds):
    """Milliseconds from when each request was due to its answer, but for how long the client itself slept too long."""
    s, times = connect(port, False), []
    due = time.monotonic()
    for _ in range(int(seconds * 200)):
        due += 0.005
        begun = due
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
            begun = time.monotonic()
        s.sendall(REQUEST)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            got = s.recv(4096)
            if not got:
                sys.exit("the innocent client was cut")
            answer += got
        times.append((time.monotonic() - begun) * 1000)
    return times


def measure(folder, program, kind, floods, seconds):
    ports = {name: free_port() for name in ("clear", "h2", "tls")}
    text = CONFIG.format(cert=folder / "rsa2048.pem", rules=RULES, **ports)
    server = serve(program, folder / "turns.cfg", text, ports["clear"], cpu=0)
    clients = []
    try:
        goes_first(server.pid)
        until = time.monotonic() + seconds + 1
        clients = [multiprocessing.Process(target=flood, args=(kind, ports, until)) for _ in range(floods)]
        for client in clients:
            client.start()
        time.sleep(0.5)
        began, before = time.monotonic(), cpu_ns(server.pid)
        times = innocent(ports["clear"], seconds)
        busy = (cpu_ns(server.pid) - before) / (time.monotonic() - began) / 1e7
        if server.has_ended():
            sys.exit(f"{program} ended: {server.said()}")
    finally:
        for client in clients:
            client.terminate()
        server.stop()
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.99)], times[-1], busy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements/turns.md")
    parser.add_argument("--floods", type=int, default=8)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="words of a kind's name")
    options = parser.parse_args()
    go_first()
    kinds = [kind for kind in ("clear", "tls", *LONG, *STREAMS, "h2 PING", "h2 SETTINGS")
             if not options.kinds or any(word in kind for word in options.kinds)]
    lines = [f"| {options.floods} clients | program | p50 ms | p99 ms | longest ms | server's CPU, % |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-turns-") as name:
        folder = pathlib.Path(name)
        certificate(folder)
        for kind in kinds:
            results = {program: [] for program in PROGRAMS}
            for _ in range(options.rounds):
                for program, path in PROGRAMS.items():
                    results[program].append(measure(folder, path, kind, options.floods, options.seconds))
            for program, found in results.items():
                lines.append(f"| {kind} | {program} | " + " | ".join(middle(column, 2) for column in zip(*found)) + " |")
                print(lines[-1], flush=True)
    if options.write:
        pages.replace(TREE / "docs/measurements/turns.md", "turns", lines)
    print(f"\n{now()}, {os.cpu_count()} CPUs shared with the clients, n = {options.rounds} rounds of {options.seconds} s, {load_average()}")


if __name__ == "__main__":
    sys.exit(main())
