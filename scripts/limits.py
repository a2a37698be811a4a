#!/usr/bin/env python3
"""What a client may make the server keep: resident memory for each client of a kind, penstock beside Debian's haproxy.

Of each kind a number of clients is opened, then four times as many; the figure is the difference of the server's resident memory
over the difference of the clients (over their streams, where a client has many), so that what the server keeps anyway is not
counted. Each round starts both servers anew, on the same configuration. docs/limits.md says what bounds each figure.

    scripts/limits.py [--rounds N] [KIND...]       PENSTOCK_BIN names another penstock than that of target/release
"""

import argparse
import itertools
import os
import random
import resource
import socket
import ssl
import sys
import tempfile
import threading
import time

from library import http2frames as h2
from library import pages
from library.figures import middle, now, of_penstock, resident_kib
from library.servers import PROGRAMS, TREE, Stage, certificate, free_port

CONFIG = """\
global
    nbthread 1
    maxconn 8000
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    timeout http-request 300s
    timeout tarpit 300s
frontend f
    bind 127.0.0.1:{http}
    bind 127.0.0.1:{h2} proto h2
    bind 127.0.0.1:{tls} ssl crt {cert} alpn h2,http/1.1
    bind 127.0.0.1:{proxy} accept-proxy
    http-request return status 200 content-type text/plain file {static} if {{ path /static }}
    http-request tarpit if {{ path /tarpit }}
    http-request wait-for-body time 300s if {{ path /waits }}
    http-request track-sc0 hdr(key) table keys if {{ path /key }}
    http-request return status 200 if {{ path /key }}
    use_backend packed if {{ path /text }}
    use_backend odd if {{ path /interim /hang }}
    default_backend web
backend web
    server s1 {nginx}
backend packed
    compression algo gzip
    server s1 {nginx}
backend odd
    server s2 {odd}
backend keys
    stick-table type string len 1024 size 100k expire 1h store http_req_cnt
"""

STREAMS = 100
KEYS = 20
NUMBERS = itertools.count()
REQUEST = b"GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n"
TINY = b"".join(b"h%02d: v\r\n" % n for n in range(80))


class Servers(Stage):
    def __init__(self, folder):
        super().__init__(folder)
        nginx = self.origin({"small": b"x" * 200, "big": os.urandom(4 << 20), "text": text(16 << 20)})
        static = self.folder / "static"
        static.write_bytes(b"s" * 15_000)
        cert = certificate(self.folder)
        self.given = {"nginx": nginx, "odd": odd_origin(), "static": static, "cert": cert}

    def start(self, name):
        """Starts one of the programs: it, and its ports by name."""
        ports = {kind: free_port() for kind in ("http", "h2", "tls", "proxy")}
        return self.serve(name, CONFIG.format(**self.given, **ports), ports["http"]), ports


def text(size):
    """Text that shrinks to a third, so that a good deal of it is left when the client's window is full."""
    pick = random.Random(1)
    words = [f"{pick.randrange(1 << 40):x}" for _ in range(4096)]
    return "".join(f"<td>{pick.choice(words)}</td>\n" for _ in range(size // 20)).encode()


def odd_origin():
    """A server that answers `/interim` with interim responses until nobody takes them, and `/hang` never."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)

    def one(sock):
        head = b""
        while b"\r\n\r\n" not in head:
            if not (more := sock.recv(65536)):
                return
            head += more
        try:
            while b"/interim" in head:
                sock.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n" * 200)
            sock.recv(1)
        except OSError:
            pass

    def accept():
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.stack_size(128 * 1024)
    threading.Thread(target=accept, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def tcp(port, said=b""):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(said)
    return sock


def paced(sock):
    """Opens clients no faster than they are served: what many take at once for a moment is not what they hold."""
    time.sleep(0.01)
    return sock


def stalled(port, said):
    """A client with a small window of its own, which reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.setblocking(False)
    try:
        while said:
            said = said[sock.send(said) :]
    except BlockingIOError:
        pass  # It takes no more: that is the bound.
    return sock


def stalled_tls(port, said):
    """The same over TLS."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock = CLIENT.wrap_socket(sock)
    sock.sendall(said)
    return sock


def answered(sock, want=b"\r\n\r\n"):
    got = b""
    while want not in got:
        got += sock.recv(65536)
    return sock


CLIENT = ssl.create_default_context()
CLIENT.check_hostname, CLIENT.verify_mode = False, ssl.CERT_NONE


def answered_to(sock, said):
    sock.sendall(said)
    return answered(sock)


def client_hello():
    outgoing = ssl.MemoryBIO()
    try:
        CLIENT.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()


def streams(port, window, request, then=lambda stream: b"", end=True, grow=0):
    """A connection of HTTP/2 with many streams, which reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    h2.Connection(sock, window=window)
    if grow:
        sock.sendall(h2.frame(h2.WINDOW_UPDATE, 0, 0, grow.to_bytes(4, "big")))
    for n in range(STREAMS):
        flags = h2.END_HEADERS | (h2.END_STREAM if end else 0)
        sock.sendall(h2.frame(h2.HEADERS, flags, 2 * n + 1, request) + then(2 * n + 1))
    return sock


def idle_h2(port, more=b""):
    connection = h2.connect(f"127.0.0.1:{port}")
    connection.send(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.request("/small") + more)
    for kind, flags, _, _ in connection.frames():
        if kind == h2.DATA and flags & h2.END_STREAM:
            break
    return connection


# Fields that stay in the decoder's table until it is full: an entry counts for 32 bytes more than its text (RFC 7541, 4.1).
TABLE = b"".join(b"\x40\x03x%02d\x64" % n + b"v" * 100 for n in range(4096 // 135))
# A head that nearly fills a buffer; a stick table's key; and all but the last byte of a PROXY header of version 2.
LARGE = b"large: " + b"y" * 14_000 + b"\r\n"
KEY = b"key: %0900d\r\n"
PROXY = b"\r\n\r\n\0\r\nQUIT\n" + b"\x21\x11" + (4000).to_bytes(2, "big") + b"\x7f\0\0\1" * 2 + b"\0P" * 2 + b"\xea" + (3985).to_bytes(2, "big")
TINY_H2 = tuple((f"h{n:02}", "v") for n in range(80))
MANY = (200, 800)
FEW = (4, 16)

# name: (how many clients, then how many; streams a client has; what opens one, of the ports; how long they take to settle)
KINDS = {
    "connected, nothing said": (MANY, 1, lambda p: tcp(p["http"]), 1),
    "idle after a request": (MANY, 1, lambda p: answered_to(tcp(p["http"]), REQUEST % (b"/small", b"")), 3),
    "idle after a request, TLS": (MANY, 1, lambda p: answered_to(CLIENT.wrap_socket(tcp(p["tls"])), REQUEST % (b"/small", b"")), 3),
    "idle after a request, HTTP/2": (MANY, 1, lambda p: idle_h2(p["h2"]), 3),
    "idle after a request, HTTP/2, a full table": (MANY, 1, lambda p: idle_h2(p["h2"], TABLE), 3),
    "half a ClientHello": (MANY, 1, lambda p: tcp(p["tls"], client_hello()[:-20]), 1),
    "a ClientHello, then silence": (MANY, 1, lambda p: tcp(p["tls"], client_hello()), 1),
    "half a PROXY header": (MANY, 1, lambda p: tcp(p["proxy"], b"PROXY TCP4 192.0.2.1 192.0"), 1),
    "half a large PROXY header": (MANY, 1, lambda p: tcp(p["proxy"], PROXY + b"x" * 3984), 1),
    "half a head": (MANY, 1, lambda p: tcp(p["http"], (REQUEST % (b"/small", b"x: " + b"y" * 6000))[:-4]), 1),
    "half a head of tiny fields": (MANY, 1, lambda p: tcp(p["http"], (REQUEST % (b"/small", TINY))[:-4]), 1),
    "tiny fields, the server silent": (MANY, 1, lambda p: tcp(p["http"], REQUEST % (b"/hang", TINY)), 2),
    "a large head, the server silent": (MANY, 1, lambda p: paced(tcp(p["http"], REQUEST % (b"/hang", LARGE))), 2),
    "a large head, in a tarpit": (MANY, 1, lambda p: tcp(p["http"], REQUEST % (b"/tarpit", LARGE)), 2),
    "a key of 900 bytes in a stick table": ((40, 160), KEYS, lambda p: answered_to(tcp(p["http"]), b"".join(REQUEST % (b"/key", KEY % next(NUMBERS)) for _ in range(KEYS))), 3),
    "slow body": (MANY, 1, lambda p: tcp(p["http"], b"POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nbegin"), 2),
    "half a trailer section": (MANY, 1, lambda p: tcp(p["http"], b"POST /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: "
                                                       + b"y" * 6000), 2),
    "stalled reader": (MANY, 1, lambda p: stalled(p["http"], REQUEST % (b"/big", b"")), 4),
    "stalled reader, TLS": (MANY, 1, lambda p: stalled_tls(p["tls"], REQUEST % (b"/big", b"")), 4),
    "stalled reader, pipelining": (MANY, 1, lambda p: stalled(p["http"], REQUEST % (b"/big", b"") * 300), 4),
    "stalled reader of a static page": (MANY, 1, lambda p: stalled(p["http"], REQUEST % (b"/static", b"") * 400), 4),
    "stalled reader, gzip": ((40, 120), 1, lambda p: stalled(p["http"], REQUEST % (b"/text", b"Accept-Encoding: gzip\r\n")), 20),
    "interim responses, not read": (FEW, 1, lambda p: stalled(p["http"], REQUEST % (b"/interim", b"")), 6),
    "HTTP/2: half a header block": (MANY, 1, lambda p: tcp(p["h2"], h2.PREFACE + h2.settings(window=65535)
                                                            + h2.frame(h2.HEADERS, 0, 1, h2.request("/", ("x", "y" * 6000)))), 1),
    "HTTP/2: interim responses, not read": (FEW, 1, lambda p: streams_of_one(p["h2"], h2.request("/interim")), 6),
    "HTTP/2: stalled client, a connection": ((2, 8), 1, lambda p: streams(p["h2"], 1 << 30, h2.request("/big"), grow=1 << 30), 6),
    "HTTP/2: stream of no window, small answer": (FEW, STREAMS, lambda p: streams(p["h2"], 0, h2.request("/small")), 3),
    "HTTP/2: stream of no window, large answer": (FEW, STREAMS, lambda p: streams(p["h2"], 0, h2.request("/big")), 4),
    "HTTP/2: stream of no window, static page": (FEW, STREAMS, lambda p: streams(p["h2"], 0, h2.request("/static")), 3),
    "HTTP/2: stream of no window, gzip": (FEW, STREAMS, lambda p: streams(p["h2"], 0, h2.request("/text", ("accept-encoding", "gzip"))), 6),
    "HTTP/2: tarpitted stream": (FEW, STREAMS, lambda p: streams(p["h2"], 65535, h2.request("/tarpit")), 3),
    "HTTP/2: tarpitted stream, a large head": (FEW, STREAMS, lambda p: streams(p["h2"], 65535, h2.request("/tarpit", ("large", "y" * 8000))), 3),
    "HTTP/2: stream whose body is waited for": (FEW, STREAMS, lambda p: streams(p["h2"], 65535, h2.request("/waits", method="POST"),
                                                                                lambda s: h2.frame(h2.DATA, 0, s, b"x" * 600), end=False), 3),
    "HTTP/2: stream with a slow body": (FEW, STREAMS, lambda p: streams(p["h2"], 65535, h2.request("/small", method="POST"),
                                                                         lambda s: h2.frame(h2.DATA, 0, s, b"begin"), end=False), 3),
    "HTTP/2: stream of tiny fields, the server silent": (FEW, STREAMS, lambda p: streams(p["h2"], 65535, h2.request("/hang", *TINY_H2)), 3),
}


def streams_of_one(port, request):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    h2.Connection(sock)
    sock.sendall(h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, request))
    return sock


def measure(servers, name, kind):
    """KiB for each client, or each of its streams."""
    (few, many), each, opened, settle = KINDS[kind]
    server, ports = servers.start(name)
    sizes, clients = [], []
    try:
        for count in (few, many):
            while len(clients) < count:
                clients.append(opened(ports))
            time.sleep(settle)
            sizes.append(resident_kib(server.pid))
        if server.has_ended():
            sys.exit(f"{name} ended at {kind}: {server.said()}")
    finally:
        server.process.kill()
        server.process.wait()
        for client in clients:
            getattr(client, "sock", client).close()
    return (sizes[1] - sizes[0]) / ((many - few) * each)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements/limits.md")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="words of a kind's name")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    chosen = [kind for kind in KINDS if not options.kinds or any(word in kind for word in options.kinds)]
    lines = ["| client | HAProxy 2.6, KiB | penstock, KiB |", "|---|---|---|"]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory(prefix="penstock-limits-") as folder:
        servers = Servers(folder)
        try:
            for kind in chosen:
                found = {name: [] for name in PROGRAMS}
                for _ in range(options.rounds):
                    for name in found:
                        found[name].append(measure(servers, name, kind))
                lines.append(f"| {kind} | {middle(found['haproxy'], 1)} | {middle(found['penstock'], 1)} |")
                print(lines[-1], flush=True)
        finally:
            servers.stop()
    if options.write:
        pages.replace(TREE / "docs/measurements/limits.md", "clients", lines)
    print(f"\n{now()}, n = {options.rounds}, median (range), {of_penstock()}")


if __name__ == "__main__":
    main()
