"""Transparent interception, between network namespaces.

    intercept.py CALLS

Programs in one namespace call servers in the other. intercept.sh redirects their
connections, and the programs know nothing of it.
"""

import json
import os
import re
import shutil
import sys

from harness.process import Failed, tool, wait_for
from harness.sidecar import configuration, written
from harness.spaces import Space, ip, sweep
from harness.suite import Suite, title

HERE = os.path.dirname(os.path.abspath(__file__))
INTERCEPT = os.path.join(HERE, "..", "intercept.sh")

PROXY_UID, APP_UID, NOBODY = "61001", "61002", "61003"
NEAR4, FAR4, NEAR6, FAR6 = "10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2"
ADMIN, COUNTS = "http://127.0.0.1:9901", "http://127.0.0.1:7000/"
HOSTS = ("compute", "other", "store", "lines", "greeter")
REPLICAS = ("9001", "9002", "9003")

# A Java that has just started may take long from its connection to its request, and
# connections whose server speaks first wait as long.
CONFIG = configuration("intercept", "127.0.0.1:9901", timeouts={"detect": "20s"})
CONFIG["listeners"] = [{"name": f"egress{v}", "address": address, "protocol": "http", "transparent": True}
                       for v, address in (("4", "127.0.0.1:15001"), ("6", "[::1]:15001"))]
CONFIG["routes"] = [{"match": {"host": f"compute{v}"}, "service": f"compute{v}"} for v in "46"]
CONFIG["services"] = {f"compute{v}": {
    "discover": "static", "endpoints": [f"{address}:{port}" for port in REPLICAS], "protocol": "http", "connect_timeout": "15s",
    "timeout": "60s", "hedge": {"mode": "on", "delay": "20ms", "budget": 0.5},
} for v, address in (("4", FAR4), ("6", f"[{FAR6}]"))}


class Lab:
    """Two namespaces, and the processes in them."""

    def __init__(self, suite):
        self.suite = suite
        self.near, self.far = Space("near"), Space("far")
        self.names = f"/etc/netns/{self.near.name}"

    def build(self):
        sweep()
        for space in (self.near, self.far):
            space.make()
        ip("link", "add", "veth0", "netns", self.near.name,
           "type", "veth", "peer", "name", "veth0", "netns", self.far.name)
        for space, v4, v6 in ((self.near, NEAR4, NEAR6), (self.far, FAR4, FAR6)):
            space.ip("address", "add", v4 + "/24", "dev", "veth0")
            space.ip("address", "add", v6 + "/64", "dev", "veth0", "nodad")
            space.ip("link", "set", "veth0", "up")
        os.makedirs(self.names)  # ip netns exec puts it in the place of /etc/hosts
        with open(self.names + "/hosts", "w", encoding="ascii") as f:
            for address, suffix in (("127.0.0.1 localhost", ""), (FAR4, "4"), (FAR6, "6")):
                f.write(" ".join([address] + [host + suffix for host in HOSTS if suffix]) + "\n")

    def remove(self):
        """Removes everything that build has made, all or part."""
        self.suite.stop()
        for space in (self.near, self.far):
            space.remove()
        shutil.rmtree(self.names, ignore_errors=True)

    def start(self):
        config = self.suite.file("remora.yaml", written(CONFIG))
        # A process of another user gets no signal of its parent's death.
        as_proxy = ["setpriv", "--reuid", PROXY_UID, "--regid", PROXY_UID, "--clear-groups", "--pdeathsig", "KILL"]
        self.spawn("remora", self.near, lambda: self.curl(self.near, ADMIN + "/readyz", check=False),
                   *as_proxy, tool("remora"), "run", "-c", config)
        self.spawn("far", self.far, lambda: self.curl(self.far, COUNTS, check=False), sys.executable, os.path.join(HERE, "far.py"))
        self.spawn("redis", self.far, lambda: "PONG" in self.far.execute("redis-cli", "PING", check=False).stdout,
                   "redis-server", "--port", "6379", "--bind", "0.0.0.0", "::", "--protected-mode", "no", "--save", "")

    def spawn(self, name, space, ready, *argv):
        self.suite.process(name, space.argv(*argv), ready).start()

    def curl(self, space, url, check=True):
        return space.execute("curl", "--silent", "--fail", "--max-time", "60", url, check=check).stdout

    def intercept(self, *args, **more):
        return self.near.execute(INTERCEPT, *args, **more)

    def rules(self):
        """What the nat tables hold, without comments and counters."""
        all_rules = "".join(self.near.execute(save, "-t", "nat").stdout for save in ("iptables-save", "ip6tables-save"))
        return re.sub(r"#.*\n|\[\d+:\d+\]", "", all_rules)

    def counts(self):
        """Requests so far, by the port of the server."""
        return json.loads(self.curl(self.far, COUNTS))

    def metric(self, name):
        text = self.curl(self.near, ADMIN + "/metrics")
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0

    def passed(self):
        return self.metric('remora_stream_departures_total{kind="pass"}')

    def program(self, name, argv, suffix, calls):
        """Runs a program, and counts its own checks."""
        ran = self.near.execute(*argv, suffix, str(calls), check=False)
        lines = ran.stdout.splitlines()
        for line in lines:
            verdict, what = line.split(" ", 1)
            self.suite.check(f"{name}, IPv{suffix}: {what}", verdict == "ok")
        return self.suite.check(f"{name}, IPv{suffix}: all was tried", len(lines) == CHECKS and ran.returncode == 0,
                                ran.stderr[-500:])


PROGRAMS = {
    "Python": [sys.executable, os.path.join(HERE, "client.py")],
    "Node": ["node", os.path.join(HERE, "client.js")],
    "Java": ["java", os.path.join(HERE, "Client.java")],
}

# How many checks each program makes, and how many of its connections pass through. The
# Java client makes two for HTTP.
CHECKS = 6
PASSES = {"Python": 5, "Node": 5, "Java": 6}


def spread(before, after):
    """Requests at each replica, and at the original, between two counts."""
    return [after[port] - before[port] for port in REPLICAS], after["8080"] - before["8080"]


def all_users(suite, lab, calls):
    title("the connections of all users")
    lab.intercept("install", "--proxy-uid", PROXY_UID)
    once = lab.rules()
    suite.check("install makes rules for IPv4 and IPv6", once.count("-j REDIRECT --to-ports 15001") == 2, once)
    lab.intercept("install", "--proxy-uid", PROXY_UID)
    suite.check("a second install changes nothing", lab.rules() == once, lab.rules())
    for name, argv in PROGRAMS.items():
        for suffix in "46":
            before, passed = lab.counts(), lab.passed()
            lab.program(name, argv, suffix, calls)
            replicas, original = spread(before, lab.counts())
            suite.check(f"{name}, IPv{suffix}: calls are balanced", min(replicas) > 0 and original == 0,
                        f"{replicas} at the replicas, {original} at the original")
            suite.check(f"{name}, IPv{suffix}: calls are hedged", sum(replicas) > calls, f"{replicas} of {calls} calls")
            passed = lab.passed() - passed
            suite.check(f"{name}, IPv{suffix}: the rest passes through Remora", passed == PASSES[name], f"{passed}")
            print(f"      {calls} calls, {replicas} at the replicas, {original} at the original; {passed:.0f} passed")


def get(lab, url, *before):
    return lab.near.execute(*before, "curl", "--silent", "--max-time", "60", url, check=False).stdout


def by_ports(suite, lab):
    title("by ports")
    lab.intercept("install", "--proxy-uid", PROXY_UID, "--ports", "80,8000-8080")
    passed = lab.passed()
    suite.check("a port in the list is redirected", get(lab, "http://compute4:8080/").startswith("replica"))
    suite.check("one that is not is left alone", "Host: other4" in get(lab, "http://other4:8081/"))
    lab.intercept("install", "--proxy-uid", PROXY_UID, "--exclude-ports", "8080")
    suite.check("an excluded port is left alone", get(lab, "http://compute4:8080/") == "original")
    suite.check("so it does not pass through Remora", lab.passed() == passed)
    lab.intercept("install", "--proxy-uid", PROXY_UID, "--exclude", FAR4 + "/32")
    suite.check("an excluded address is left alone", get(lab, "http://compute4:8080/") == "original")
    suite.check("and others are not", get(lab, "http://compute6:8080/").startswith("replica"))


def by_uid(suite, lab):
    title("by uid")
    as_app = ["setpriv", "--reuid", APP_UID, "--clear-groups"]
    lab.intercept("install", "--proxy-uid", PROXY_UID, "--uid", APP_UID)
    for suffix in "46":
        url = f"http://compute{suffix}:8080/"
        suite.check(f"IPv{suffix}: this user's connections are redirected", get(lab, url, *as_app).startswith("replica"))
        suite.check(f"IPv{suffix}: another's are not", get(lab, url) == "original")


def circle(suite, lab):
    """Remora's own connections are not excluded, by a mistake of the configuration."""
    title("a wrong --proxy-uid")
    lab.intercept("install", "--proxy-uid", NOBODY)
    for suffix in "46":
        ran = lab.near.execute("curl", "--silent", "--max-time", "60", f"http://other{suffix}:8081/", check=False)
        suite.check(f"IPv{suffix}: a connection that would go in a circle is reset", ran.returncode in (52, 55, 56),
                    f"curl exit {ran.returncode}")
    wait_for("connections to end", lambda: lab.metric('remora_reactor_connections{direction="in"}') == 0)
    found = lab.metric('remora_errors_total{code="loop-detected"}')
    suite.check("each is detected the first time that it comes back", found == 2, f"{found}")
    direct = get(lab, "http://127.0.0.1:15001/")
    suite.check("a caller of the listener itself gets a response", "no route" in direct, direct)


def removal(suite, lab):
    title("remove")
    for what in ("remove", "a second remove"):
        lab.intercept("remove")
        suite.check(f"{what} leaves nothing", "REMORA" not in lab.rules(), lab.rules())
    suite.check("connections go where they always went", get(lab, "http://compute4:8080/") == "original")


def refusals(suite, lab):
    title("refusals")

    def refused(what, words, *argv, env=None):
        ran = lab.near.execute(*argv, check=False, env=env)
        suite.check(what, ran.returncode == 1 and words in ran.stderr, f"exit {ran.returncode}: {ran.stderr}")

    tools = suite.path("tools")  # all that the script needs but iptables
    os.makedirs(tools, exist_ok=True)
    for name in ("basename", "bash", "env", "id", "sed"):
        if not os.path.exists(os.path.join(tools, name)):
            os.symlink(shutil.which(name), os.path.join(tools, name))
    install = [INTERCEPT, "install", "--proxy-uid", PROXY_UID]
    refused("without rights it fails with a message", "CAP_NET_ADMIN", "setpriv", "--reuid", NOBODY, "--clear-groups",
            "--inh-caps=-all", "bash", "-c", f'exec bash -s "$@" <"{suite.path("intercept.sh")}"', "-",
            *install[1:])
    refused("without iptables too", "iptables is not installed", os.path.join(tools, "env"), "PATH=" + tools, *install)
    refused("--proxy-uid is a must", "--proxy-uid is missing", INTERCEPT, "install")
    refused("Remora's own user is not redirected", "need another user", *install, "--uid", PROXY_UID)
    refused("an unknown user", "there is no user", INTERCEPT, "install", "--proxy-uid", "no-such-user")
    refused("a port that is none", "not a port", *install, "--ports", "80,66000")
    refused("an address that is none", "invalid mask", *install, "--exclude", "10.0.0.0/99")
    suite.check("nothing of that leaves a trace", "REMORA" not in lab.rules(), lab.rules())


def main():
    suite, calls = Suite(), int(sys.argv[1])
    shutil.copy(INTERCEPT, suite.dir)  # where any user can read it
    lab = Lab(suite)
    try:
        try:
            lab.build()
        except Failed as e:
            suite.check("network namespaces", False, f"can't be made on this machine: {e}")
            return suite.finish()
        lab.start()
        all_users(suite, lab, calls)
        by_ports(suite, lab)
        by_uid(suite, lab)
        circle(suite, lab)
        removal(suite, lab)
        refusals(suite, lab)
        return suite.finish()
    finally:
        lab.remove()


sys.exit(main())
