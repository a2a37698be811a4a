"""Figures of a running server, of this machine, and of several rounds; and the pages they are written to."""

import datetime
import os
import pathlib
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from library import pages
from library.network import CONGESTION
from library.servers import PROGRAMS, TREE


def cpu_ns_by_thread(pid: int) -> dict[str, int]:
    """CPU time of each thread that lives."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return found


def cpu_ns(pid: int) -> int:
    """CPU time of all threads, those that have ended excepted: both servers keep theirs."""
    return sum(cpu_ns_by_thread(pid).values())


def resident_kib(pid: int) -> int:
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Rss:\s+(\d+) kB", text, re.M)
    assert found, text
    return int(found.group(1))


def middle(values: Sequence[float], digits: int) -> str:
    """Median, and range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def load_average() -> str:
    return f"load average at the end {os.getloadavg()[0]:.1f}"


def built(program: pathlib.Path) -> str:
    """What scripts/release.sh made it of and how, or the commit of this tree where it is of this tree."""
    how = program.parent / "how"
    if how.exists():
        return how.read_text().strip()
    if not program.is_relative_to(TREE):
        return str(program)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=TREE, capture_output=True, text=True)
    return f"commit {head.stdout.strip()}"


def of_penstock() -> str:
    """What the penstock that is measured was made of."""
    return built(pathlib.Path(PROGRAMS["penstock"]).resolve())


def machine() -> list[tuple[str, str]]:
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    haproxy = subprocess.run([PROGRAMS["haproxy"], "-v"], capture_output=True, text=True).stdout.splitlines()[0]
    return [
        ("CPU", f"{cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} CPUs visible"),
        # What follows the first hyphen names the build of this host's image.
        ("kernel", f"{platform.release().partition('-')[0]}, congestion control {CONGESTION.read_text().strip()}"),
        ("haproxy", haproxy),
        ("penstock", of_penstock()),
        ("nginx", subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip()),
        ("load average at the end", " ".join(f"{x:.1f}" for x in os.getloadavg())),
        ("date", now()),
    ]


def write_page(page: pathlib.Path, lines: Iterable[str], tables: Sequence[str], rounds: Mapping[str, Any] | None = None) -> None:
    """What was measured, in the place of what was measured before: the page, whose tables get these names, and its data, with what each
    round gave. Sections, from the first "## " on, were written by hand: they stay."""
    before = page.read_text() if page.exists() else ""
    pages.write(page, "\n".join(lines) + "\n" + "".join(before.partition("\n## ")[1:]), tables, rounds)
