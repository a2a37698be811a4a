#!/usr/bin/env python3
"""Where the instructions of a request go: how many penstock executes for each in user space, by the folder of the source they come from.

A server of one worker runs under valgrind's callgrind with few requests and with many; the difference is what a request costs, to the
instruction, whatever else the machine does. Functions that are inlined count where they are written. Writes
docs/measurements/instructions.md; --check writes nothing. The binary needs line tables, as release builds have them.

    scripts/instructions.py [--check]       PENSTOCK_BIN names another penstock than that of target/release
"""

import argparse
import collections
import pathlib
import re
import sys
import tempfile

from library.clients import h2load
from library.figures import machine, write_page
from library.network import own_network
from library.servers import DEFAULTS, PROGRAMS, TREE, Running, Stage, certificate, free_address, pinned

CONFIG = """\
global
    nbthread 1
    log {syslog} local0
{defaults}frontend tls
    bind {tls} ssl crt {cert} alpn h2,http/1.1
    default_backend web
backend web
    server s1 {nginx}
"""
LOADS = {"HTTP/1.1 request": ["--h1", "-c", "4"], "HTTP/2 request": ["-c", "4", "-m", "8"]}
FEW, MANY = 400, 2400
# What inspects and copies traffic (docs/orchestration.md), for a frontend that has none of it.
SERVICES = re.compile(r"crates/(?:(?:icap|spop|capture)/|proxy/src/(?:inspect|tap|spoe|handshake/intercept)\b|rules/src/(?:chain|inspection|spoe)\b)")


def costs(file: pathlib.Path) -> collections.Counter[str]:
    """Instructions by source file, from callgrind's output (its manual, "Callgrind Format Specification")."""
    names: dict[str, str] = {}
    total: collections.Counter[str] = collections.Counter()
    source, is_call = "", False
    for line in file.read_text(errors="replace").splitlines():
        if named := re.match(r"(c?f[lie])=\((\d+)\)(?: (.*))?$", line):
            kind, number, name = named.groups()
            if name is not None:
                names[number] = name
            if not kind.startswith("c"):
                source = names[number]
        elif line.startswith("calls="):
            # The next line is the cost of the callee, which has lines of its own.
            is_call = True
        elif re.match(r"[\d+*-]", line):
            fields = line.split()
            if len(fields) > 1 and not is_call:
                total[source] += int(fields[1])
            is_call = False
    return total


def place(file: str) -> str:
    """The row of a source file."""
    if within := re.search(r"/crates/([^/]+)/src/([^/.]+)?", file):
        crate, module = within.groups()
        return f"{crate}/{module}" if crate == "proxy" and module else crate
    if crate_of := re.search(r"/registry/src/[^/]+/(.+?)-\d", file):
        return f"({crate_of.group(1)})"
    if "/library/" in file or re.match(r"(core|alloc|std)/", file):
        return "(standard library)"
    return "(C libraries, assembly)"


def count(folder: pathlib.Path, load: list[str], requests: int) -> collections.Counter[str]:
    stage = Stage(folder)
    try:
        nginx, tls = stage.origin({"200": b"x" * 200}), free_address()
        text = CONFIG.format(syslog=free_address(), tls=tls, cert=certificate(folder), nginx=nginx, defaults=DEFAULTS)
        (folder / "penstock.cfg").write_text(text)
        counted = folder / "callgrind.out"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counted}", "--fair-sched=yes"]
        command = [*valgrind, PROGRAMS["penstock"], "-db", "-f", folder / "penstock.cfg"]
        server = Running(pinned(0, command), folder / "penstock.out")
        stage.running.append(server)
        server.wait_listening(int(tls.split(":")[1]))
        h2load(requests, load, f"https://{tls}/200")
        server.stop()
        return costs(counted)
    finally:
        stage.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    own_network()
    by_load: dict[str, dict[str, float]] = {}
    services: dict[str, float] = {}
    for title, load in LOADS.items():
        counted = []
        for requests in (FEW, MANY):
            with tempfile.TemporaryDirectory(prefix="penstock-instructions-") as name:
                counted.append(count(pathlib.Path(name), load, requests))
        each = {file: (counted[1][file] - counted[0][file]) / (MANY - FEW) for file in counted[1]}
        places = by_load[title] = collections.defaultdict(float)
        for file, instructions in each.items():
            places[place(file)] += instructions
        services[title] = sum(instructions for file, instructions in each.items() if SERVICES.search(file))
        if not sum(places.values()):
            sys.exit(f"{title}: nothing was counted")
        print(f"{title}: {sum(places.values()):,.0f} instructions, {services[title]:,.0f} of them for services", flush=True)
    table = ["| instructions for each | " + " | ".join(LOADS) + " |", "|---" * (len(LOADS) + 1) + "|"]
    row = lambda name, values: f"| {name} | " + " | ".join(f"{value:,.0f}" for value in values) + " |"
    table.append(row("all", (sum(by_load[load].values()) for load in LOADS)))
    table.append(row("of them for services, taps and agents, of which there are none", (services[load] for load in LOADS)))
    first = by_load[next(iter(LOADS))]
    for name in sorted(first, key=lambda name: -first[name]):
        if max(by_load[load][name] for load in LOADS) >= 100:
            table.append(row(name, (by_load[load][name] for load in LOADS)))
    about = ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in machine())]
    lines = ["# Instructions of a request", "",
             "`scripts/instructions.py`: what penstock executes in user space for a request over TLS, with keep-alive, 200-byte bodies and a log line,",
             "by the folder of the source (libraries in brackets). Counted by callgrind as the difference between",
             f"{MANY:,} and {FEW:,} requests; what the kernel does is not in it.", "", *table, "", *about]
    if options.check:
        print("\n".join(lines))
    else:
        write_page(TREE / "docs/measurements/instructions.md", lines, ["instructions", "machine"])


if __name__ == "__main__":
    main()
