"""A browser without a screen. It takes commands of the DevTools protocol from a pair of
pipes: JSON texts, each ended by a zero byte."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from harness.process import PATIENCE, Failed, Timeout, die_with_parent, wait_for

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
]


class Browser:
    """One page of a browser of its own; a context manager."""

    def __init__(self, program):
        self.program = program
        self.profile = tempfile.mkdtemp(prefix="remora-browser-")
        self.number = 0
        self.session = None  # of the page, once it is attached
        self.left = b""
        self.messages = []  # of the page's console, and its exceptions

    def __enter__(self):
        down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        # The browser reads descriptor 3 and writes descriptor 4. up_write is above both: it was opened last.
        connect = f'exec "$@" 3<&{down_read} 4>&{up_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", connect, "bash", self.program, *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent, pass_fds=(down_read, up_write))
        os.close(down_read)
        os.close(up_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.down)
        os.close(self.up)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **params):
        """The result of one command."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.down, json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.number:
                if "error" in got:
                    raise Failed(f"{method}: {got['error']}")
                return got["result"]
            self.note(got)

    def receive(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.left:
            if not select.select([self.up], [], [], max(0, end - time.monotonic()))[0]:
                raise Failed("the browser does not respond")
            more = os.read(self.up, 1 << 20)
            if not more:
                raise Failed("the browser has ended")
            self.left += more
        text, self.left = self.left.split(b"\0", 1)
        return json.loads(text)

    def note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            if params["entry"]["source"] != "network":  # the page shows those itself
                self.messages.append(params["entry"]["text"])

    def open(self, url, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.messages.clear()  # of the page before

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise Failed(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition):
        """Reports whether a condition of the page comes to hold. It may fail while the page is loading."""
        condition = f"(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"
        try:
            return wait_for(condition, lambda: self.evaluate(condition))
        except Timeout:
            return False

    def show_all(self):
        """Makes the window as high as its page."""
        width, height = self.evaluate("innerWidth"), self.evaluate("document.documentElement.scrollHeight")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))
