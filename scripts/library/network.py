"""Where measurements are made: a network of their own, and a CPU that is the server's."""

import os
import pathlib
import shutil
import subprocess
import sys

CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


def stand_aside() -> None:
    """This script itself leaves the server's CPU; and all of us go before what else the machine does."""
    if (os.cpu_count() or 1) >= 2:
        os.sched_setaffinity(0, {1})
    try:
        os.nice(-20)
    except PermissionError:
        pass  # not root: more noise, the same figures


def own_network() -> None:
    """Starts this program again in a network namespace of its own, where this process may make one; the congestion control
    there is the one Debian's kernel comes with, or its plain ancestor where only the whole machine's owner may choose it.

    Some machines are set to BBR, which paces each connection with timers where the queueing discipline does not: a fifth
    of the server's CPU time on a loopback interface, and not the server's doing."""
    if "PENSTOCK_BENCH_NETWORK" in os.environ:
        return choose_congestion_control()
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return
    probe = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True)
    if probe.returncode == 0:
        # With 127.0.0.1 alone, resolvers take a machine for one without IPv4 (AI_ADDRCONFIG), and SSLsplit does not start.
        again = "ip link set lo up && ip address add 127.0.0.2/8 dev lo && exec \"$@\""
        os.environ["PENSTOCK_BENCH_NETWORK"] = "own"
        os.execvp("unshare", ["unshare", "--net", "sh", "-c", again, "sh", sys.executable, *sys.argv])


def choose_congestion_control() -> None:
    for name in ("cubic", "reno"):
        try:
            CONGESTION.write_text(name)
            return
        except OSError:
            pass
