"""Remora between consumers and providers of Apache Dubbo 2.7 and 3.3.

HTTP calls, as a form and as JSON, and Java consumers reach Java providers
straight from a sidecar and through a second one; idle connections live on
heartbeats; a pool of threads is not overrun; a provider is restarted under load.

    dubbo.py BIN DIR IDLE CASES     BIN holds remora, DIR takes the logs, IDLE is in
                                    seconds, CASES are patterns with commas between
"""

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import cache, partial

import http_calls
from harness import PATIENCE, Suite, wait_for
from mesh import Mesh, Sidecar, consume, free_port, java, provider, up
from one_way import one_way


# Ways of HTTP calls that are answered, and one whose provider never answers.
ANSWERED = "direct-2.7-fastjson", "link-2.7", "direct-2.7", "link-3.3", "direct-3.3"
UNANSWERED = "direct-3.3-fastjson"

# Consumers by their line of Dubbo, and their ways.
CONSUMERS = (("2.7", "link-2.7"), ("2.7", "link-3.3"), ("3.3", "link-2.7"), ("3.3", "link-3.3"), ("2.7", "direct-3.3"),
             ("3.3", "direct-2.7"), ("2.7", "link-2.7", "serialization=fastjson"))


def http(suite, mesh, way):
    http_calls.forms(suite, way, mesh.http[way])
    http_calls.values(suite, way, mesh.http[way])
    http_calls.failures(suite, way, mesh.http[way])


def unanswered(suite, mesh):
    http_calls.unanswered(suite, UNANSWERED, mesh.http[UNANSWERED])


def consumer(suite, mesh, line, way, *properties):
    """A consumer as it is, whose provider is said to be on 127.0.0.1."""
    ran = consume(line, mesh.dubbo[way], "checks", properties=properties)
    name = f"consumer {' '.join((line, *properties))}, {way}"
    verdicts = re.findall(r"^(ok|FAIL) (.*)$", ran.stdout, re.MULTILINE)
    for verdict, what in verdicts:
        suite.check(f"{name}: {what}", verdict == "ok")
    suite.check(f"{name}: ran to its end", ran.returncode == 0 and len(verdicts) >= 48, ran.stderr[-1000:])
    suite.attempt(f"{name}: no sidecar waits for anything", mesh.settle)


def connections(port):
    """The local ports of what is connected to a port of 127.0.0.1."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as f:
            rows = [line.split()[1:4] for line in f.readlines()[1:]]
        found |= {int(local.split(":")[1], 16) for local, remote, state in rows
                  if state == "01" and int(remote.split(":")[1], 16) == port}
    return found


def idle(suite, mesh, seconds):
    """Nothing but heartbeats for a while: the connections are the same afterwards."""
    ways = {"2.7": "direct-2.7", "3.3": "direct-3.3"}
    children = {line: subprocess.Popen(java(line, "Consumer", mesh.dubbo[way], "idle"), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                for line, way in ways.items()}
    for line, child in children.items():
        first = next((said for said in child.stdout if said.endswith(" before\n")), "nothing")
        suite.check(f"consumer {line}: a call before the silence", first == "right before\n", first)

    def ports():
        return {what: connections(port) for line, way in ways.items() for what, port in
                ((f"consumer {line}", mesh.dubbo[way]), (f"provider {line}", mesh.ports[line]))}

    before = ports()
    time.sleep(seconds)
    after = ports()
    for what, found in before.items():
        suite.check(f"{what}: connections outlived {seconds} s", found and found <= after[what], f"{found}, then {after[what]}")
    for line, child in children.items():
        rest = child.communicate("\n", timeout=PATIENCE)[0]
        suite.check(f"consumer {line}: a call after the silence", "right after\n" in rest, rest[-300:])


def pool(suite, binaries):
    """A pool of eight threads without a queue, called by sixty at once."""
    port = free_port()
    p = provider(suite, "provider-small", "2.7", port, threads=8)
    wait_for(p.name, PATIENCE, lambda: up(p))
    sidecar = Sidecar(suite, binaries, "sidecar-small")
    sidecar.service("bounded", [port], "dubbo", max_concurrency=6)
    sidecar.service("unbounded", [port], "dubbo")
    bounded, unbounded = sidecar.listener("http", "bounded"), sidecar.listener("http", "unbounded")
    sidecar.start()

    def all_at_once(listener):
        with ThreadPoolExecutor(60) as workers:
            answers = list(workers.map(lambda i: http_calls.call(listener, "slow", {"types": ["int", http_calls.STRING],
                                                                                  "args": [50, f"call {i}"]}), range(60)))
        wrong = [a for i, a in enumerate(answers) if a[0] == 200 and a[2] != f'"call {i}"']
        return wrong, [(status, headers["x-remora-error"]) for status, headers, _ in answers]

    wrong, outcomes = all_at_once(bounded)
    suite.check("max_concurrency below the pool: all answered", outcomes == [(200, None)] * 60, str(set(outcomes)))
    suite.check("max_concurrency below the pool: each with its own", not wrong, str(wrong[:3]))
    wrong, outcomes = all_at_once(unbounded)
    suite.check("no limit: status 100 is 503", set(outcomes) == {(200, None), (503, "pool-exhausted")}, str(set(outcomes)))
    suite.check("no limit: each with its own", not wrong, str(wrong[:3]))


def restart(suite, mesh, binaries):
    """One of two providers is ended and comes back while both are called: one that says that it goes loses no call,
    one that is killed none that may be sent again."""
    port = free_port()
    victim = provider(suite, "provider-victim", "2.7", port)
    wait_for(victim.name, PATIENCE, lambda: up(victim))
    sidecar = Sidecar(suite, binaries, "sidecar-restart")
    both = [port, mesh.ports["3.3"]]
    sidecar.service("once", both, "dubbo")
    sidecar.service("again", both, "dubbo", idempotent=True, retry={"attempts": 2, "on": ["connect", "refused", "reset"]},
                    hedge={"mode": "off", "budget": 0.5})
    once, again = sidecar.listener("dubbo", "once"), sidecar.listener("dubbo", "again")
    sidecar.start()
    for name, end, listener in (("SIGTERM", victim.stop, once), ("SIGKILL", victim.kill, again)):
        load = subprocess.Popen(java("2.7", "Consumer", listener, "load", 16), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        wait_for("load at the victim", PATIENCE, lambda: connections(port))
        time.sleep(3)
        end()
        time.sleep(2)
        victim.start()
        suite.attempt(f"{name}: the provider that came back is called", wait_for, "a connection", PATIENCE / 2,
                      lambda: connections(port))
        said = load.communicate("\n", timeout=PATIENCE)[0]
        counts = dict(re.findall(r"([\w-]+)=(\d+)", said.splitlines()[-1]))
        suite.check(f"{name}: none of the calls was lost or wrong", set(counts) == {"right", "wrong"}
                    and counts["wrong"] == "0" and int(counts["right"]) > 100, str(counts))


def all_cases(suite, binaries, silence):
    """What there is to run, by name. The first case that needs the mesh starts it."""
    mesh = cache(lambda: Mesh(suite, binaries))
    return {
        **{f"http/{way}": lambda way=way: http(suite, mesh(), way) for way in ANSWERED},
        "http/unanswered": lambda: unanswered(suite, mesh()),
        **{"dubbo/" + "/".join(c): lambda c=c: consumer(suite, mesh(), *c) for c in CONSUMERS},
        "one-way": partial(one_way, suite, binaries),
        "idle": lambda: idle(suite, mesh(), silence),
        "pool": partial(pool, suite, binaries),
        "restart": lambda: restart(suite, mesh(), binaries),
    }


def main():
    binaries, directory, silence, patterns = sys.argv[1:]
    suite = Suite(directory)
    cases = all_cases(suite, binaries, int(silence))
    chosen = [name for name in cases if any(fnmatchcase(name, p) for p in patterns.split(","))]
    if not chosen:
        sys.exit(f"no case is called {patterns}; there are {', '.join(cases)}")
    began = time.monotonic()
    for name in chosen:
        print(f"\n== {name}", flush=True)
        cases[name]()
    print(f"\n{time.monotonic() - began:.0f} s")
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
