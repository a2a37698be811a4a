#!/usr/bin/env python3
"""Tests the runtime API under load: map commits, certificate commits, and adding and removing servers, while a client keeps sending requests.

usage: scripts/runtime.py PENSTOCK [COUNT]

Fails if a request of the client fails, if a command is not answered as it should be, or if the last of three rounds of added
and removed servers leaves more memory behind than the allocator's noise.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM, COUNT = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000

# How much memory a round of servers may leave behind, in KiB: a fifth of a KiB for each server, plus 512.
NOISE_KIB = COUNT // 5 + 512


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    folder = tempfile.mkdtemp(prefix="penstock-runtime-")
    front = free_port()
    pem = f"{folder}/site.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=site.example", "-keyout", f"{folder}/key", "-out", f"{folder}/crt"],
        check=True, capture_output=True)
    with open(f"{folder}/crt") as crt, open(f"{folder}/key") as key, open(pem, "w") as out:
        certificate = crt.read() + key.read()
        out.write(certificate)
    with open(f"{folder}/m.map", "w") as out:
        out.write("k v\n")
    with open(f"{folder}/a.cfg", "w") as out:
        out.write(f"""global
  nbthread 2
  stats socket {folder}/admin level admin
defaults
  mode http
  timeout client 10s
  timeout server 10s
  timeout connect 5s
frontend f
  bind 127.0.0.1:{front}
  bind 127.0.0.1:{free_port()} ssl crt {pem}
  http-request return status 200 hdr x %[str(k),map({folder}/m.map)]
backend b
  balance roundrobin
  server s 127.0.0.1:{free_port()}
""")
    process = subprocess.Popen([PROGRAM, "-db", "-f", f"{folder}/a.cfg"])
    failed, served, over = [], [0], threading.Event()

    def say(command, wanted=None):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{folder}/admin")
            s.sendall(command.encode() + b"\n")
            s.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
        if wanted is not None and wanted not in answer:
            sys.exit(f"{command[:80]!r} was answered {answer!r}, not {wanted!r}")
        return answer

    def steady():
        client = None
        while not over.is_set():
            try:
                client = client or socket.create_connection(("127.0.0.1", front))
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                if not client.recv(4096).startswith(b"HTTP/1.1 200 "):
                    raise OSError("no 200")
                served[0] += 1
            except OSError as error:
                failed.append(str(error))
                client = None

    def resident():
        with open(f"/proc/{process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    try:
        until = time.monotonic() + 10
        while not os.path.exists(f"{folder}/admin") and time.monotonic() < until:
            time.sleep(0.05)
        thread = threading.Thread(target=steady)
        thread.start()
        begun = time.monotonic()
        for number in range(COUNT):
            version = say(f"prepare map {folder}/m.map").split(":")[1].strip()
            say(f"add map @{version} {folder}/m.map <<\nk {number}\n", "")
            say(f"commit map @{version} {folder}/m.map")
        say(f"show map {folder}/m.map", f"k {COUNT - 1}\n")
        print(f"{COUNT} map commits in {time.monotonic() - begun:.1f} s")
        begun = time.monotonic()
        for _ in range(COUNT):
            say(f"set ssl cert {pem} <<\n{certificate}\n", "Transaction ")
            say(f"commit ssl cert {pem}", "Success!")
        print(f"{COUNT} certificate commits in {time.monotonic() - begun:.1f} s")
        left = [resident()]
        for _ in range(3):
            for number in range(COUNT):
                say(f"add server b/x{number} 127.0.0.1:9", "New server registered")
            for number in range(COUNT):
                say(f"del server b/x{number}", "Server deleted")
            time.sleep(2)
            left.append(resident())
        grown = [after - before for before, after in zip(left, left[1:])]
        print(f"{COUNT} servers added and removed, three times: {grown} KiB more each time")
        over.set()
        thread.join()
        print(f"{served[0]} requests, {len(failed)} failed")
        if failed:
            sys.exit(f"a request failed: {failed[0]}")
        if grown[2] > NOISE_KIB:
            sys.exit(f"the last round left {grown[2]} KiB behind")
    finally:
        over.set()
        process.terminate()
        process.wait()


main()
