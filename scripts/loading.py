#!/usr/bin/env python3
"""Large configurations: what it costs to load them, beside HAProxy, and how much memory they take.

A server of one worker is started until its first answer, which depends on what was loaded; each configuration by HAProxy and penstock in turn.
Writes docs/measurements/loading.md; --check writes nothing.

    scripts/loading.py [--rounds N] [--scale N] [--check] [--haproxy PROGRAM]       PENSTOCK_BIN names another penstock
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

from library.figures import machine, middle, resident_kib, write_page
from library.servers import PROGRAMS, TREE, Running, free_port

CONFIG = """\
global
    nbthread 1
    maxconn 100
defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 5s
frontend f
    bind 127.0.0.1:{port}
{rules}
    http-request return status 500
"""
PATIENCE_S = 120
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def lines(path: pathlib.Path, of: Iterable[str]) -> pathlib.Path:
    path.write_text("".join(line + "\n" for line in of))
    return path


def backends(folder: pathlib.Path, count: int) -> tuple[str, str]:
    sections = "".join(f"backend b{at}\n    balance roundrobin\n    server s 10.{at >> 14}.{at >> 7 & 127}.{at & 127}:80\n"
                       for at in range(count))
    return f"    http-request return status 200 if {{ nbsrv(b{count - 1}) 1 }}\n    use_backend b0 if {{ path /b0 }}", sections


def regex_map(folder: pathlib.Path, count: int) -> tuple[str, str]:
    file = lines(folder / "regexes.map", (f"^/user{at}/[a-z]+\\.(html|php)$ v{at}" for at in range(count)))
    return f"    http-request return status 200 if {{ str(/user{count - 1}/x.php),map_reg({file}) v{count - 1} }}", ""


def regex_acl(folder: pathlib.Path, count: int) -> tuple[str, str]:
    file = lines(folder / "regexes.lst", (f"^/user{at}/[a-z]+\\.(html|php)$" for at in range(count)))
    return f"    http-request return status 200 if {{ str(/user{count - 1}/x.php) -m reg -f {file} }}", ""


def names(folder: pathlib.Path, count: int) -> tuple[str, str]:
    file = lines(folder / "names.map", (f"host-{at}.example.com category-{at % 90}" for at in range(count)))
    return f"    http-request return status 200 if {{ str(host-{count - 1}.example.com),map({file}) category-{(count - 1) % 90} }}", ""


def networks(folder: pathlib.Path, count: int) -> tuple[str, str]:
    address = lambda at: f"{at >> 20 & 15}.{at >> 12 & 255}.{at >> 4 & 255}.{(at & 15) << 4}"
    file = lines(folder / "networks.map", (f"{address(at + (1 << 20))}/28 c{at % 90}" for at in range(count)))
    return f"    http-request return status 200 if {{ str({address(count - 1 + (1 << 20))}),map_ip({file}) c{(count - 1) % 90} }}", ""


CASES: dict[str, tuple[int, Callable[[pathlib.Path, int], tuple[str, str]]]] = {
    "backends": (20_000, backends),
    "regular expressions of a map": (200_000, regex_map),
    "regular expressions of an ACL": (200_000, regex_acl),
    "names of a map": (1_000_000, names),
    "networks of a map": (1_000_000, networks),
}


def start(program: str, folder: pathlib.Path, port: int) -> tuple[float, float, float]:
    """CPU and time until the first answer, in s, and resident memory then, in MiB."""
    begun = time.monotonic()
    with Running([program, "-db", "-f", folder / "haproxy.cfg"], folder / "log") as server:
        status = ""
        while not status:
            if time.monotonic() > begun + PATIENCE_S or server.has_ended():
                sys.exit(f"{program} does not start: {server.said()[-2000:]}")
            time.sleep(0.02)
            status = subprocess.run(["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", f"http://127.0.0.1:{port}/"],
                                    capture_output=True, text=True).stdout.replace("000", "")
        took = time.monotonic() - begun
        if status != "200":
            sys.exit(f"{program} answers {status}: not what was loaded")
        fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S, took, resident_kib(server.pid) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=int, default=1, help="divides the numbers of entries")
    parser.add_argument("--haproxy", default=PROGRAMS["haproxy"], help="the HAProxy to compare with")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    PROGRAMS["haproxy"] = str(pathlib.Path(options.haproxy).resolve())
    programs = {"HAProxy": PROGRAMS["haproxy"], "penstock": PROGRAMS["penstock"]}
    head = ["loaded", *(f"{name}: CPU s" for name in programs), "ratio", *(f"{name}: s to the first answer" for name in programs),
            *(f"{name}: MiB" for name in programs)]
    table = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    rounds: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for title, (full, case) in CASES.items():
        count = full // options.scale
        found = rounds[f"{count:,} {title}"] = {name: [] for name in programs}
        with tempfile.TemporaryDirectory(prefix="penstock-loading-") as name:
            folder, port = pathlib.Path(name), free_port()
            rules, sections = case(folder, count)
            (folder / "haproxy.cfg").write_text(CONFIG.format(port=port, rules=rules) + sections)
            for _ in range(options.rounds):
                for program, path in programs.items():
                    found[program].append(start(path, folder, port))
        columns = [[middle([figures[at] for figures in found[program]], 0 if at == 2 else 2) for program in programs] for at in range(3)]
        ratio = statistics.median(ours[0] / theirs[0] for ours, theirs in zip(found["penstock"], found["HAProxy"], strict=True))
        table.append("| " + " | ".join([f"{count:,} {title}", *columns[0], f"{ratio:.2f}", *columns[1], *columns[2]]) + " |")
        print(table[-1], flush=True)
    text = [
        "# Loading large configurations",
        "",
        f"`scripts/loading.py --rounds {options.rounds}`: a server of one worker from its start to its first answer, which depends on the last of"
        " the entries; CPU of all threads of the process, resident memory after that answer. HAProxy and penstock in turn; medians (range);"
        " the ratio is that of the CPU time, penstock's over HAProxy's, its median over the rounds.",
        "",
        *table,
        "",
        "; ".join(f"{key}: {value}" for key, value in machine()) + ".",
    ]
    if not options.check:
        write_page(TREE / "docs/measurements/loading.md", text, ["loading"], rounds)


if __name__ == "__main__":
    main()
