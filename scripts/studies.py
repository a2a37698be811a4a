#!/usr/bin/env python3
"""All studies at their full length, one after the other: four hours on two cores. Writes docs/measurements/STUDY.

    scripts/studies.py [--share S] [--out DIR] [--without LIST] [STUDY...]

--share 0.1 makes every window a tenth as long, to see that all goes through; give --out with it. --without names contestants that
cannot run on this machine: a result without one that was asked for is partial. Loopback, in a network namespace of its own where that
can be had (see scripts/library/network.py). Run through `make studies`, which builds first.
"""

import argparse
import pathlib
import subprocess
import sys
import time

from library.network import own_network
from library.servers import PROGRAMS, TREE

ALL = "haproxy,haproxy-no-ifma,nginx,penstock-native,penstock-sw"
FOUR = "haproxy,nginx,penstock-native,penstock-sw"
THREE = "haproxy,penstock-native,penstock-sw"
# Seconds of a window, the studies' own, and the rest, where their own are for servers of eight cores and more. The longest run without
# those contestants that say least.
STUDIES = {
    "handshake": (30, ["--steps", "1", "--rounds", "5", "--connections", "64", "--contestants", ALL, "--perf"]),
    "handshake-modes": (300, ["--steps", "1", "--rounds", "3", "--connections", "64", "--contestants", THREE]),
    "cores-saved": (60, ["--steps", "1", "--rounds", "3", "--connections", "64", "--contestants", ALL, "--target-rate", "2000"]),
    "max-rate": (120, ["--steps", "1", "--contestants", FOUR]),
    # The second step is on the clients' core too, and the page says so.
    "core-scaling": (120, ["--steps", "1,2", "--server-cores", "0,1", "--client-cores", "1", "--contestants", FOUR]),
    "throughput": (30, ["--steps", "1", "--rounds", "3", "--connections", "32", "--contestants", THREE]),
    "offload": (60, ["--steps", "1", "--rounds", "3", "--connections", "64", "--contestants", THREE]),
    # Squid's windows are short, so that all of them together are half an hour.
    "orchestration": (8, ["--steps", "1", "--rounds", "5", "--connections", "64", "--contestants",
                          "haproxy,penstock-native,penstock-sw,penstock-tcp,squid,sslsplit"]),
    "cpu-against-rate": (30, ["--steps", "1", "--rounds", "3", "--connections", "1000", "--contestants", THREE]),
}


def without(absent, arguments):
    """A study's arguments with its contestants, all but those that are absent."""
    at = arguments.index("--contestants") + 1
    present = [name for name in arguments[at].split(",") if name not in absent.split(",")]
    return [*arguments[:at], ",".join(present), *arguments[at + 1:]]


def run(command, folder):
    """Runs a study. Answers with its exit code, and whether Ctrl-C ended it: that reaches the study itself, which then stops its servers
    and keeps what it measured, if it is given the time."""
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            return process.wait(), False
        except KeyboardInterrupt:
            return process.wait(), True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--without", default="")
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "docs/measurements")
    parser.add_argument("studies", nargs="*", choices=[[], *STUDIES])
    options = parser.parse_args()
    own_network()
    penstock, failed = pathlib.Path(PROGRAMS["penstock"]).resolve(), []
    for name in options.studies or STUDIES:
        seconds, more = STUDIES[name]
        began, out = time.monotonic(), options.out / name
        out.mkdir(parents=True, exist_ok=True)
        # From beside its results, so that the command on the page is one that anybody may type.
        command = [penstock, "bench", "study", name, *without(options.without, more), "--duration", f"{seconds * options.share:g}s",
                   "--out", name]
        code, interrupted = run(command, options.out)
        result = out / "result.json"
        if result.exists():
            subprocess.run([penstock, "bench", "report", result, "--html", out / "report.html", "--svg", out / "figure.svg", "--markdown",
                            out / "README.md"], check=True, stdout=subprocess.DEVNULL)
        # Every histogram and every stack, in some megabytes: not for the repository.
        for file in [out / "raw.jsonl", *out.glob("stacks-*.txt")]:
            file.unlink(missing_ok=True)
        failed += [name] if code else []
        print(f"== {name}: {'partial or failed' if code else 'done'} in {time.monotonic() - began:.0f} s", flush=True)
        if interrupted:
            break
    sys.exit(f"partial or failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
