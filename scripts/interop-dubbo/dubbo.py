"""Remora between consumers and providers of Apache Dubbo 2.7 and 3.3.

HTTP calls, as a form and as JSON, and Java consumers reach Java providers
straight from a sidecar and through a second one; idle connections live on
heartbeats; a pool of threads is not overrun; a provider is restarted under load.

    dubbo.py BIN DIR IDLE     BIN holds remora, DIR takes the logs, IDLE is in seconds
"""

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import http_calls
from harness import PATIENCE, Suite, wait_for
from mesh import Mesh, Sidecar, consume, free_port, java, provider, up


def title(text):
    print(f"\n== {text}", flush=True)


def http(suite, mesh):
    for way in ("direct-2.7-fastjson", "link-2.7", "direct-2.7", "link-3.3", "direct-3.3"):
        http_calls.forms(suite, way, mesh.http[way])
        http_calls.values(suite, way, mesh.http[way])
        http_calls.failures(suite, way, mesh.http[way])
    way = "direct-3.3-fastjson"
    http_calls.unanswered(suite, way, mesh.http[way])


def consumers(suite, mesh):
    """Consumers as they are, whose provider is said to be on 127.0.0.1."""
    for line, way, *properties in (
            ("2.7", "link-2.7"), ("2.7", "link-3.3"), ("3.3", "link-2.7"), ("3.3", "link-3.3"), ("2.7", "direct-3.3"),
            ("3.3", "direct-2.7"), ("2.7", "link-2.7", "serialization=fastjson")):
        ran = consume(line, mesh.dubbo[way], "checks", properties=properties)
        name = f"{line} {' '.join(properties)}".strip()
        verdicts = re.findall(r"^(ok|FAIL) (.*)$", ran.stdout, re.MULTILINE)
        for verdict, what in verdicts:
            suite.check(f"consumer {name}, {way}: {what}", verdict == "ok")
        suite.check(f"consumer {name}, {way}: ran to its end", ran.returncode == 0 and len(verdicts) >= 48,
                    ran.stderr[-1000:])


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
    """One of two providers is killed and comes back while both are called."""
    port = free_port()
    victim = provider(suite, "provider-victim", "2.7", port)
    wait_for(victim.name, PATIENCE, lambda: up(victim))
    sidecar = Sidecar(suite, binaries, "sidecar-restart")
    sidecar.service("both", [port, mesh.ports["3.3"]], "dubbo", idempotent=True,
                    retry={"attempts": 2, "on": ["connect", "refused", "reset"]}, hedge={"mode": "off", "budget": 0.5})
    listener = sidecar.listener("dubbo", "both")
    sidecar.start()
    for name, end in (("SIGTERM", victim.stop), ("SIGKILL", victim.kill)):
        load = subprocess.Popen(java("2.7", "Consumer", listener, "load", 25, 16), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        wait_for("load at the victim", PATIENCE, lambda: load.poll() is not None or connections(port))
        time.sleep(3)
        end()
        time.sleep(2)
        victim.start()
        wait_for("calls to the provider that came back", PATIENCE, lambda: load.poll() is not None or connections(port))
        suite.check(f"{name}: the provider that came back is called", bool(connections(port)))
        counts = dict(re.findall(r"([\w-]+)=(\d+)", load.communicate(timeout=PATIENCE)[0].splitlines()[-1]))
        suite.check(f"{name}: none of the calls was lost or wrong", set(counts) == {"right", "wrong"}
                    and counts["wrong"] == "0" and int(counts["right"]) > 100, str(counts))


def main():
    binaries, suite, silence = sys.argv[1], Suite(sys.argv[2]), int(sys.argv[3])
    began = time.monotonic()
    mesh = Mesh(suite, binaries)
    title("HTTP to Dubbo")
    http(suite, mesh)
    title("Dubbo to Dubbo")
    consumers(suite, mesh)
    title(f"{silence} s with heartbeats alone")
    idle(suite, mesh, silence)
    title("a pool of threads without a queue")
    pool(suite, binaries)
    title("a provider restarts under load")
    restart(suite, mesh, binaries)
    print(f"\n{time.monotonic() - began:.0f} s")
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
