#!/usr/bin/env python3
"""What the crypto engines cost and gain: full TLS handshakes against one worker, engine beside engine, and beside HAProxy.

    scripts/engines.py rules     when batches close: native and sw under three rules, closed loops and paced arrivals
    scripts/engines.py haproxy   CPU a handshake beside Debian's haproxy, by kind of certificate and key exchange
    scripts/engines.py overload  what is served when two and three times as many come as can be
    scripts/engines.py aborted   what clients cost that are gone after their hello
    scripts/engines.py lonely    one client at a time, and half of native's capacity: what batching must not cost, and what it gains
    scripts/engines.py turns     how long a turn of the queue takes
    scripts/engines.py curve     CPU a handshake against the number of clients, native and sw, as a picture
    options: --rounds N, --seconds S, --kind NAME (of handshakes, for `haproxy` and `turns`; may be repeated),
             --quota SHARE (of a core, for the server, by cgroup; 0 for none, as `lonely` always has it)

All servers run all the time and are loaded in turn. The figure is the server's own CPU time, as in scripts/bench.py; build
with scripts/bench.sh or `cargo build --release -p penstock -p penstock-tests --bins` first. Needs root for the quota. Writes docs/measurements/engine-*.
"""

import argparse
import math
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from library.clients import handshakes
from library.figures import cpu_ns, machine, write_page
from library.network import own_network
from library.servers import LOAD, PROGRAMS, TREE, certificate, free_port, pinned, run, serve

DOCS = TREE / "docs/measurements"
# Name in tables, certificate, what the client asks for, the most of HAProxy's CPU time that is promised.
KINDS = {
    "tls12-rsa2048-p256": ("TLS 1.2 ECDHE-RSA-2048, P-256", "rsa2048", ["tls12", "p256"], 0.28),
    "tls13-rsa2048-x25519": ("TLS 1.3 RSA-2048, X25519", "rsa2048", ["tls13", "x25519"], 0.25),
    "tls13-rsa2048-x25519-every-suite":
        ("TLS 1.3 RSA-2048, X25519, a suite of the server's choice", "rsa2048", ["tls13", "x25519", "every-suite"], 0.25),
    "tls13-rsa4096-x25519": ("TLS 1.3 RSA-4096, X25519", "rsa4096", ["tls13", "x25519"], 0.19),
    "tls13-p256-x25519": ("TLS 1.3 ECDSA P-256, X25519", "p256", ["tls13", "x25519"], 0.24),
}
ENGINES = {
    "native": ["tune.crypto.engine native"],
    "A": ["tune.crypto.engine sw", "tune.crypto.batch-close ready"],
    "B": ["tune.crypto.engine sw"],
    "C": ["tune.crypto.engine sw", "tune.crypto.batch-delay 300us"],
}
CONFIG = """\
global
    nbthread 1
    maxconn 9500
    {settings}
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend tls
    bind 127.0.0.1:{tls} ssl crt {cert}
    monitor-uri /alive
frontend metrics
    bind 127.0.0.1:{metrics}
    http-request use-service prometheus-exporter if {{ path /metrics }}
"""


class Quota:
    """A share of a core for the servers, by the cpu controller of cgroups version 1 or 2; each server has its own."""

    PERIOD_US = 10000

    def __init__(self, share):
        self.share = share
        self.groups = []

    def hold(self, pid):
        if not self.share:
            return
        one = pathlib.Path("/sys/fs/cgroup/cpu")
        group = (one if one.is_dir() else pathlib.Path("/sys/fs/cgroup")) / f"penstock-bench-{pid}"
        group.mkdir()
        self.groups.append(group)
        quota = int(self.PERIOD_US * self.share)
        if one.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(self.PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {self.PERIOD_US}")
        (group / "cgroup.procs").write_text(str(pid))

    def release(self):
        for group in self.groups:
            try:
                group.rmdir()
            except OSError as e:
                print(f"{group} stays: {e}", file=sys.stderr)


class Server:
    """One running server and what is read of it."""

    def __init__(self, lab, name, program, cert, settings):
        self.name, self.tls, self.metrics = name, free_port(), free_port()
        text = CONFIG.format(settings="\n    ".join(settings), tls=self.tls, metrics=self.metrics, cert=lab.cert(cert))
        self.server = serve(program, lab.folder / f"{name}-{cert}.cfg", text, self.tls, cpu=0)
        lab.quota.hold(self.server.pid)

    def counters(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                if line.startswith("penstock_engine_")}

    def load(self, command, what):
        """CPU time for a handshake and the client's times, in µs, with what the engine's counters say of the load."""
        ours = self.name != "haproxy"
        before = self.counters() if ours else {}
        cpu = cpu_ns(self.server.pid)
        done, p50, p99, _ = handshakes(f"127.0.0.1:{self.tls}", command, what)
        cpu = cpu_ns(self.server.pid) - cpu
        if not done:
            sys.exit(f"{self.name}: no handshake was completed")
        found = {"cpu": cpu / done / 1000, "p50": p50, "p99": p99, "done": done}
        if ours:
            # Workers report five times a second.
            time.sleep(0.5)
            after = self.counters()
            moved = lambda key: after.get(key, 0) - before.get(key, 0)
            signs = ["rsa2048", "rsa4096", "ecdsa-p256"]
            batches = sum(moved(f'penstock_engine_batches_total{{class="{c}"}}') for c in signs)
            filled = sum(moved(f'penstock_engine_batch_operations_sum{{class="{c}"}}') for c in signs)
            found["fill"] = filled / batches if batches else math.nan
            found["turn"] = after.get("penstock_engine_turn_seconds_max", 0) * 1e6
            turns = moved("penstock_engine_turn_seconds_count")
            found["turns"] = turns
            found["in budget"] = moved('penstock_engine_turn_seconds_bucket{le="0.0003"}') / turns if turns else math.nan
            found["stacks"] = after.get('penstock_engine_stacks{state="most"}', 0)
            found["closed"] = {reason: int(moved(f'penstock_engine_closed_total{{reason="{reason}"}}'))
                               for reason in ("full", "age", "idle")}
        return found

    def stop(self):
        self.server.stop()


class Lab:
    def __init__(self, folder, quota):
        self.folder, self.quota, self.certs, self.servers = pathlib.Path(folder), Quota(quota), {}, []

    def cert(self, kind):
        if kind not in self.certs:
            self.certs[kind] = certificate(self.folder, kind)
        return self.certs[kind]

    def server(self, name, cert="rsa2048"):
        program = PROGRAMS["haproxy" if name == "haproxy" else "penstock"]
        self.servers.append(Server(self, name, program, cert, ENGINES.get(name, [])))
        return self.servers[-1]

    def stop(self):
        for server in self.servers:
            server.stop()
        self.quota.release()


def in_turn(servers, command, what, rounds):
    """Loads each server in turn; the figures of each round by server."""
    found = {server.name: [] for server in servers}
    for number in range(rounds):
        for server in servers if number % 2 == 0 else servers[::-1]:
            found[server.name].append(server.load(command, what))
    return found


def middle(figures, key):
    return statistics.median(figure[key] for figure in figures)


def gain(found, name, base):
    """How many times less CPU than the base, median of medians, and the range over the rounds."""
    ratios = [b["cpu"] / a["cpu"] for a, b in zip(found[name], found[base])]
    return middle(found[base], "cpu") / middle(found[name], "cpu"), min(ratios), max(ratios)


def heading(title, options, extra=()):
    facts = [(k, v) for k, v in machine() if k != "nginx"]
    quota = f"each server held to {options.quota} of a core" if options.quota else "no quota"
    return [f"# {title}", "", f"`scripts/engines.py {' '.join(sys.argv[1:])}`: {options.rounds} rounds in turn, {quota}; medians.",
            "The machine was shared with other work: trust the ratios before the times.", *extra, "",
            "| machine | |", "|---|---|", *[f"| {k} | {v} |" for k, v in facts], ""]


def rules(lab, options):
    servers = [lab.server(name) for name in ENGINES]
    what = ["tls13", "x25519"]
    in_turn(servers, ["handshakes", 200, 16], what, 1)  # keys are prepared, caches warm
    loads = [(f"{clients} clients", ["handshakes", n, clients]) for clients, n in
             ((1, 300), (8, 1500), (64, 2500), (512, 3000))]
    found = {}
    for name, command in loads:
        found[name] = in_turn(servers, command, what, options.rounds)
        print(name, {k: round(gain(found[name], k, "native")[0], 2) for k in "ABC"}, flush=True)
    # What native does in a second of CPU; of the share it has.
    capacity = 1e6 / middle(found["64 clients"]["native"], "cpu") * (options.quota or 1)
    for percent in (30, 60, 90, 150):
        name = f"paced, {percent} %"
        found[name] = in_turn(servers, ["arrivals", round(capacity * percent / 100), options.seconds], what, options.rounds)
        print(name, {k: round(gain(found[name], k, "native")[0], 2) for k in "ABC"}, flush=True)
    lines = heading("When a batch closes", options, [
        "", "TLS 1.3, RSA-2048, X25519, AES-256. A: in the first turn after the ready events. B: after one more empty poll. "
        "C: as B, then after a wait of up to 300 µs.", f"Paced arrivals are in percent of what native can do ({capacity:.0f}/s)."])
    lines += ["| load | native, µs CPU | p50 / p99, ms | " + " | ".join(
        f"{rule}: gain (range) | fill | p50 / p99, ms" for rule in "ABC") + " |", "|---" * (3 + 9) + "|"]
    times = lambda figures: f"{middle(figures, 'p50') / 1000:.1f} / {middle(figures, 'p99') / 1000:.1f}"
    for name, figures in found.items():
        row = [name, f"{middle(figures['native'], 'cpu'):.0f}", times(figures["native"])]
        for rule in "ABC":
            ratio, low, high = gain(figures, rule, "native")
            row += [f"**{ratio:.2f}** ({low:.2f}–{high:.2f})", f"{middle(figures[rule], 'fill'):.1f}", times(figures[rule])]
        lines.append("| " + " | ".join(row) + " |")
    lines += ["", "| rule | longest turn, µs CPU | most stacks | closed full / by age / idle (512 clients) |", "|---|---|---|---|"]
    for rule in "ABC":
        last = [figures[rule][-1] for figures in found.values()]
        closed = found["512 clients"][rule][-1]["closed"]
        lines.append(f"| {rule} | {max(f['turn'] for f in last):.0f} | {max(f['stacks'] for f in last):.0f} | "
                     f"{closed['full']} / {closed['age']} / {closed['idle']} |")
    write_page(DOCS / "engine-closing-rules.md", lines, ["machine", "rules", "ages"], found)
    print("\n".join(lines))


def haproxy(lab, options):
    lines = heading("Handshakes beside HAProxy", options)
    lines += ["| handshake | clients | HAProxy, µs | native, µs | sw, µs | sw / HAProxy (range) | promised | sw / native | fill |",
              "|---" * 9 + "|"]
    rounds = {}
    for name, cert, what, promise in [KINDS[kind] for kind in options.kind or KINDS]:
        servers = [lab.server(server, cert) for server in ("haproxy", "native", "B")]
        in_turn(servers, ["handshakes", 100, 16], what, 1)
        for clients in (64, 512):
            count = 600 if cert == "rsa4096" else 2000
            found = rounds[f"{name}, {clients} clients"] = in_turn(servers, ["handshakes", count, clients], what, options.rounds)
            ratios = [a["cpu"] / b["cpu"] for a, b in zip(found["B"], found["haproxy"])]
            cpu = {k: middle(v, "cpu") for k, v in found.items()}
            ratio = cpu["B"] / cpu["haproxy"]
            lines.append(f"| {name} | {clients} | {cpu['haproxy']:.0f} | {cpu['native']:.0f} | {cpu['B']:.0f} | **{ratio:.2f}** "
                         f"({min(ratios):.2f}–{max(ratios):.2f}) | {promise:.2f} | {cpu['B'] / cpu['native']:.2f} | "
                         f"{middle(found['B'], 'fill'):.1f} |")
            print(lines[-1], flush=True)
        for server in servers:
            server.stop()
            lab.servers.remove(server)
    write_page(DOCS / "engine-haproxy.md", lines, ["machine", "handshakes"], rounds)


def overload(lab, options):
    """RSA-4096 on `native`: what is served when more come than can be."""
    server = lab.server("native", "rsa4096")
    what = ["tls13", "x25519"]
    server.load(["handshakes", 100, 16], what)
    rates = {}

    def rate(name, command):
        away = server.counters()["penstock_engine_turned_away_total"]
        began = time.monotonic()
        found = server.load(command, what)
        found["rate"] = found["done"] / (time.monotonic() - began)
        found["away"] = server.counters()["penstock_engine_turned_away_total"] - away
        rates.setdefault(name, []).append(found)
        print(name, round(found["rate"]), f"{found['p99'] / 1000:.0f} ms", int(found["away"]), flush=True)

    for _ in range(options.rounds):
        rate("64 clients at once", ["handshakes", 1200, 64])
        peak = middle(rates["64 clients at once"], "rate")
        for times in (1, 2, 3):
            rate(f"arrivals at {times} x", ["arrivals", round(peak * times), options.seconds])
    lines = heading("Handshakes at overload", options)
    lines += ["RSA-4096 on the engine `native`, one at a time, TLS 1.3; `tune.crypto.max-wait` is 2 s, its default. Arrivals do not wait for",
              "answers; a handshake's time counts from when it was due, and a rate includes the time until the last is answered.",
              "Turned away are those that are told at once, by a closed connection, that the line is too long.", "",
              "| load | handshakes a second (range) | of the peak | p50, ms | p99, ms (worst round) | turned away |", "|---" * 6 + "|"]
    for name, found in rates.items():
        all_rates = [f["rate"] for f in found]
        lines.append(f"| {name} | {middle(found, 'rate'):.0f} ({min(all_rates):.0f}–{max(all_rates):.0f}) | "
                     f"**{middle(found, 'rate') / peak:.2f}** | {middle(found, 'p50') / 1000:.0f} | "
                     f"{middle(found, 'p99') / 1000:.0f} ({max(f['p99'] for f in found) / 1000:.0f}) | {middle(found, 'away'):.0f} |")
    write_page(DOCS / "engine-overload.md", lines, ["machine", "overload"], rates)
    print("\n".join(lines))


def aborted(lab, options):
    """Clients that are gone after their hello."""
    lines = heading("Clients that are gone after their hello", options)
    lines += ["TLS 1.3, RSA-2048, X25519: a client connects, sends its ClientHello and resets the connection at once. Stock rustls on blocking",
              "sockets spends 720 µs of CPU on one, as it signs for nobody.", "", "| engine | µs of server CPU each (range) |", "|---|---|"]
    servers = [lab.server(name) for name in ("native", "B")]
    in_turn(servers, ["handshakes", 200, 16], [], 1)
    found = {server.name: [] for server in servers}
    for _ in range(options.rounds):
        for server in servers:
            before = cpu_ns(server.server.pid)
            run([str(LOAD), "aborted", f"127.0.0.1:{server.tls}", "2000"])
            time.sleep(0.5)
            found[server.name].append((cpu_ns(server.server.pid) - before) / 2000 / 1000)
    for name, figures in found.items():
        shown = "sw" if name == "B" else name
        lines.append(f"| {shown} | **{statistics.median(figures):.0f}** ({min(figures):.0f}–{max(figures):.0f}) |")
    write_page(DOCS / "engine-aborted.md", lines, ["machine", "aborted"], found)
    print("\n".join(lines))


def lonely(lab, options):
    """One client at a time, and half of what native can do."""
    servers = [lab.server(name) for name in ("native", "B")]
    what = ["tls13", "x25519"]
    in_turn(servers, ["handshakes", 300, 16], what, 1)
    busy = in_turn(servers, ["handshakes", 1500, 64], what, 1)
    half = round(0.5e6 / busy["native"][0]["cpu"] * (options.quota or 1))
    loads = [("one client", ["handshakes", 500, 1]), (f"{half} arrivals a second, half of native's capacity", ["arrivals", half, options.seconds])]
    lines = heading("One client at a time, and half of capacity", options)
    lines += ["TLS 1.3, RSA-2048, X25519.", "", "| load | native: µs CPU | p50 / p99, ms | sw: µs CPU | p50 / p99, ms | CPU, sw / native (range) | "
              "p50, sw / native (range) | fill | turns within 300 µs |", "|---" * 9 + "|"]
    rounds = {}
    for name, command in loads:
        found = rounds[name] = in_turn(servers, command, what, options.rounds)
        for server, figures in found.items():
            print(server, [(round(f["cpu"]), f["p50"]) for f in figures], flush=True)
        ratio = lambda key: [b[key] / a[key] for a, b in zip(found["native"], found["B"])]
        cells = [name]
        for server in ("native", "B"):
            cells += [f"{middle(found[server], 'cpu'):.0f}", f"{middle(found[server], 'p50') / 1000:.2f} / {middle(found[server], 'p99') / 1000:.1f}"]
        for key in ("cpu", "p50"):
            cells.append(f"**{statistics.median(ratio(key)):.2f}** ({min(ratio(key)):.2f}–{max(ratio(key)):.2f})")
        fill = middle(found["B"], "fill")
        cells += ["none" if math.isnan(fill) else f"{fill:.1f}", f"{100 * middle(found['B'], 'in budget'):.1f} %"]
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    write_page(DOCS / "engine-lonely.md", lines, ["machine", "lonely"], rounds)


# The same work again and again, which takes 190 µs at best, what is planned of a turn: in what the machine makes of it.
ALWAYS_THE_SAME = """
import hashlib, sys, time
def took(size):
    began = time.thread_time_ns()
    hashlib.sha256(memory[:size]).digest()
    return (time.thread_time_ns() - began) / 1000
memory = memoryview(bytes(1 << 20))
sys.stdin.read(1)
size = int((1 << 18) * 190 / min(took(1 << 18) for _ in range(200)))
pieces = sorted(took(size) for _ in range(5000))
print(sum(piece <= 300 for piece in pieces) / len(pieces), *pieces[-3:])
"""


def always_the_same(lab):
    """The share of its pieces that take no longer than a turn may, and the longest three, in µs."""
    child = subprocess.Popen(pinned(0, [sys.executable, "-c", ALWAYS_THE_SAME]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lab.quota.hold(child.pid)
    within, *longest = map(float, child.communicate("\n")[0].split())
    return within, longest


def turns(lab, options):
    """How long a turn of the queue takes of the thread, where nothing but handshakes is asked for."""
    lines = heading("How long a turn takes", options)
    lines += ["CPU time of the turns of the engine `sw`'s queue (public-key work, and the waking of those who waited), as the server counts it;",
              "the budget is 300 µs. The thread's CPU time includes what interrupts and a hypervisor take of it.", "",
              "| handshake | clients | turns | within 300 µs | the longest of each round, µs |", "|---" * 5 + "|"]
    kinds = [KINDS[kind][:3] for kind in options.kind or KINDS]
    kinds.append(("TLS 1.3 RSA-2048, X25519MLKEM768", "rsa2048", ["tls13", "hybrid"]))
    for name, cert, what in kinds:
        for clients in (64, 512):
            rounds = []
            for _ in range(options.rounds):
                # A server for each round: the longest turn is the longest since its start.
                server = lab.server("B", cert)
                server.load(["handshakes", 64, 8], what)
                rounds.append(server.load(["handshakes", 300 if cert == "rsa4096" else 1000, clients], what))
                server.stop()
                lab.servers.remove(server)
            counted = sum(f["turns"] for f in rounds)
            within = sum(f["turns"] * f["in budget"] for f in rounds) / counted
            longest = ", ".join(f"{f['turn']:.0f}" for f in rounds)
            lines.append(f"| {name} | {clients} | {counted:.0f} | **{100 * within:.2f} %** | {longest} |")
            print(lines[-1], flush=True)
    within, longest = always_the_same(lab)
    lines += ["", f"What the machine adds: of 5000 pieces of work that are always the same and take 190 µs at best, held to the same share, {100 * within:.2f} % took up to "
              f"300 µs; the longest took {', '.join(f'{us:.0f}' for us in longest)}."]
    print(lines[-1], flush=True)
    write_page(DOCS / "engine-turns.md", lines, ["machine", "turns"])


def curve(lab, options):
    servers = [lab.server(name) for name in ("native", "B")]
    in_turn(servers, ["handshakes", 200, 16], [], 1)
    points = []
    for power in range(11):
        clients = 2**power
        count = max(200, min(2500, clients * 40))
        found = in_turn(servers, ["handshakes", count, clients], ["tls13", "x25519"], options.rounds)
        points.append((clients, middle(found["native"], "cpu"), middle(found["B"], "cpu"), middle(found["B"], "fill")))
        print(points[-1], flush=True)
    lines = heading("CPU for a handshake against the number of clients", options)
    lines += ["TLS 1.3, RSA-2048, X25519.", "", "![curve](engine-curve.svg)", "", "| clients | native, µs | sw, µs | fill |",
              "|---|---|---|---|"]
    lines += [f"| {c} | {n:.0f} | {s:.0f} | {'' if math.isnan(f) else f'{f:.1f}'} |" for c, n, s, f in points]
    write_page(DOCS / "engine-curve.md", lines, ["machine", "curve"], {"points": points})
    (DOCS / "engine-curve.svg").write_text(picture(points))


def picture(points):
    """Two lines over a logarithmic axis of clients."""
    width, height, left, bottom = 640, 360, 60, 40
    top = max(max(p[1], p[2]) for p in points) * 1.1
    x = lambda clients: left + (width - left - 20) * math.log2(clients) / 10
    y = lambda us: height - bottom - (height - bottom - 20) * us / top
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for us in range(0, int(top), 100):
        out.append(f'<path d="M{left} {y(us):.1f}H{width - 20}" stroke="#ddd"/><text x="{left - 8}" y="{y(us) + 4:.1f}" '
                   f'text-anchor="end">{us}</text>')
    for power in range(11):
        out.append(f'<text x="{x(2**power):.1f}" y="{height - bottom + 18}" text-anchor="middle">{2**power}</text>')
    for place, name, colour in ((1, "native", "#c33"), (2, "sw", "#36c")):
        path = " ".join(f"{x(p[0]):.1f},{y(p[place]):.1f}" for p in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - 24}" y="{y(points[-1][place]) - 8:.1f}" text-anchor="end" fill="{colour}">{name}</text>')
    out.append(f'<text x="{left}" y="14">µs of server CPU for a full handshake</text>'
               f'<text x="{width - 20}" y="{height - 6}" text-anchor="end">clients at once</text></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["rules", "haproxy", "overload", "aborted", "lonely", "turns", "curve"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--quota", type=float, default=0.4)
    options = parser.parse_args()
    own_network()
    if options.study == "lonely":
        # Half of a core's share comes to a fifth of the clock, in which handshakes seldom meet.
        options.quota = 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    DOCS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-engines-") as folder:
        lab = Lab(folder, options.quota)
        try:
            {"rules": rules, "haproxy": haproxy, "overload": overload, "aborted": aborted, "lonely": lonely, "turns": turns, "curve": curve}[options.study](lab, options)
        finally:
            lab.stop()


if __name__ == "__main__":
    main()
