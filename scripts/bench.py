#!/usr/bin/env python3
"""penstock beside Debian's haproxy, on one configuration, one worker each: server CPU time per unit of work.

The two servers run all the time and are loaded in turn (A B A B), so that what else the machine does falls on both. The
figure is the server's own CPU time from /proc/PID/task/*/schedstat, in nanoseconds: neither the client's speed nor the
wall clock enters it. Run through scripts/bench.sh, which builds first; PENSTOCK_BIN names another penstock, for the other scripts here too.

    scripts/bench.sh [--rounds N] [--quick] [MEASURE...]      measures: handshake saturated http1 http2 bulk idle
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
LOAD = TREE / "target/release/penstock-load"
PROGRAMS = {"haproxy": shutil.which("haproxy"), "penstock": os.environ.get("PENSTOCK_BIN", str(TREE / "target/release/penstock"))}

# What HAProxy's figure is multiplied by to give the most penstock may use.
PROMISES = {"handshake": 0.62, "saturated": 0.62, "http1": 0.60, "http2": 1.0, "bulk": 0.75}
IDLE_PROMISE_KIB = 6.0

CONFIG = """\
global
    nbthread 1
    maxconn 9500
    log {syslog} local0
{own}defaults
    mode http
    log global
    option httplog
    timeout connect 5s
    timeout client 300s
    timeout server 60s
frontend tls
    bind {tls} ssl crt {cert} alpn h2,http/1.1
    monitor-uri /alive
    default_backend web
backend web
    server s1 {nginx}
"""

NGINX = """\
daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; server_tokens off; etag off; keepalive_requests 100000000; sendfile on; tcp_nopush on;
    client_body_temp_path body; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    server {{ listen {nginx}; root www; }}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


KEYS = {
    "rsa2048": ["rsa:2048"],
    "rsa3072": ["rsa:3072"],
    "rsa4096": ["rsa:4096"],
    "p256": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
    "p384": ["ec", "-pkeyopt", "ec_paramgen_curve:secp384r1"],
}


def certificate(folder, kind="rsa2048", names="DNS:localhost"):
    """A new certificate that signs itself, and its key, in one file: KIND.pem."""
    key, cert = pathlib.Path(folder) / f"{kind}.key", pathlib.Path(folder) / f"{kind}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", *KEYS[kind], "-nodes", "-days", "30", "-subj", "/CN=localhost",
                    "-addext", f"subjectAltName={names}", "-keyout", key, "-out", cert], check=True, capture_output=True)
    cert.write_text(cert.read_text() + key.read_text())
    return cert


def wait_listening(port, process):
    for _ in range(500):
        if process.poll() is not None:
            sys.exit(f"{process.args} ended at once: {pathlib.Path(process.log).read_text()}")
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    sys.exit(f"nothing listens on {port}")


def cpu_ns(pid):
    """CPU time of all threads, those that have ended excepted: both servers keep theirs."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return total


def resident_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss:\s+(\d+) kB", text, re.M).group(1))


def pinned(cpu, command):
    """Server on one CPU, clients and origin on another, where there are two."""
    if os.cpu_count() < 2 or not shutil.which("taskset"):
        return command
    return ["taskset", "-c", str(cpu), *command]


def stand_aside():
    """The log sink, this script itself, leaves the server's CPU; and all of us go before what else the machine does."""
    if os.cpu_count() >= 2:
        os.sched_setaffinity(0, {1})
    try:
        os.nice(-20)
    except PermissionError:
        pass  # not root: more noise, the same figures


def own_network():
    """Starts this script again in a network namespace of its own, where this process may make one; the congestion control
    there is the one Debian's kernel comes with, or its plain ancestor where only the whole machine's owner may choose it.

    Some machines are set to BBR, which paces each connection with timers where the queueing discipline does not: a fifth
    of the server's CPU time on a loopback interface, and not the server's doing."""
    if "PENSTOCK_BENCH_NETWORK" in os.environ:
        return choose_congestion_control()
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return
    probe = subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True)
    if probe.returncode == 0:
        again = "ip link set lo up && exec \"$@\""
        os.environ["PENSTOCK_BENCH_NETWORK"] = "own"
        os.execvp("unshare", ["unshare", "--net", "sh", "-c", again, "sh", sys.executable, *sys.argv])


CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")


def choose_congestion_control():
    for name in ("cubic", "reno"):
        try:
            CONGESTION.write_text(name)
            return
        except OSError:
            pass


def run(command):
    done = subprocess.run(pinned(1, command), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


# What a client may be told to insist on. It offers suites with AES-256 alone, or with "aes128" that; with "every-suite" all it has, and
# the server chooses.
WISHES = {"tls12": ["--tls", "1.2"], "tls13": ["--tls", "1.3"], "x25519": ["--group", "x25519"], "p256": ["--group", "p256"],
          "hybrid": ["--group", "x25519mlkem768"], "aes128": [], "every-suite": []}
SUITES = "TLS_AES_{0}_GCM_{1},TLS_ECDHE_RSA_WITH_AES_{0}_GCM_{1},TLS_ECDHE_ECDSA_WITH_AES_{0}_GCM_{1}"


def handshakes(address, how, what=()):
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


def h2load(count, arguments, url):
    out = run(["h2load", "-n", str(count), *arguments, url])
    good = int(re.search(r"(\d+) succeeded", out).group(1))
    if good != count:
        sys.exit(f"{good} of {count} requests succeeded:\n{out}")
    return count


class Bench:
    def __init__(self, folder, quick, engine="native"):
        self.engine = engine
        self.folder = pathlib.Path(folder)
        self.scale = 0.2 if quick else 1.0
        self.processes = []
        self.servers = {}
        self.sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sink.bind(("127.0.0.1", 0))
        threading.Thread(target=self.swallow, daemon=True).start()
        self.start()

    def swallow(self):
        while True:
            self.sink.recv(65536)

    def spawn(self, cpu, command, **how):
        path = self.folder / f"{pathlib.Path(command[0]).name}.out"
        log = open(path, "w")
        process = subprocess.Popen(pinned(cpu, command), stdout=log, stderr=log, cwd=self.folder, **how)
        process.log = path
        self.processes.append(process)
        return process

    def origin(self, files):
        """An nginx that serves these files; its address."""
        www = self.folder / "www"
        www.mkdir()
        for name, content in files.items():
            (www / name).write_bytes(content)
        port = free_port()
        (self.folder / "nginx.conf").write_text(NGINX.format(nginx=f"127.0.0.1:{port}"))
        binary = shutil.which("nginx")
        process = self.spawn(1, [binary, "-p", str(self.folder), "-e", "error.log", "-c", "nginx.conf"])
        wait_listening(port, process)
        return f"127.0.0.1:{port}"

    def start(self):
        nginx = self.origin({"200": b"x" * 200, "1m": os.urandom(1 << 20)})
        cert = certificate(self.folder)
        for name, program in PROGRAMS.items():
            port = free_port()
            config = self.folder / f"{name}.cfg"
            config.write_text(CONFIG.format(syslog=f"127.0.0.1:{self.sink.getsockname()[1]}", tls=f"127.0.0.1:{port}",
                                            cert=cert, nginx=nginx,
                                            own=f"    tune.crypto.engine {self.engine}\n" if name == "penstock" else ""))
            process = self.spawn(0, [program, "-db", "-f", str(config)])
            wait_listening(port, process)
            # taskset replaces itself by the program, so that this is the server's own pid.
            self.servers[name] = (process.pid, f"127.0.0.1:{port}")

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def units(self, measure, address):
        """Loads one server and returns how many units of work it did."""
        url = f"https://{address}"
        n = lambda count: max(1, int(count * self.scale))
        if measure in ("handshake", "saturated"):
            if measure == "handshake":
                # 600 a second, about half of what HAProxy takes; one or two more arrive while the window closes.
                wanted, done = n(900), handshakes(address, ["arrivals", 600, 1.5 * self.scale], ["every-suite"])[0]
                complete = done >= wanted
            else:
                wanted, done = n(1000), handshakes(address, ["handshakes", n(1000), 16], ["every-suite"])[0]
                complete = done == wanted
            if not complete:
                sys.exit(f"{done} of {wanted} handshakes were completed")
            return done
        if measure == "http1":
            return h2load(n(40000), ["--h1", "-c", "64"], f"{url}/200")
        if measure == "http2":
            return h2load(n(20000), ["-c", "16", "-m", "8"], f"{url}/200")
        if measure == "bulk":
            return h2load(n(200), ["--h1", "-c", "8"], f"{url}/1m") * (1 << 20) / 1e9
        raise ValueError(measure)

    def cpu_per_unit(self, measure, name):
        pid, address = self.servers[name]
        before = cpu_ns(pid)
        done = self.units(measure, address)
        time.sleep(0.1)
        return (cpu_ns(pid) - before) / done

    def idle(self, name):
        """KiB a connection, from the slope between 1,000 and 9,000 idle ones, which come a thousand a second: a crowd's handshakes at once
        would leave their memory behind."""
        pid, address = self.servers[name]
        sizes = []
        for count in (1000, 9000):
            command = [PROGRAMS["penstock"], "bench", "load", f"https://{address}/alive", "--mode", "idle", "-c", str(count), "-d", "120s",
                       "--rate", "1000", "--tls", "1.3", "--quiet", "--json", "-"]
            client = subprocess.Popen(pinned(1, command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            opened = lambda: len(os.listdir(f"/proc/{pid}/fd"))
            until = time.monotonic() + 60
            while opened() < count and time.monotonic() < until:
                time.sleep(0.1)
            # The last has a handshake and a request before it is idle.
            time.sleep(2)
            sizes.append(resident_kib(pid))
            client.send_signal(signal.SIGINT)
            held = json.loads(client.communicate(timeout=60)[0])["held"]
            if held != count:
                sys.exit(f"{name} held {held} idle connections, not {count}")
            while opened() > 100 and time.monotonic() < until:
                time.sleep(0.1)
        return (sizes[1] - sizes[0]) / 8000


def built(program):
    """What scripts/release.sh made it of and how, or the commit of this tree where it is of this tree."""
    how = program.parent / "how"
    if how.exists():
        return how.read_text().strip()
    if not program.is_relative_to(TREE):
        return str(program)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=TREE, capture_output=True, text=True)
    return f"commit {head.stdout.strip()}"


def machine():
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    first = lambda command: subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
    return [
        ("CPU", f"{cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} CPUs visible"),
        ("kernel", f"{platform.release()}, congestion control {CONGESTION.read_text().strip()}"),
        ("haproxy", first([PROGRAMS["haproxy"], "-v"])),
        ("penstock", built(pathlib.Path(PROGRAMS["penstock"]).resolve())),
        ("nginx", subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip()),
        ("load average at the end", " ".join(f"{x:.1f}" for x in os.getloadavg())),
        ("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
    ]


WHAT = {
    "handshake": ("full TLS 1.3 handshake, RSA-2048, X25519, 600 a second", "µs", 1e-3),
    "saturated": ("the same, 16 clients that begin again at once", "µs", 1e-3),
    "http1": ("HTTP/1.1 request over TLS, keep-alive, 200-byte bodies, 64 connections, logging on", "µs", 1e-3),
    "http2": ("HTTP/2 request, 200-byte bodies, 16 connections of 8 streams, logging on", "µs", 1e-3),
    "bulk": ("GB of 1 MB bodies over TLS, 8 connections", "s", 1e-9),
}


def spread(values):
    return f"{min(values):.2f}–{max(values):.2f}"


def report(results, idle, rounds, command, engine):
    lines = ["# penstock beside HAProxy: server CPU time", "",
             f"Both on one configuration, one worker each, engine `{engine}`, loaded in turn. The figure is the server's own CPU",
             "time per unit (`/proc/PID/task/*/schedstat`); the ratio is penstock's over HAProxy's, its spread that of the",
             "rounds' own ratios. The machine was not otherwise idle: trust the ratios before the absolute figures. The server",
             "has one CPU, clients, nginx and log sink the other; nginx is set as Debian sets it (`sendfile`, `tcp_nopush`).", "",
             f"Command: `{command}`", "", "| machine | |", "|---|---|"]
    lines += [f"| {k} | {v} |" for k, v in machine()]
    lines += ["", "| unit | n | HAProxy, median | penstock, median | ratio of medians | ratios of the rounds | promised | |",
              "|---|---|---|---|---|---|---|---|"]
    for measure, figures in results.items():
        what, unit, factor = WHAT[measure]
        mine, theirs = figures["penstock"], figures["haproxy"]
        ratio = statistics.median(mine) / statistics.median(theirs)
        verdict = "kept" if ratio <= PROMISES[measure] else "missed"
        lines.append(f"| {what} | {rounds} | {statistics.median(theirs) * factor:.2f} {unit} | "
                     f"{statistics.median(mine) * factor:.2f} {unit} | **{ratio:.2f}** | "
                     f"{spread([a / b for a, b in zip(mine, theirs)])} | {PROMISES[measure]:.2f} | {verdict} |")
    if idle:
        verdict = "kept" if idle["penstock"] <= IDLE_PROMISE_KIB else "missed"
        lines.append(f"| KiB for each idle TLS connection, slope from 1,000 to 9,000 | 1 | {idle['haproxy']:.1f} KiB | "
                     f"{idle['penstock']:.1f} KiB | **{idle['penstock'] / idle['haproxy']:.2f}** | | "
                     f"{IDLE_PROMISE_KIB:.0f} KiB | {verdict} |")
    return "\n".join(lines) + "\n"


def write_page(page, lines):
    """What was measured, in the place of what was measured before. Sections, from the first "## " on, were written by hand: they stay."""
    before = page.read_text() if page.exists() else ""
    page.write_text("\n".join(lines) + "\n" + "".join(before.partition("\n## ")[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a fifth of the work; writes nothing")
    parser.add_argument("--engine", default="native", help="penstock's tune.crypto.engine; another than native writes nothing")
    parser.add_argument("measures", nargs="*", default=[])
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # 9,000 connections at both ends
    own_network()
    stand_aside()
    measures = options.measures or [*WHAT, "idle"]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        bench = Bench(folder, options.quick, options.engine)
        try:
            results = {}
            for measure in (m for m in measures if m in WHAT):
                figures = {name: [] for name in PROGRAMS}
                for name in PROGRAMS:
                    bench.cpu_per_unit(measure, name)  # warms caches and pools up
                for round_number in range(options.rounds):
                    # The first of a pair meets the other's leftovers in the caches: take turns at being first.
                    order = list(PROGRAMS) if round_number % 2 == 0 else list(PROGRAMS)[::-1]
                    for name in order:
                        figures[name].append(bench.cpu_per_unit(measure, name))
                results[measure] = figures
                ratio = statistics.median(figures["penstock"]) / statistics.median(figures["haproxy"])
                print(f"{measure}: {ratio:.3f} of HAProxy's CPU time", flush=True)
            idle = {name: bench.idle(name) for name in PROGRAMS} if "idle" in measures else {}
            text = report(results, idle, options.rounds, "make bench", options.engine)
        finally:
            bench.stop()
    print(text)
    if not options.quick and not options.measures and options.engine == "native":
        target = TREE / "docs/measurements/haproxy-2.6.md"
        write_page(target, text.splitlines())
        print(f"written to {target.relative_to(TREE)}")


if __name__ == "__main__":
    main()
