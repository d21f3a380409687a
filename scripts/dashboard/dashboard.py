"""Checks the dashboard in a browser; see ../dashboard.sh.

    dashboard.py BROWSER [--screenshot FILE]
"""

import contextlib
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

from playwright.sync_api import sync_playwright

from harness.load import start_load
from harness.process import PATIENCE, Timeout, wait_for
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
    return p.start()


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

    def __init__(self, browser, **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = context.new_page()
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
        """Reports whether a condition of the page comes to hold. It may fail while the page is loading."""
        condition = f"(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"
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
        b = p.chromium.launch(executable_path=program, args=["--no-sandbox"])
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
    check("the gates are listed", view.page.locator("#gates tr").count() >= 8)
    check("the loops have turns", view.wait("/^[1-9]/.test(document.querySelector('#loops tbody tr td:nth-child(3)').textContent)"))
    total = view.page.locator("canvas").count()
    check(f"all {total} canvases are drawn on", view.wait(f"{DRAWN} === {total}"))
    check("nothing is wrong", view.nothing_wrong(), view.messages)


# The numbers in "busiest: 17 requests in one, 17.0k/s; on average 402/s".
BUSIEST = "document.getElementById('busiest').textContent.match(/busiest: (\\d+) .* average ([0-9.]+)/)"


def check_burst(sidecar, view, check):
    burst = threading.Thread(target=send_burst, args=(sidecar.port,))
    burst.start()
    seen = view.wait(f"(m => m && m[1] * 1000 > 10 * m[2])({BUSIEST})")
    burst.join()
    check(f"a burst shows in the milliseconds and not in the second: {view.read(BUSIEST + '[0]')}", seen)


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


def main():
    program, *options = sys.argv[1:]
    suite = Suite()
    with browser(program) as chromium:
        sidecar = start_sidecar(suite, "api-1")
        load = start_load(f"http://127.0.0.1:{sidecar.port}/compute", "--rate", str(RATE), "--poisson", "--duration", "10m", "--warmup", "0s")
        view = View(chromium).open(f"http://127.0.0.1:{sidecar.admin}/")
        check_page(view, suite.check)
        check_burst(sidecar, view, suite.check)
        if options[:1] == ["--screenshot"]:
            time.sleep(60)  # for lines that are worth a picture
            check_burst(sidecar, view, suite.check)
            view.page.screenshot(path=options[1], full_page=True)
        load.kill()
        check_token(suite, chromium, suite.check)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
