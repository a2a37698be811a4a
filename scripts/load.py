#!/usr/bin/env python3
"""`penstock bench load` beside wrk, ab and h2load on one nginx: does it do to a server what they do, and what does it cost itself?

    scripts/load.py [--rounds N] [--seconds S] [--check] [CASE...]     cases: connections requests http2

The server runs all the time on one core, the tools are run in turn on another. Common figure: the server's own CPU time for each
unit, read as scripts/bench.py does. Beside it the rate, and the tool's CPU time (its start included). Writes
docs/measurements/load.md; --check writes nothing and fails where the server's cost differs by more than a fifth.
"""

import argparse
import datetime
import json
import math
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from library import pages
from library.figures import cpu_ns
from library.servers import PROGRAMS, TREE, Running, certificate, free_port, pinned

OUT = TREE / "docs/measurements/load.md"
# What stays of the page.
BY_HAND = re.compile(r"## What a handshake costs the generator\n.*", re.S)
# What the server's cost by one tool may differ from that by another, as a factor: they do not send the same bytes.
AGREEMENT = 1.2
# Two-sided 95 % of Student's t by degrees of freedom.
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 11: 2.20}

NGINX = """\
daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; server_tokens off; keepalive_requests 100000000; client_body_temp_path body; proxy_temp_path p;
    fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s; ssl_session_cache off; ssl_session_tickets off;
    server {{
        listen 127.0.0.1:{port} ssl http2; ssl_certificate {cert}; ssl_certificate_key {cert}; ssl_protocols TLSv1.3;
        location / {{ return 200 "0123456789012345678901234567890123456789\\n"; }}
    }}
}}
"""


def ours(mode, *more):
    def command(url, seconds, penstock):
        return [penstock, "bench", "load", url, "--mode", mode, "-c", "32", "-d", f"{seconds}s", "--json", "-", *more]
    return command, lambda out: json.loads(out)["done"]


def wrk(*more):
    def command(url, seconds, _):
        return ["wrk", "-t1", "-c32", f"-d{seconds}s", *more, url]
    return command, lambda out: int(re.search(r"(\d+) requests in", out).group(1))


def ab(*more):
    def command(url, seconds, _):
        return ["ab", "-q", "-c", "32", "-t", str(seconds), "-n", "100000000", *more, url]
    return command, lambda out: int(re.search(r"Complete requests:\s+(\d+)", out).group(1))


def h2load(*more):
    def command(url, seconds, _):
        return ["h2load", "-D", str(seconds), *more, url]
    return command, lambda out: int(re.search(r"(\d+) succeeded", out).group(1))


# The first of each is ours, which the others are compared with.
CASES = {
    "connections": ("TLS 1.3 connections of one request each, RSA-2048", "connection", {
        "penstock bench load": ours("request", "--tls", "1.3"),
        "ab": ab("-f", "TLS1.3"),
        "wrk": wrk("-H", "Connection: close"),
    }),
    "requests": ("HTTP/1.1 requests on 32 kept connections", "request", {
        "penstock bench load": ours("keep-alive"),
        "wrk": wrk(),
        "ab -k": ab("-k"),
    }),
    "http2": ("HTTP/2 requests, 32 connections of 8 streams", "request", {
        "penstock bench load": ours("keep-alive", "--http2", "--streams", "8"),
        "h2load": h2load("-c", "32", "-m", "8"),
    }),
}


def once(tool, url, seconds, penstock, server):
    command, count = tool
    children = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    client, cpu, began = children(), cpu_ns(server.pid), time.monotonic()
    out = subprocess.run(pinned(1, command(url, seconds, penstock)), stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, timeout=seconds + 60).stdout
    took = time.monotonic() - began
    units = count(out)
    if not units:
        sys.exit(f"{command(url, seconds, penstock)[0]} did nothing:\n{out}")
    return {"server": (cpu_ns(server.pid) - cpu) / units / 1000, "rate": units / min(took, seconds),
            "client": (children() - client) / units * 1e6}


def interval(ratios):
    """Geometric mean, and its 95 % confidence interval."""
    logs = [math.log(r) for r in ratios]
    mean = statistics.mean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    reach = T95.get(len(logs) - 1, 2.0) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - reach), math.exp(mean + reach)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*", choices=[[], *CASES])
    options = parser.parse_args()
    page, wrong = [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        cert, port = certificate(folder), free_port()
        (folder / "nginx.conf").write_text(NGINX.format(port=port, cert=cert))
        server = Running([shutil.which("nginx"), "-p", folder, "-e", "error.log", "-c", folder / "nginx.conf"], folder / "nginx.out", cpu=0)
        try:
            server.wait_listening(port)
            for name in options.cases or CASES:
                title, unit, tools = CASES[name]
                rounds = [{tool: once(how, f"https://127.0.0.1:{port}/", options.seconds, PROGRAMS["penstock"], server)
                           for tool, how in tools.items()} for _ in range(options.rounds)]
                lines, bad = table(title, unit, rounds)
                page += lines
                wrong += bad
                print("\n".join(lines), flush=True)
        finally:
            server.stop()
    if options.check:
        sys.exit("\n".join(wrong) or 0)
    head = ["# The load generator beside wrk, ab and h2load", "",
            f"`scripts/load.py --rounds {options.rounds} --seconds {options.seconds}`, {datetime.date.today():%-d %B %Y}: one nginx on a "
            "core, each tool in turn on another. Server: its CPU time for each unit, the figure that tools must agree on. Ratio: by this tool "
            "over by ours, with its 95 % confidence interval over the rounds. Client: the tool's own CPU time for each unit, its start "
            "included. Medians otherwise.", ""]
    pages.write(OUT, "\n".join(head + page) + "\n" + BY_HAND.search(OUT.read_text()).group(), list(options.cases or CASES))


def table(title, unit, rounds):
    first, *_ = rounds[0]
    lines = [f"## {title}", "", f"| tool | server µs a {unit} | ratio to ours | {unit}s/s | client µs a {unit} |", "|---|---|---|---|---|"]
    wrong = []
    for tool in rounds[0]:
        of = lambda what: statistics.median(one[tool][what] for one in rounds)
        ratio = ""
        if tool != first:
            mean, low, high = interval([one[tool]["server"] / one[first]["server"] for one in rounds])
            ratio = f"{mean:.3f} ({low:.3f}-{high:.3f})"
            if low > AGREEMENT or high < 1 / AGREEMENT:
                wrong.append(f"{title}: the server's cost by {tool} is {ratio} of that by {first}")
        lines.append(f"| {tool} | {of('server'):.1f} | {ratio} | {of('rate'):.0f} | {of('client'):.1f} |")
    return lines + [""], wrong


if __name__ == "__main__":
    main()
