"""Programs that serve on ports of this machine, for as long as a measurement
takes."""

import os
import socket
import subprocess
import tempfile
import time

from harness import die_with_parent, exit_on_signals

# Seconds that a process has to start, and one request to be answered. No result
# depends on it.
PATIENCE = 60


class Failed(Exception):
    """A process did not start, died, or gave wrong answers."""


def executable(path):
    return path if os.access(path, os.X_OK) else None


def which(name):
    for d in os.environ.get("PATH", "").split(":") + ["/usr/sbin", "/usr/local/sbin"]:
        if p := executable(os.path.join(d, name)):
            return p
    return None


class Processes:
    """Servers and the directory of their files; a context manager that stops all
    and removes it."""

    def __enter__(self):
        exit_on_signals()
        self.dir = tempfile.TemporaryDirectory(prefix="remora-bench-")
        self.running = []  # (name, process)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        procs = [p for _, p in reversed(self.running)]
        for p in procs:
            p.terminate()
        for p in procs:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        self.dir.cleanup()

    def start(self):
        """Starts what is to run; of subclasses."""

    def file(self, name, text):
        path = os.path.join(self.dir.name, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def spawn(self, name, cmd, port, **env):
        """Starts cmd and waits until it listens on port."""
        log = os.path.join(self.dir.name, f"{port}.log")
        with open(log, "w") as f:
            p = subprocess.Popen(cmd, env={**os.environ, **env}, stdout=f, stderr=f, stdin=subprocess.DEVNULL,
                                 preexec_fn=die_with_parent)
        self.running.append((name, p))
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and p.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return p
            except OSError:
                time.sleep(0.02)
        with open(log) as f:
            raise Failed(f"{' '.join(cmd)} does not listen on {port}:\n{f.read()}")

    def await_answer(self, port, body=b"{}", kind="application/json"):
        """Waits until the way from port to the replica stands."""
        head = f"POST /compute HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        request = head.encode() + body
        deadline = time.monotonic() + PATIENCE
        answer = b""
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as s:
                    s.sendall(request)
                    answer = s.recv(4096)
                    if answer.startswith(b"HTTP/1.1 200"):
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise Failed(f"{' and '.join(name for name, _ in self.running)}: no good answer: {answer!r}")

    def alive(self):
        for name, p in self.running:
            if p.poll() is not None:
                raise Failed(f"{name} ended with status {p.returncode}")
