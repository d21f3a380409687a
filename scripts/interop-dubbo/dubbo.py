"""Remora between consumers and providers of Apache Dubbo 2.7 and 3.3.

HTTP calls, as a form and as JSON, and Java consumers reach Java providers directly
from a sidecar and through a second one. Idle connections live on heartbeats, a pool of
threads is not overrun, and a provider is restarted under load.

    dubbo.py IDLE CASES     IDLE is in seconds, CASES are patterns with commas between
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import cache, partial

import http_calls
from mesh import WAYS, Mesh, add_service, consume, java, provider, sidecar

from harness.process import PATIENCE, die_with_parent, wait_for
from harness.suite import Suite

# Ways of HTTP calls with a response, and one whose provider never responds.
ANSWERED = "direct-2.7-fastjson", "link-2.7", "direct-2.7", "link-3.3", "direct-3.3"
UNANSWERED = "direct-3.3-fastjson"

# Consumers by their line of Dubbo, and their ways.
CONSUMERS = (("2.7", "link-2.7"), ("2.7", "link-3.3"), ("3.3", "link-2.7"), ("3.3", "link-3.3"), ("2.7", "direct-3.3"),
             ("3.3", "direct-2.7"), ("2.7", "link-2.7", "serialization=fastjson"))


def http(suite, mesh, way):
    http_calls.forms(suite, way, mesh.http[way])
    http_calls.values(suite, way, mesh.http[way])
    http_calls.failures(suite, way, mesh.http[way])
    line, _, serialization = WAYS[way]
    http_calls.shapes(suite, way, mesh.http[way], generic(mesh, line), serialization)


def generic(mesh, line):
    """What generic invocation of Dubbo itself gives for each shape of a provider, which it calls directly."""
    ran = consume(line, mesh.providers[line].port, "shapes")
    found = dict(re.findall(r"^shape (.*)\t(.*)$", ran.stdout, re.MULTILINE))
    if not found:
        raise RuntimeError(ran.stderr[-1000:])
    return found


def unanswered(suite, mesh):
    http_calls.unanswered(suite, UNANSWERED, mesh.http[UNANSWERED])


def consumer(suite, mesh, line, way, *properties):
    """An unchanged consumer, whose provider is configured to be on 127.0.0.1."""
    ran = consume(line, mesh.dubbo[way], "checks", properties=properties)
    name = f"consumer {' '.join((line, *properties))}, {way}"
    verdicts = re.findall(r"^(ok|FAIL) (.*)$", ran.stdout, re.MULTILINE)
    for verdict, what in verdicts:
        suite.check(f"{name}: {what}", verdict == "ok")
    suite.check(f"{name}: ran to its end", ran.returncode == 0 and len(verdicts) >= 48, ran.stderr[-1000:])
    suite.attempt(f"{name}: no sidecar has unfinished work", mesh.settle)


def connections(port, process=None):
    """The local ports of connections to a port of 127.0.0.1: of all, or of a process alone."""
    found, own = set(), process and sockets(process)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as f:
            rows = [line.split() for line in f.readlines()[1:]]
        found |= {int(local.split(":")[1], 16) for _, local, remote, state, *_, inode in (row[:10] for row in rows)
                  if state == "01" and int(remote.split(":")[1], 16) == port and (own is None or inode in own)}
    return found


def sockets(process):
    """The inodes of a process's sockets."""
    folder, found = f"/proc/{process.child.pid}/fd", set()
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if m := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(os.path.join(folder, fd))):
                found.add(m.group(1))
    return found


def start_consumer(line, port, *args):
    """Starts a consumer, which goes on until it gets a line of input."""
    return subprocess.Popen(java(line, "Consumer", port, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, preexec_fn=die_with_parent)


@contextlib.contextmanager
def idle(suite, mesh, seconds):
    """Leaves only heartbeats on the connections of a sidecar of its own, while the body runs and for at least so many seconds.
    The same connections must be open afterwards."""
    p, listeners, children = sidecar(suite, "sidecar-idle"), {}, {}
    for line, one in mesh.providers.items():
        add_service(p, line, [one.port], "dubbo")
        listeners[line] = p.listener("dubbo", line)
    p.start()
    for line, listener in listeners.items():
        children[line] = start_consumer(line, listener, "idle")
    for line, child in children.items():
        first = next((text for text in child.stdout if text.endswith(" before\n")), "nothing")
        suite.check(f"consumer {line}: a call before the silence", first == "right before\n", first)

    def ports():
        return {f"consumer {line}": connections(listener) for line, listener in listeners.items()} | {
            f"provider {line}": connections(one.port, p) for line, one in mesh.providers.items()}

    before, began = ports(), time.monotonic()
    yield
    print("\n== idle", flush=True)
    time.sleep(max(0, began + seconds - time.monotonic()))
    silence = time.monotonic() - began
    after = ports()
    for what, found in before.items():
        suite.check(f"{what}: connections outlived {silence:.0f} s", found and found <= after[what], f"{found}, then {after[what]}")
    for line, child in children.items():
        rest = child.communicate("\n", timeout=PATIENCE)[0]
        suite.check(f"consumer {line}: a call after the silence", "right after\n" in rest, rest[-300:])


def pool(suite):
    """A pool of eight threads without a queue, and sixty calls at once."""
    p = provider(suite, "provider-small", "2.7", threads=8).start()
    small = sidecar(suite, "sidecar-small")
    add_service(small, "bounded", [p.port], "dubbo", max_concurrency=6)
    add_service(small, "unbounded", [p.port], "dubbo")
    bounded, unbounded = small.listener("http", "bounded"), small.listener("http", "unbounded")
    small.start()

    def all_at_once(listener):
        with ThreadPoolExecutor(60) as workers:
            responses = list(workers.map(lambda i: http_calls.call(listener, "slow", {"types": ["int", http_calls.STRING],
                                                                                  "args": [50, f"call {i}"]}), range(60)))
        wrong = [r for i, r in enumerate(responses) if r[0] == 200 and r[2] != f'"call {i}"']
        return wrong, [(status, headers["x-remora-error"]) for status, headers, _ in responses]

    wrong, outcomes = all_at_once(bounded)
    suite.check("max_concurrency below the pool: all get a response", outcomes == [(200, None)] * 60, str(set(outcomes)))
    suite.check("max_concurrency below the pool: each with its own", not wrong, str(wrong[:3]))
    wrong, outcomes = all_at_once(unbounded)
    suite.check("no limit: status 100 is 503", set(outcomes) == {(200, None), (503, "pool-exhausted")}, str(set(outcomes)))
    suite.check("no limit: each with its own", not wrong, str(wrong[:3]))


def restart(suite, mesh):
    """One of two providers ends and comes back while both are called. One that announces its end loses no call; one
    that is killed loses none that may be sent again."""
    victim = provider(suite, "provider-victim", "2.7").start()
    p = sidecar(suite, "sidecar-restart")
    both = [victim.port, mesh.providers["3.3"].port]
    add_service(p, "once", both, "dubbo")
    add_service(p, "again", both, "dubbo", idempotent=True, retry={"attempts": 2, "on": ["connect", "refused", "reset"]},
                hedge={"mode": "off", "budget": 0.5})
    once, again = p.listener("dubbo", "once"), p.listener("dubbo", "again")
    p.start()
    for name, end, listener in (("SIGTERM", victim.stop, once), ("SIGKILL", victim.kill, again)):
        load = start_consumer("2.7", listener, "load", 16)
        wait_for("load at the victim", lambda: connections(victim.port))
        time.sleep(3)
        end()
        time.sleep(2)
        victim.start()
        suite.attempt(f"{name}: the provider that came back is called", wait_for, "a connection",
                      lambda: connections(victim.port), PATIENCE / 2)
        output = load.communicate("\n", timeout=PATIENCE)[0]
        counts = dict(re.findall(r"([\w-]+)=(\d+)", output.splitlines()[-1]))
        suite.check(f"{name}: none of the calls was lost or wrong", set(counts) == {"right", "wrong"}
                    and counts["wrong"] == "0" and int(counts["right"]) > 100, str(counts))


# The case that waits, beside all others.
IDLE = "idle"


def all_cases(suite, silence):
    """The cases by name. The first one that needs the mesh starts it. That of IDLE is a context."""
    mesh = cache(lambda: Mesh(suite))
    return {
        **{f"http/{way}": lambda way=way: http(suite, mesh(), way) for way in ANSWERED},
        "http/unanswered": lambda: unanswered(suite, mesh()),
        **{"dubbo/" + "/".join(c): lambda c=c: consumer(suite, mesh(), *c) for c in CONSUMERS},
        IDLE: lambda: idle(suite, mesh(), silence),
        "pool": partial(pool, suite),
        "restart": lambda: restart(suite, mesh()),
    }


def main():
    silence, patterns = sys.argv[1:]
    suite = Suite()
    cases = all_cases(suite, int(silence))
    chosen = [name for name in cases if any(fnmatchcase(name, p) for p in patterns.split(","))]
    if not chosen:
        sys.exit(f"no case is called {patterns}; there are {', '.join(cases)}")
    began = time.monotonic()
    with cases[IDLE]() if IDLE in chosen else contextlib.nullcontext():
        for name in chosen:
            if name != IDLE:
                print(f"\n== {name}", flush=True)
                cases[name]()
    print(f"\n{time.monotonic() - began:.0f} s")
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
