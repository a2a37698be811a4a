"""Clients that load a server."""

import json
import re
import subprocess
import sys
from collections.abc import Collection, Sequence

from library.servers import PROGRAMS, pinned, run

# What a client may be told to insist on. It offers suites with AES-256 alone, or with "aes128" that; with "every-suite" all it has, and
# the server chooses.
WISHES: dict[str, list[str]] = {"tls12": ["--tls", "1.2"], "tls13": ["--tls", "1.3"], "x25519": ["--group", "x25519"], "p256": ["--group", "p256"],
          "hybrid": ["--group", "x25519mlkem768"], "aes128": [], "every-suite": []}
SUITES = "TLS_AES_{0}_GCM_{1},TLS_ECDHE_RSA_WITH_AES_{0}_GCM_{1},TLS_ECDHE_ECDSA_WITH_AES_{0}_GCM_{1}"


def handshakes(address: str, how: Sequence[str | float], what: Collection[str] = ()) -> tuple[int, float, float, float]:
    """Full handshakes without a request, TLS 1.3 with X25519 unless `what` says otherwise: how many were completed, and the median, the
    99th percentile and the longest of their times in µs, from when each was due. `how` is ["handshakes", COUNT, CLIENTS], or
    ["arrivals", RATE, SECONDS], which do not wait for answers."""
    kind, many, span = how
    closed = ["-n", many, "-c", span, "-d", "600s"]
    pace = closed if kind == "handshakes" else ["--rate", many, "-d", f"{span}s", "-c", "512"]
    wishes = [word for wish in what for word in WISHES[wish]]
    if not {"tls12", "tls13"} & set(what):
        wishes += WISHES["tls13"]
    if not {"x25519", "p256", "hybrid"} & set(what):
        wishes += WISHES["x25519"]
    suites = ["--suite", SUITES.format(*(("128", "SHA256") if "aes128" in what else ("256", "SHA384")))]
    if "every-suite" in what:
        suites = []
    command = [PROGRAMS["penstock"], "bench", "load", f"https://{address}/", "--mode", "handshake", "--sni", "localhost", "--timeout", "30s",
               *suites, "--quiet", "--json", "-", *pace, *wishes]
    done = subprocess.run(pinned(1, [str(word) for word in command]), capture_output=True, text=True, timeout=700)
    # 2: some units failed; at overload they are meant to.
    if done.returncode not in (0, 2):
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    report = json.loads(done.stdout)
    times = report["latency"]["total"]
    return report["done"] + report["late"], times["p50_us"], times["p99_us"], times["max_us"]


def h2load(count: int, arguments: Sequence[str], url: str) -> int:
    """Makes `count` requests, none of which may fail; returns how many succeeded."""
    out = run(["h2load", "-n", str(count), *arguments, url])
    found = re.search(r"(\d+) succeeded", out)
    good = int(found.group(1)) if found else 0
    if good != count:
        sys.exit(f"{good} of {count} requests succeeded:\n{out}")
    return count
