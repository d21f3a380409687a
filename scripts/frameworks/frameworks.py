"""First and later days of services on common frameworks, through one sidecar and through two; see frameworks.sh."""

import contextlib
import functools
import http.client
import os
import random
import re
import signal
import sys
import time

from applications import COMMANDS, LIGHT, application
from chaos.clock import Clock, stopped
from ways import Traffic, Ways, outcome, reload, send

from harness.process import PATIENCE, Failed, at, free_port, run, tool, wait_for
from harness.sidecar import Sidecar
from harness.suite import Suite, expect

SHORT = sys.argv[1:] == ["--short"]
FRAMEWORKS = LIGHT if SHORT else tuple(COMMANDS)
SECONDS_OF_A_DAY = 24 * 60 * 60

DAYS = []  # what happens, and the function for it, which gets the suite


def day(what, long=False):
    """Registers a day; a long one is left out of the short form."""
    def register(function):
        if not (long and SHORT):
            DAYS.append((what, function))
        return function
    return register


def short_name(framework):
    return framework.lower().replace(" ", "-")


@day("the first minute: remora run --listen --to, and two sidecars")
def first_minute(suite):
    ways = Ways(suite, "first")
    names = [short_name(f) for f in FRAMEWORKS]
    for framework, name in zip(FRAMEWORKS, names):
        app = application(suite, framework, name).start()
        ways.serve(name, app)
        port = free_port()
        suite.process(f"{name}-only", [tool("remora"), "run", "--listen", at(port), "--to", at(app.port), "--admin", ""], port).start()
        expect(name, send(port, at(port)), name)
    ways.start()
    for name in names:
        for port in ways.ports.values():
            expect(name, send(port, name), name)


@day("applications that close idle connections after 2 s and 5 s: no request fails")
def idle_connections(suite):
    ways, traffic, pauses = Ways(suite, "idle"), Traffic(), {}
    for framework in FRAMEWORKS:
        for idle in (2,) if SHORT else (2, 5):
            app = application(suite, framework, f"{short_name(framework)}-{idle}", idle).start()
            for i in range(3):  # each service has connections of its own
                ways.serve(f"{app.name}-{i}", app)
                pauses[f"{app.name}-{i}"] = lambda idle=idle: idle + random.uniform(-0.005, 0.01)
    ways.start()
    for service, pause in pauses.items():
        for port in ways.ports.values():
            traffic.add(port, service, pause)
    traffic.run(13 if SHORT else 60).end()


@day("an application that starts slowly, beside one that runs: no request fails")
def slow_start(suite):
    running = application(suite, "Flask", "running").start()
    slow = application(suite, "FastAPI" if SHORT else "Spring Boot", "slow")
    ways = Ways(suite, "slow").serve("app", running, slow, check={"http": "/", "interval": "200ms", "timeout": "200ms"}).start()
    traffic = Traffic().busy(ways, "app", clients=4).run(1)
    slow.start()
    wait_for("orders to the slow one", lambda: traffic.served.get("slow"))
    traffic.end()


@day("an application that is not there yet: the code says so, and it is served once it is there")
def late(suite):
    app = application(suite, "Gin", "late")
    ways = Ways(suite, "late").serve("app", app).start()
    for port in ways.ports.values():
        expect("without an application", outcome(port, "app"), "502 upstream-connect")
    app.start()
    for port in ways.ports.values():
        wait_for("the application", lambda port=port: outcome(port, "app") == "late")


@day("a certificate for another name: both logs say so, and the right file is taken without a restart")
def wrong_certificate(suite):
    names = ("consumer", "stranger", "provider")
    leaves = [word for name in names for word in ("--leaf", f"{name}=spiffe://example.org/{name}")]
    run([tool("remora-lab"), "certs", suite.path("certs"), *leaves])
    files = (".pem", "-key.pem")

    def use(name):
        """Makes the consumer's files those of another one, as a rotation does."""
        for suffix in files:
            os.symlink(name + suffix, suite.path("certs/new"))
            os.rename(suite.path("certs/new"), suite.path(f"certs/used{suffix}"))

    def tls(name, peer):
        cert, key = (suite.path(f"certs/{name}{suffix}") for suffix in files)
        return {"cert": cert, "key": key, "ca": suite.path("certs/ca.pem"), "peers": [f"spiffe://example.org/{peer}"]}

    use("stranger")
    app = application(suite, "Gin", "secret").start()
    provider, consumer = Sidecar(suite, "tls-provider"), Sidecar(suite, "tls-consumer")
    provider.service("app", "http", app.port)
    consumer.service("app", "link", provider.listener("link", "app", tls=tls("provider", "consumer")), tls=tls("used", "provider"))
    port = consumer.listener("http", "app")
    provider.start()
    consumer.start()
    expect("with the wrong certificate", outcome(port, "app"), "502 upstream-connect")
    wait_for("the provider's log", lambda: re.search("code=tls_wrong_peer.*example.org/stranger", provider.tail()))
    wait_for("the consumer's log", lambda: "code=tls_refused" in consumer.tail())
    use("consumer")
    wait_for("the right certificate", lambda: outcome(port, "app") == "secret")


@day("a full disk under the access log: no request fails, and the log goes on once there is room")
def full_disk(suite):
    disk = suite.path("disk")
    os.mkdir(disk)
    run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk])
    try:
        log = os.path.join(disk, "access.log")
        sidecar = Sidecar(suite, "disk", access_log={"path": log})
        sidecar.service("app", "http", application(suite, "Gin", "disk").start().port)
        port = sidecar.listener("http", "app")
        sidecar.start()
        for _ in range(600):
            send(port, "app")
        wait_for("lines to be dropped", lambda: sidecar.metrics("remora_access_log_dropped_total")['{reason="write"}'] > 0)
        wait_for("the sidecar's log", lambda: "no space left on device" in sidecar.tail())
        os.truncate(log, 0)
        wait_for("the access log to go on", lambda: send(port, "app") and os.path.getsize(log) > 0)
    finally:
        suite.stop()
        run(["umount", disk])


@day("ulimit -n 256 and 400 clients: as many are served as the log says, the others closed, and later ones served")
def few_descriptors(suite):
    sidecar = Sidecar(suite, "few")
    sidecar.service("app", "http", application(suite, "Gin", "few").start().port)
    port = sidecar.listener("http", "app")
    sidecar.argv = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", *sidecar.argv]
    sidecar.start()
    served = 0
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            stack.callback(client.close)
            with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
                client.request("GET", "/", headers={"Host": "app"})
                served += client.getresponse().read() == b"few\n"
    promised = re.search("limit of file descriptors allows no more.* connections=([0-9]+)", sidecar.tail(100_000))
    if not promised or served != int(promised[1]):
        raise Failed(f"{served} of 400 clients were served, and the log says {sidecar.tail()}")
    wait_for("normal service", lambda: outcome(port, "app") == "few")


@day("a host name that moves to another address: requests follow it, and none fails", long=True)
def name_moves(suite):
    hosts = suite.path("hosts")  # of the sidecars: /etc/hosts

    def point(address):
        with open(hosts, "w", encoding="utf-8") as f:
            f.write(f"127.0.0.1 localhost\n{address} moving.test\n")

    port = free_port()
    first, second = (application(suite, "Gin", f"at-{address}", port=port, host=address) for address in ("127.0.0.2", "127.0.0.3"))
    first.start()
    second.start()
    point("127.0.0.2")
    ways = Ways(suite, "moving").serve("app", first)
    for sidecar in ways.back:
        sidecar.argv = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts, *sidecar.argv]
        sidecar.config["services"]["app"]["endpoints"] = [f"moving.test:{port}"]
    ways.start()
    traffic = Traffic().busy(ways, "app")
    point("127.0.0.3")
    for sidecar in ways.back:
        wait_for("the name to be resolved again", lambda s=sidecar: "127.0.0.2" not in s.get("/endpoints"))
    first.stop()
    expect("who has served", set(traffic.run(1).end()), {first.name, second.name})


@day("clocks that jump by a day, ahead and back: no request fails")
def clock_jumps(suite):
    ways = Ways(suite, "clock").serve("app", application(suite, "Gin", "clock").start(), retry={"on": []}).start()
    traffic = Traffic().busy(ways, "app")
    pids = [p.child.pid for p in (ways.one, ways.provider, ways.consumer)]
    clocks = [Clock(pid, functools.partial(stopped, pid)) for pid in pids]
    for days in (1, -1, 0):
        for clock in clocks:
            clock.step(days * SECONDS_OF_A_DAY)
        traffic.run(1)
    traffic.end()


@day("a typo in a reload: it is named with its line, and nothing changes")
def typo(suite):
    ways = Ways(suite, "typo").serve("app", application(suite, "Gin", "typo").start()).start()
    traffic = Traffic().busy(ways, "app")
    for sidecar in ways.back:
        with open(sidecar.file, encoding="utf-8") as f:
            before, after = f.read().split('"endpoints"')
        suite.file(os.path.basename(sidecar.file), f'{before}"endpoint"{after}')
        message = re.compile(rf"{sidecar.file}:{before.count(chr(10)) + 1}:\d+: .*did you mean endpoints")
        sidecar.child.send_signal(signal.SIGHUP)
        wait_for("the refusal", lambda s=sidecar, m=message: m.search(s.tail()))
        checked = run([tool("remora"), "check", sidecar.file], check=False)
        if checked.returncode != 1 or not message.search(checked.stdout + checked.stderr):
            raise Failed(f"remora check: {checked.stdout}{checked.stderr}")
        reload(sidecar)
    traffic.end()


@day("a canary gets its 5%, and a half after a reload")
def canary(suite):
    stable, new = (application(suite, f, name).start() for f, name in zip(FRAMEWORKS[-2:], ("stable", "canary")))
    ways = Ways(suite, "canary").serve("stable", stable).serve("canary", new)

    def split(percent):
        shares = [{"name": "stable", "weight": 100 - percent}, {"name": "canary", "weight": percent}]
        for sidecar in ways.front:
            sidecar.config["routes"] = [{"match": {"host": "shop"}, "service": shares}]

    def count(percent, orders=1000 if SHORT else 4000):
        deviation = (orders * percent * (100 - percent)) ** 0.5 / 100
        for way, port in ways.ports.items():
            got = sum(send(port, "shop") == "canary" for _ in range(orders))
            if abs(got - orders * percent / 100) > 6 * deviation:
                raise Failed(f"{way}: {got} of {orders} went to the canary, not {percent}%")

    split(5)
    ways.start()
    count(5)
    split(50)
    for sidecar in ways.front:
        reload(sidecar)
    count(50)


@day("a service that moves from one port to another under load: no request fails")
def port_moves(suite):
    for framework in FRAMEWORKS:
        name = short_name(framework)
        old, new = (application(suite, framework, f"{name}-{age}") for age in ("old", "new"))
        ways = Ways(suite, f"{name}-moves").serve("app", old.start()).start()
        traffic = Traffic().busy(ways, "app", clients=4)
        new.start()
        ways.move("app", new)
        wait_for("orders to the new port", lambda t=traffic, n=new: t.served.get(n.name))
        connections = ["ss", "-Htn", "state", "established", f"( dport = :{old.port} )"]
        wait_for("the last responses of the old one", lambda c=connections: not run(c).stdout)
        old.stop()
        traffic.run(0.5).end()


def main():
    suite = Suite()
    for what, function in DAYS:
        if os.environ.get("DAY", "") not in function.__name__:
            continue
        start = time.monotonic()
        suite.attempt(what, function, suite)
        print(f"      {time.monotonic() - start:.1f} s", flush=True)
        suite.stop()
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
