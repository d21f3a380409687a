"""Checks the dashboard in a browser; see ../dashboard.sh.

    dashboard.py BROWSER [--screenshot FILE] [--states DIR]
"""

import argparse
import contextlib
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from playwright.sync_api import sync_playwright

from harness.load import start_load
from harness.process import PATIENCE, Timeout, free_port, tool, wait_for
from harness.sidecar import Sidecar
from harness.suite import Suite

RATE = 400  # requests a second
REPLICAS = 3


def start_sidecar(suite, name, token=""):
    """A sidecar with replicas that freeze now and then. p.port is where it listens."""
    replicas = [suite.replica(f"{name}-replica-{i}", "--seed", str(i), "--stall-mean", "1s").start() for i in range(1, REPLICAS + 1)]
    p = Sidecar(suite, name, node={"id": "api-1"})
    p.config["admin"]["token"] = token
    p.service("compute", "http", *(r.port for r in replicas), idempotent=True, hedge={"mode": "on", "delay": "5ms"})
    p.port = p.listener("http", "compute")
    p.start()
    return p


def send_burst(port):
    """Ten requests a millisecond for 5 ms, or as near as this program gets: connections that
    are already open send at once."""
    request = b"POST /compute HTTP/1.1\r\nHost: compute\r\nContent-Length: 4\r\n\r\nping"
    crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    time.sleep(0.2)
    for s in crowd:
        s.sendall(request)
    for s in crowd:
        s.recv(4096)
        s.close()


class View:
    """A page of the browser, and what went wrong in it."""

    def __init__(self, browser, width=1280, **options):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        self.context.set_default_timeout(1000 * PATIENCE)
        self.page = self.context.new_page()
        self.messages = []
        self.page.on("pageerror", lambda e: self.messages.append(str(e)))
        # The page itself shows failed requests.
        self.page.on("console", lambda m: m.type == "error" and "Failed to load" not in m.text and self.messages.append(m.text))

    def open(self, url):
        self.page.goto(url, wait_until="commit")
        return self

    def read(self, expression):
        return self.page.evaluate(expression)

    def wait(self, condition):
        """The first true value of a condition of the page, which may fail while the page is loading; False if it does not
        come to hold."""
        condition = f"(() => {{ try {{ return {condition}; }} catch {{ return false; }} }})()"
        try:
            return wait_for(condition, lambda: self.read(condition))
        except Timeout:
            return False

    def nothing_wrong(self):
        return self.wait("document.getElementById('trouble').hidden") and not self.messages


@contextlib.contextmanager
def browser(program):
    """Yields a browser without a screen."""
    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=1000 * PATIENCE)
        try:
            yield b
        finally:
            b.close()


NUMBERS = ["rate", "p50", "p99", "p999", "failed", "hedged", "pending", "queued"]

DRAWN = """[...document.querySelectorAll('canvas')].filter(c => {
    const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    return data.some((v, i) => i % 4 === 3 && v > 0);
}).length"""


def check_page(view, check):
    check("the page shows a rate near that of the load",
          view.wait(f"parseFloat(document.getElementById('rate').textContent) > {RATE / 3}"))
    for name in NUMBERS:
        check(f"a number appears as {name}", view.wait(f"/^[0-9]/.test(document.getElementById('{name}').textContent)"))
    check("the sidecar is named, and serving", view.page.inner_text("#node") + " " + view.page.inner_text("#phase") == "api-1 serving")
    check(f"{REPLICAS} endpoints have a state",
          view.wait(f"document.querySelectorAll('#endpoints tbody .state').length === {REPLICAS}"))
    check("hedges are sent", view.wait("parseFloat(document.getElementById('hedged').textContent) > 0"))
    check("the gates are listed", view.wait("document.querySelectorAll('#gates tr').length >= 8"))
    check("the loops have turns", view.wait("/^[1-9]/.test(document.querySelector('#loops tbody tr td:nth-child(3)').textContent)"))
    total = view.page.locator("canvas").count()
    check(f"all {total} canvases are drawn on", view.wait(f"{DRAWN} === {total}"))
    check("nothing is wrong", view.nothing_wrong(), view.messages)


# The numbers in "busiest: 17 requests in one, 17.0k/s; on average 402/s".
BUSIEST = "document.getElementById('busiest').textContent.match(/busiest: (\\d+) .* average ([0-9.]+)/)"


def check_burst(sidecar, view, check):
    shown, end = threading.Event(), time.monotonic() + PATIENCE

    def send():  # a busy machine spreads some over several milliseconds
        while not shown.wait(1) and time.monotonic() < end:
            send_burst(sidecar.port)

    sender = threading.Thread(target=send)
    sender.start()
    seen = view.wait(f"(m => m && m[1] * 1000 > 10 * m[2] && m[0])({BUSIEST})")
    shown.set()
    sender.join()
    check(f"a burst shows in the milliseconds and not in the second: {seen}", seen)


def check_token(suite, chromium, check):
    token = "dashboard-test"
    url = f"http://127.0.0.1:{start_sidecar(suite, 'guarded', token).admin}/"
    status = 200
    try:
        urllib.request.urlopen(url, timeout=PATIENCE).close()
    except urllib.error.HTTPError as e:
        status = e.code
    check("without the token there is no dashboard", status == 401)
    view = View(chromium, http_credentials={"username": "x", "password": token}).open(url)
    check("with the token as the password there is", view.wait("document.getElementById('node')?.textContent === 'api-1'"))
    check("and nothing is wrong", view.nothing_wrong(), view.messages)


def crowded(suite, name, endpoints):
    """A sidecar that knows so many endpoints, all of them one replica, and three more where nobody listens."""
    port = free_port()
    suite.process(name + "-replica", [tool("remora-lab"), "replica", "--listen", f"0.0.0.0:{port}"], port).start()
    p = Sidecar(suite, name)
    p.service("crowd", "http", port)
    p.config["services"]["crowd"]["endpoints"] = [f"127.0.{i // 200}.{i % 200 + 1}:{port}" for i in range(endpoints)]
    p.service("dead", "http", *(free_port() for _ in range(3)))
    p.port, p.dead = p.listener("http", "crowd"), p.listener("http", "dead")
    return p.start()


def request(port, head="GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(head.encode())
        while s.recv(4096):
            pass


TWICE = "GET /path HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n"
EMPTY = "!document.getElementById('empty').hidden"


def cells(table):
    return f"[...document.querySelectorAll('#{table} tbody tr')].map(tr => tr.innerText)"


class States:
    """What the page shows in states other than the usual one; with a directory, also as pictures."""

    def __init__(self, suite, chromium, directory):
        self.suite, self.chromium, self.directory = suite, chromium, directory

    def look(self, sidecar, name, **options):
        """A view of a sidecar's page, which fits into the window."""
        view = View(self.chromium, **options).open(f"http://127.0.0.1:{sidecar.admin}/")
        self.suite.check(f"{name}: the page has drawn", view.wait("document.querySelectorAll('#loops tbody tr').length > 0"))
        self.suite.check(f"{name}: nothing is wider than the window", view.wait("document.documentElement.scrollWidth <= innerWidth"))
        return view

    def picture(self, view, name):
        if self.directory:
            view.page.screenshot(path=os.path.join(self.directory, name + ".png"), full_page=True)

    def check_empty(self, sidecar):
        view = self.look(sidecar, "empty")
        self.suite.check("empty: the page says how to send a request", view.wait(EMPTY))
        self.suite.check("empty: what is not used has no latency", "µs" not in view.page.inner_text("#services") + view.page.inner_text("#endpoints"))
        self.picture(view, "empty")
        subprocess.run(shlex.split(view.page.inner_text("#try")), check=True, capture_output=True, timeout=PATIENCE)
        self.suite.check("empty: the hint goes when it was followed", view.wait("!(" + EMPTY + ")"))

    def check_failing(self, sidecar):
        view, check = self.look(sidecar, "failing"), self.suite.check
        for _ in range(4):
            request(sidecar.dead)
        check("failing: dead endpoints fail, without a latency",
              view.wait(cells("endpoints") + ".filter(t => /failing/.test(t) && /–/.test(t) && !/µs/.test(t)).length > 0"))
        check("failing: so does their service", view.wait(cells("services") + ".some(t => /^dead\\s+failing/.test(t))"))

        def refuse():
            for _ in range(200):
                request(sidecar.port, TWICE)
        threading.Thread(target=refuse, daemon=True).start()
        check("failing: refused requests count", view.wait("parseFloat(document.getElementById('failed').textContent) > 0"))
        check("failing: by listener and code",
              view.wait(cells("errors") + f".some(t => /^duplicate-host\\s+http-{sidecar.port}\\s+[1-9]/.test(t))"))
        check("failing: in a row of their own", view.wait(cells("services") + ".some(t => /^no service/.test(t))"))
        self.picture(view, "failing")

    def check_crowd(self, sidecar, endpoints):
        view, check = self.look(sidecar, f"{endpoints} endpoints"), self.suite.check
        check("many endpoints are grouped", view.wait(cells("endpoints") + ".some(t => /^▸? ?\\d+ endpoints/.test(t))"))
        self.picture(view, f"endpoints-{endpoints}")
        view.page.focus("#endpoints th:nth-child(6) button")
        view.page.keyboard.press("Enter")
        check("a key sorts", view.wait("document.querySelector('#endpoints th:nth-child(6)').ariaSort === 'descending'"))
        check("what has the focus is explained",
              view.wait("document.getElementById('tip').checkVisibility() === !!document.activeElement.dataset.tip"))
        view.page.fill("#filter", "127.0.0.7:")
        check("the filter finds one", view.wait(cells("endpoints") + ".length === 1"))
        view.page.fill("#filter", "")
        view.page.select_option("#service", "dead")
        check("a service can be chosen", view.wait("/^3$/.test(document.getElementById('endpoints-note').textContent)"))
        check("nothing is wrong", view.nothing_wrong(), view.messages)
        view.context.close()
        for name, how in ("light", {"color_scheme": "light"}), ("dark", {"color_scheme": "dark"}), ("narrow", {"width": 390}):
            view = self.look(sidecar, f"{endpoints} endpoints, {name}", **how)
            self.picture(view, f"endpoints-{endpoints}-{name}")
            view.context.close()

    def check_lost(self, sidecar):
        view = self.look(sidecar, "lost")
        sidecar.stop()
        self.suite.check("lost: the page says for how long there was no response",
                         view.wait("/no response for [0-9]+ s/.test(document.getElementById('phase').textContent)"))
        self.suite.check("lost: and shows it", view.wait("document.body.classList.contains('lost') && !document.getElementById('trouble').hidden"))
        self.picture(view, "lost")

    def check(self):
        one, many, most = (crowded(self.suite, f"crowd-{n}", n) for n in (1, 50, 500))
        self.check_empty(one)
        self.check_failing(one)
        for sidecar, n in (many, 50), (most, 500):
            load = start_load(f"http://127.0.0.1:{sidecar.port}/", "--rate", "200", "--duration", "10m", "--warmup", "0s")
            self.check_crowd(sidecar, n)
            load.kill()
        self.check_lost(one)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--screenshot")
    parser.add_argument("--states")
    options = parser.parse_args()
    suite = Suite()
    with browser(options.program) as chromium:
        sidecar = start_sidecar(suite, "api-1")
        load = start_load(f"http://127.0.0.1:{sidecar.port}/compute", "--rate", str(RATE), "--poisson", "--duration", "10m", "--warmup", "0s")
        view = View(chromium).open(f"http://127.0.0.1:{sidecar.admin}/")
        check_page(view, suite.check)
        check_burst(sidecar, view, suite.check)
        if options.screenshot:
            time.sleep(60)  # for lines that are worth a picture
            check_burst(sidecar, view, suite.check)
            view.page.screenshot(path=options.screenshot, full_page=True)
        load.kill()
        view.context.close()
        check_token(suite, chromium, suite.check)
        States(suite, chromium, options.states).check()
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
