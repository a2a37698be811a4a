#!/usr/bin/env python3
"""Other people's clients of the runtime API, each doing its usual work on a penstock under its usual load of proxies: hatop in a
pseudo-terminal, prometheus-haproxy-exporter, haproxyadmin and haproxy-cli (PyPI, in target/runtime-clients), socat, acme.sh's sequence, and
the bytes that HAProxy's client-native sends.

    scripts/runtime-clients.py [--haproxy] [CLIENT...]

A client that is not installed is skipped, and said to be. --haproxy asks HAProxy instead, to see that the expectations are right.
"""

import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from collections.abc import Callable

from library.servers import PROGRAMS, TREE, Running, certificate, free_port, serve

CONFIG = """\
global
    nbthread 1
    stats socket {folder}/admin level admin
    stats timeout 60s
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend site
    bind 127.0.0.1:{port}
    bind 127.0.0.1:{tls} ssl crt {folder}/list/
    http-request set-var(txn.to) path,map({folder}/routes.map,main)
    http-request deny if {{ src -f {folder}/blocked.acl }}
    default_backend main
backend main
    balance roundrobin
    server one 127.0.0.1:{origin} weight 10 maxconn 50
    server two 127.0.0.1:{origin} weight 10
listen stats
    bind 127.0.0.1:{stats}
    stats enable
    stats uri /
    server unused 127.0.0.1:9
frontend origin
    bind 127.0.0.1:{origin}
    http-request return status 200 content-type text/plain string hello
"""


class Skip(Exception):
    """Why a client cannot be run here."""


class Place:
    """A running server, and how to reach it."""

    def __init__(self, folder: pathlib.Path, program: str) -> None:
        self.folder, self.program = folder, program
        self.port, self.tls, self.stats, self.origin = (free_port() for _ in range(4))
        (folder / "list").mkdir()
        self.pem = folder / "list/site.pem"
        shutil.move(certificate(folder), self.pem)
        (folder / "routes.map").write_text("/old main\n")
        (folder / "blocked.acl").write_text("192.0.2.1\n")
        text = CONFIG.format(folder=folder, port=self.port, tls=self.tls, stats=self.stats, origin=self.origin)
        # Some clients want to hear the name HAProxy, which is told to those who start it by that name.
        link = folder / "haproxy"
        link.symlink_to(pathlib.Path(PROGRAMS[program]).resolve())
        self.server: Running = serve(link, folder / "a.cfg", text, self.port)
        self.socket = str(folder / "admin")

    def ask(self, text: str) -> str:
        """What comes until the server closes."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(self.socket)
            s.sendall(text.encode())
            return b"".join(iter(lambda: s.recv(65536), b"")).decode()


def must(wanted: bool, what: str, seen: object = "") -> None:
    if not wanted:
        raise AssertionError(f"{what}: {seen}")


def program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise Skip(f"{name} is not installed")
    return found


def package(name: str, proof: str) -> pathlib.Path:
    """The Python environment in target/ with this package of PyPI, installed when it is not there yet."""
    place = TREE / "target/runtime-clients"
    if not (place / "bin/python").exists():
        made = subprocess.run([sys.executable, "-m", "venv", place], capture_output=True, text=True)
        if made.returncode != 0:
            raise Skip(f"no virtual environment can be made: {made.stderr.strip()[-200:]}")
    if not (place / proof).exists() and not list(place.glob(f"lib/python3*/site-packages/{proof}")):
        done = subprocess.run([place / "bin/pip", "install", "-q", name], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(f"{name} cannot be installed: {done.stderr.strip()[-200:]}")
    return place


def hatop(place: Place) -> None:
    """Its view of proxies, then a server put into maintenance and back by keys, as an operator does it."""
    command = [program("hatop"), "-s", place.socket, "-i", "1"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LINES="40", COLUMNS="120")
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    screen = b""

    def look(pattern: bytes, seconds: float = 15) -> bool:
        nonlocal screen
        until = time.monotonic() + seconds
        while not re.search(pattern, screen):
            if time.monotonic() > until:
                return False
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    screen += os.read(terminal, 65536)
                except OSError:
                    return bool(re.search(pattern, screen))
        return True

    def press(keys: bytes) -> None:
        nonlocal screen
        screen = b""
        os.write(terminal, keys)

    try:
        must(look(rb"main") and look(rb"two"), "hatop shows proxies and servers", screen[-2000:])
        # Its command line, the mode of key 5, sends what is typed as it is.
        press(b"5")
        must(look(rb">"), "hatop's command line", screen[-2000:])
        for word, is_off in (("disable", True), ("enable", False)):
            press(f"{word} server main/two\r".encode())
            for _ in range(50):
                # What it draws has to be read, or it stands still.
                look(rb"(?!)", 0.2)
                if ("MAINT" in place.ask("show stat\n")) == is_off:
                    break
            must(("MAINT" in place.ask("show stat\n")) == is_off, f"hatop's {word}", screen[-2000:])
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def exporter(place: Place) -> None:
    """From the socket and from the page: every field that it knows is there."""
    command = program("prometheus-haproxy-exporter")
    for uri in (f"unix:{place.socket}", f"http://127.0.0.1:{place.stats}/;csv"):
        port = free_port()
        log = place.folder / "exporter.out"
        with Running([command, f"--web.listen-address=127.0.0.1:{port}", f"--haproxy.scrape-uri={uri}"], log) as running:
            running.wait_listening(port)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                text = answer.read().decode()
        for line in ("haproxy_up 1", "haproxy_exporter_csv_parse_failures_total 0", 'haproxy_server_up{backend="main",server="one"} 1',
                     'haproxy_server_weight{backend="main",server="two"} 10'):
            must(line in text, f"{uri}: {line}", text[-3000:] + running.said())
        must(text.count("haproxy_server_") > 60, "metrics of servers", text.count("haproxy_server_"))
        must("haproxy_frontend_http_responses_total" in text, "metrics of frontends")


HAPROXYADMIN = """
import sys
from haproxyadmin import haproxy
h = haproxy.HAProxy(socket_dir=sys.argv[1])
print("up", h.uptimesec, "processes", h.processids, h.version)
print("frontends", sorted(f.name for f in h.frontends()), "backends", sorted(b.name for b in h.backends()))
s = h.server("two", backend="main")[0]
s.setstate("maint"); print("state", s.status)
s.setstate("ready"); print("state", s.status)
print("weight", s.setweight(5), s.weight)
f = h.frontend("site")
print("maxconn", f.setmaxconn(77), f.maxconn)
print("global", h.setmaxconn(100), h.setratelimitconn(50), h.setratelimitsess(50), h.setratelimitsslsess(50))
m = sys.argv[2]
print("map", h.add_map(m, "/new", "main"), h.show_map(mapid=m)[-1].split(" ", 1)[1], h.set_map(m, "/new", "x"), h.get_map(m, "/new"),
      h.del_map(m, "/new"), h.clear_map(m))
a = sys.argv[3]
print("acl", h.add_acl(a, "192.0.2.9"), h.get_acl(a, "192.0.2.9"), h.del_acl(a, "192.0.2.9"), h.clear_acl(a))
print("errors", type(h.errors()), "totals", h.totalrequests, h.metric("CumReq"))
print("clear", h.clearcounters(all=True))
print("command", h.command("show info")[0] != "")
"""


def haproxyadmin(place: Place) -> None:
    """Every kind of call of the library."""
    environment = package("haproxyadmin", "haproxyadmin")
    names = [str(place.folder / "routes.map"), str(place.folder / "blocked.acl")]
    # The library looks for *.sock in a directory.
    sockets = place.folder / "sockets"
    sockets.mkdir()
    (sockets / "a.sock").symlink_to(place.socket)
    done = subprocess.run([environment / "bin/python", "-c", HAPROXYADMIN, sockets, *names], capture_output=True, text=True, timeout=120)
    must(done.returncode == 0, "haproxyadmin", done.stdout + done.stderr)
    for line in ("frontends ['origin', 'site', 'stats'] backends ['main', 'stats']", "state MAINT", "state no check", "weight True 5",
                 "maxconn True 77", "global True True True True", "map True /new main True", "acl True", "clear True", "command True"):
        must(line in done.stdout, f"haproxyadmin: {line}", done.stdout + done.stderr)


def haproxy_cli(place: Place) -> None:
    """Its commands, whose lines end with CR LF."""
    environment = package("haproxy-cli", "bin/haproxy-cli")

    def cli(command: str, *more: str) -> str:
        argv: list[str | pathlib.Path] = [environment / "bin/python", environment / "bin/haproxy-cli", f"--socket={place.socket}", f"--command={command}", *more]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        must(done.returncode == 0, command, done.stdout + done.stderr)
        return done.stdout

    two = ["--backend=main", "--server=two"]
    must("site" in cli("frontends"), "frontends")
    must("main" in cli("backends"), "backends")
    must("two" in cli("servers", "--backend=main"), "servers")
    must("Version" in cli("info"), "info")
    cli("disable", *two)
    must("MAINT" in place.ask("show stat\n"), "disable")
    cli("enable", *two)
    must("MAINT" not in place.ask("show stat\n"), "enable")
    cli("set-weight", *two, "--weight=7")
    must("7" in cli("get-weight", *two), "weight")


def socat(place: Place) -> None:
    """What the manuals tell people to type."""
    command = program("socat")

    def say(text: str) -> str:
        return subprocess.run([command, "stdio", f"UNIX-CONNECT:{place.socket}"], input=text, capture_output=True, text=True, timeout=30).stdout

    must("# pxname" in say("show stat\n") and "Uptime_sec" in say("show info\n"), "socat")
    must(say("show info;show stat\r\n").count("\n\n") == 2, "two answers")
    must("New version created: 1" in say(f"prepare map {place.folder}/routes.map\n"), "prepare")


def acme(place: Place) -> None:
    """The commands of acme.sh's hook for HAProxy, in its order: a certificate updated, and one that is new."""
    command = program("socat")
    new = place.folder / "list/new.example.pem"
    pem = certificate(place.folder, "p256", "DNS:new.example").read_text()

    def say(text: str) -> str:
        return subprocess.run([command, f"UNIX:{place.socket}", "-"], input=text, capture_output=True, text=True, timeout=30).stdout

    must(re.search(rf"^{re.escape(str(place.pem))}$", say("show ssl cert\n"), re.M) is not None, "show ssl cert lists the file", say("show ssl cert\n"))
    for path, is_new in ((place.pem, False), (new, True)):
        if is_new:
            must(f"{place.folder}/list" in say("show ssl crt-list\n"), "a directory counts as a crt-list")
            must("New empty" in say(f"new ssl cert {path}\n"), "new ssl cert")
        said = say(f"set ssl cert {path} <<\n{pem}\n")
        must("Transaction created" in said, "set ssl cert", said)
        said = say(f"commit ssl cert {path}\n")
        must(re.search(r"^Success!$", said, re.M) is not None, "commit ssl cert", said)
        if is_new:
            said = say(f"add ssl crt-list {place.folder}/list {path}\n")
            must(re.search(r"^Success!$", said, re.M) is not None, "add ssl crt-list", said)
    shown = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{place.tls}", "-servername", "new.example"], input="",
                           capture_output=True, text=True, timeout=30).stdout
    must("new.example" in subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName"], input=shown, capture_output=True,
                                         text=True).stdout, "the new certificate is served", shown[:500])


def client_native(place: Place) -> None:
    """The bytes of client-native: a prefix for severities, one command for each connection, a payload, an end of the stream."""
    prefix = "set severity-output number;"
    routes = f"{place.folder}/routes.map"
    must("show servers state" in place.ask(prefix + "help\n"), "help")
    info = place.ask(prefix + "show info\n")
    version = re.search(r"^Version: (\d+)\.(\d+)\.(\d+)", info.replace("\n\n", "\n"), re.M)
    must(version is not None, "Version is a semantic one", info[:300])
    typed = place.ask(prefix + "show info typed\n")
    must(re.search(r"^1\.Version\.\d+:\S+:str:", typed.strip("\n"), re.M) is not None, "show info typed", typed[:300])
    must(place.ask(prefix + "show stat\n").lstrip("\n").startswith("# pxname"), "show stat")
    state = place.ask(prefix + "show servers state\n").strip("\n").splitlines()
    must(state[0] == "1" and len(state[1].split()) == 26 and all(len(line.split()) == 25 for line in state[2:]), "show servers state", state)
    prepared = place.ask(prefix + f"prepare map {routes}\n").strip()
    must(re.fullmatch(r"\[6\]: New version created: \d+", prepared) is not None, "prepare map", prepared)
    number = prepared.split(":")[2].strip()
    said = place.ask(prefix + f"add map @{number} {routes} <<\n/a main\n/b main\n\n") + place.ask(prefix + f"commit map @{number} {routes}\n")
    must(not re.search(r"^\[[0-3]\]:", said, re.M), "add and commit map", said)
    must("/b main" in place.ask(prefix + f"show map {routes}\n"), "show map")
    for command in ("set server main/one weight 5", "set server main/one state maint", "set server main/one state ready",
                    "set server main/one addr 127.0.0.1 port " + str(place.origin), "set maxconn frontend site 50", "enable health main/one",
                    "set rate-limit ssl-sessions global 10", "clear counters all", f"show acl {place.folder}/blocked.acl",
                    f"add acl {place.folder}/blocked.acl 192.0.2.7", f"del acl {place.folder}/blocked.acl 192.0.2.7", "show table", "show ssl cert"):
        said = place.ask(prefix + command + "\n")
        # enable health of a server without checks is an error of the configuration, in HAProxy as well.
        must(not re.search(r"^\[[0-3]\]:", said, re.M) or "health" in command, command, said)
    said = place.ask(prefix + "set server main/none weight 5\n").lstrip("\n")
    must(said.startswith("[3]: No such server."), "an error begins with its severity", said)
    added = place.ask(prefix + f"add server main/three 127.0.0.1:{place.origin} weight 3\n") + place.ask(prefix + "enable server main/three\n")
    must("New server registered" in added, "add server", added)
    gone = place.ask(prefix + "set server main/three state maint\n") + place.ask(prefix + "del server main/three\n")
    must("Server deleted" in gone, "del server", gone)


CLIENTS: dict[str, Callable[[Place], None]] = {
    "client-native": client_native,
    "socat": socat,
    "acme": acme,
    "exporter": exporter,
    "haproxyadmin": haproxyadmin,
    "haproxy-cli": haproxy_cli,
    "hatop": hatop,
}


def main() -> None:
    words = sys.argv[1:]
    which = "haproxy" if "--haproxy" in words else "penstock"
    chosen = [word for word in words if word != "--haproxy"] or list(CLIENTS)
    failed = 0
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="penstock-clients-") as folder:
            place = Place(pathlib.Path(folder), which)
            try:
                CLIENTS[name](place)
                must(not place.server.has_ended(), "the server runs on", place.server.said())
                print(f"{name}: passed")
            except Skip as why:
                print(f"{name}: SKIPPED, {why}")
            except (AssertionError, OSError, subprocess.TimeoutExpired) as why:
                failed += 1
                print(f"{name}: FAILED, {why}")
            finally:
                place.server.stop()
    sys.exit(f"{failed} client(s) failed" if failed else 0)


main()
