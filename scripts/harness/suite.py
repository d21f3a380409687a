"""The processes, files and counted checks of one suite."""

import atexit
import os

from harness.process import PATIENCE, Process, exit_on_signals, free_port, run, tool


def expect(what, got, want):
    """Raises AssertionError if got is not want."""
    if got != want:
        raise AssertionError(f"{what}: {str(got)[:200]!r}, want {str(want)[:200]!r}")


def title(text):
    print(f"\n== {text}", flush=True)


def table(*rows):
    """Prints rows with aligned columns. The first row is the head."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    print("\n" + "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows) + "\n", flush=True)


def change(before, after, form="{}"):
    """The text of two values."""
    return f"{form.format(before)} -> {form.format(after)}"


class Suite:
    """Everything that it starts is stopped when the program ends."""

    def __init__(self):
        self.dir, self.processes = os.environ["DIR"], []
        self.passed, self.failures = 0, []
        atexit.register(self.stop)
        exit_on_signals()

    def add(self, process):
        """Takes over a process that is not running yet."""
        self.processes.append(process)
        return process

    def process(self, name, argv, ready=None, env=None, cwd=None):
        return self.add(Process(name, argv, self.path(name + ".log"), ready, env, cwd))

    def replica(self, name, *options, env=None):
        """An application of the lab, on port p.port."""
        port = free_port()
        p = self.process(name, [tool("remora-lab"), "replica", "--listen", f"127.0.0.1:{port}", *options], port, env)
        p.port = port
        return p

    def path(self, name):
        return os.path.join(self.dir, name)

    def file(self, name, text):
        """Writes a file, and returns its path."""
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)
        return self.path(name)

    def certificates(self, name):
        """A tls block with a key, a certificate of that name, and the certificate as its own authority."""
        cert, key = self.path("cert.pem"), self.path("key.pem")
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
             "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", cert], seconds=PATIENCE)
        return {"cert": cert, "key": key, "ca": cert, "peers": [name]}

    def stop(self):
        """Stops all processes, the latest first."""
        for p in reversed(self.processes):
            p.stop()
        self.processes.clear()

    def check(self, name, good, detail=""):
        """Counts and prints a check."""
        if good:
            self.passed += 1
            print(f"ok    {name}", flush=True)
        else:
            self.failures.append(name)
            print(f"FAIL  {name}  {detail}", flush=True)
        return good

    def attempt(self, name, function, *args):
        """Counts a check that fails by raising."""
        try:
            function(*args)
        except Exception as e:  # pylint: disable=broad-except
            return self.check(name, False, f"{type(e).__name__}: {e}")
        return self.check(name, True)

    def finish(self):
        """Stops all, prints the counts and returns the exit code."""
        self.stop()
        if self.failures:
            print("\nfailed:\n  " + "\n  ".join(self.failures))
        print(f"\n{self.passed} passed, {len(self.failures)} failed", flush=True)
        return 1 if self.failures else 0
