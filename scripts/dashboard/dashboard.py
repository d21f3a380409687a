"""Looks at the dashboard in a browser; see ../dashboard.sh."""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from browser import PATIENCE, Browser
from harness import exit_on_signals, free_ports

RATE = 400  # requests a second
REPLICAS = 3


def config(listen, admin, replicas, token=""):
    endpoints = ", ".join(f'"127.0.0.1:{port}"' for port in replicas)
    return f"""\
node: {{id: api-1}}
loops: 2
log: {{level: warn, format: text}}
admin: {{address: "127.0.0.1:{admin}", token: "{token}"}}
listeners: [{{name: egress, address: "127.0.0.1:{listen}", protocol: http, service: compute}}]
services:
  compute:
    discover: static
    endpoints: [{endpoints}]
    protocol: http
    connect_timeout: 10s
    idempotent: true
    hedge: {{mode: on, delay: 5ms}}
"""


class Checks:
    """Counts and prints."""

    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, what, holds):
        print(("ok    " if holds else "FAILED"), what, flush=True)
        if holds:
            self.passed += 1
        else:
            self.failed += 1


class Stack:
    """A sidecar with replicas and load; a context manager."""

    def __init__(self, binaries, token=""):
        self.remora, self.lab = (os.path.join(binaries, name) for name in ("remora", "remora-lab"))
        self.listen, self.admin, *self.replicas = free_ports(2 + REPLICAS)
        self.token = token
        self.processes = []

    def run(self, *command):
        self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="remora-dashboard-")
        for seed, port in enumerate(self.replicas):
            self.run(self.lab, "replica", "--listen", f"127.0.0.1:{port}", "--seed", str(seed + 1), "--stall-mean", "1s")
        path = os.path.join(self.dir.name, "remora.yaml")
        with open(path, "w") as f:
            f.write(config(self.listen, self.admin, self.replicas, self.token))
        self.run(self.remora, "run", "-c", path)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz", timeout=PATIENCE).close()
                return self
            except OSError:
                if time.monotonic() > end:
                    self.__exit__()
                    raise
                time.sleep(0.05)

    def load(self):
        self.run(self.lab, "load", "--rate", str(RATE), "--poisson", "--duration", "10m", "--warmup", "0s",
                 f"http://127.0.0.1:{self.listen}/compute")

    def burst(self):
        """Ten requests a millisecond for 5 ms, or as near as this program gets:
        connections that are open already send at once."""
        request = b"POST /compute HTTP/1.1\r\nHost: compute\r\nContent-Length: 4\r\n\r\nping"
        crowd = [socket.create_connection(("127.0.0.1", self.listen)) for _ in range(50)]
        time.sleep(0.2)
        for s in crowd:
            s.sendall(request)
        for s in crowd:
            s.recv(4096)
            s.close()

    def __exit__(self, *_):
        for p in self.processes:
            p.kill()
            p.wait()
        self.dir.cleanup()


NUMBERS = ["rate", "p50", "p99", "p999", "failed", "hedged", "pending", "queued"]


def look(stack, browser, check):
    browser.open(f"http://127.0.0.1:{stack.admin}/", 1280, 900, dark=False)
    check("the page shows a rate near that of the load",
          browser.wait(f"parseFloat(document.getElementById('rate').textContent) > {RATE / 3}"))
    for name in NUMBERS:
        check(f"a number appears as {name}", browser.wait(f"/^[0-9]/.test(document.getElementById('{name}').textContent)"))
    check("the sidecar is named, and serving",
          browser.evaluate("document.getElementById('node').textContent + ' ' + document.getElementById('phase').textContent") ==
          "api-1 serving")
    check(f"{REPLICAS} endpoints have a state",
          browser.wait(f"document.querySelectorAll('#endpoints tbody .state').length === {REPLICAS}"))
    check("hedges are sent", browser.wait("parseFloat(document.getElementById('hedged').textContent) > 0"))
    check("the gates are listed", browser.evaluate("document.querySelectorAll('#gates tr').length") >= 8)
    check("the loops have turns", browser.wait("/^[1-9]/.test(document.querySelector('#loops tbody tr td:nth-child(3)').textContent)"))
    drawn = """[...document.querySelectorAll('canvas')].filter(c => {
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return data.some((v, i) => i % 4 === 3 && v > 0);
    }).length"""
    total = browser.evaluate("document.querySelectorAll('canvas').length")
    check(f"all {total} canvases are drawn on", browser.wait(f"{drawn} === {total}"))
    check("nothing is wrong", browser.wait("document.getElementById('trouble').hidden") and not browser.said)
    for line in browser.said:
        print("      the browser says:", line)


# The numbers in "busiest: 17 requests in one, 17.0k/s; on average 402/s".
BUSIEST = "document.getElementById('busiest').textContent.match(/busiest: (\\d+) .* average ([0-9.]+)/)"


def look_for_burst(stack, browser, check):
    burst = threading.Thread(target=stack.burst)
    burst.start()
    seen = browser.wait(f"(m => m && m[1] * 1000 > 10 * m[2])({BUSIEST})")
    burst.join()
    check(f"a burst shows in the milliseconds and not in the second: {browser.evaluate(BUSIEST + '[0]')}", seen)


def look_at_token(binaries, browser, check):
    token = "dashboard-test"
    with Stack(binaries, token) as stack:
        url = f"http://127.0.0.1:{stack.admin}/"
        status = 200
        try:
            urllib.request.urlopen(url, timeout=PATIENCE).close()
        except urllib.error.HTTPError as e:
            status = e.code
        check("without the token there is no dashboard", status == 401)
        browser.open(url.replace("//", f"//x:{token}@"), 1280, 900, dark=False)
        check("with the token as the password there is", browser.wait("document.getElementById('node')?.textContent === 'api-1'"))
        check("and nothing is wrong", browser.wait("document.getElementById('trouble').hidden") and not browser.said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binaries", required=True)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--screenshot", help="where to leave a picture of the page")
    args = parser.parse_args()
    exit_on_signals()
    check = Checks()
    with Browser(args.browser) as browser:
        with Stack(args.binaries) as stack:
            stack.load()
            look(stack, browser, check)
            look_for_burst(stack, browser, check)
            if args.screenshot:
                time.sleep(60)  # for lines that are worth a picture
                browser.show_all()
                look_for_burst(stack, browser, check)
                browser.screenshot(args.screenshot)
        look_at_token(args.binaries, browser, check)
    print(f"{check.passed} passed, {check.failed} failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
