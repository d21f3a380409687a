"""A network of its own: hosts, each a network namespace, on one switch, a bridge in
another. Cables can be made bad, cut in either direction, and unplugged."""

import contextlib
import json
import os
import shutil
import socket
import sys

from layers import Layers, together

from harness.process import PATIENCE, Failed, run
from harness.spaces import Space, sweep

HERE = os.path.dirname(os.path.abspath(__file__))


class Host(Space):
    """A namespace with the device eth0, its cable leading to a port of the switch."""

    def __init__(self, name, address):
        super().__init__(name)
        self.port, self.address = name, address


class Network:
    """The hosts by their names. Those in bad_cables can be impaired."""

    def __init__(self, suite, addresses, bad_cables):
        self.suite = suite
        self.switch = Space("switch")
        self.hosts = {name: Host(name, address) for name, address in addresses.items()}
        self.bad_cables = bad_cables
        self.netem = False  # whether the kernel has it; else wire.py does its work
        self.wires = {}  # paths of their controls
        self.impairments = {name: Layers(lambda hows, name=name: self._impair(name, combined(hows))) for name in bad_cables}
        self.unplugged = {name: Layers(lambda holders, name=name: self._plug(name, not holders)) for name in addresses}

    def build(self):
        sweep()
        self.switch.make()
        if modprobe := shutil.which("modprobe"):
            run([modprobe, "sch_netem"], check=False)
        self.netem = run(["tc", "-n", self.switch.name, "qdisc", "add", "dev", "lo", "root", "netem"], check=False).returncode == 0
        self.switch.ip("link", "add", "bridge", "type", "bridge")
        self.switch.ip("link", "set", "bridge", "up")
        for host in self.hosts.values():
            host.make()
            if host.port in self.bad_cables and not self.netem:
                self.wire(host)
            else:
                self.switch.ip("link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            self._plug(host.port, True)
            self.switch.ip("link", "set", host.port, "up")
            host.ip("address", "add", host.address + "/24", "dev", "eth0")
            host.ip("link", "set", "eth0", "up")

    def cables(self):
        return "tc netem" if self.netem else "wire.py, since the kernel has no sch_netem"

    def wire(self, host):
        control = self.suite.path(host.port + ".wire")
        self.suite.process(host.port + "-wire", [
            sys.executable, os.path.join(HERE, "wire.py"), self.switch.name, host.port, host.name, "eth0", control],
            lambda: os.path.exists(control)).start()
        self.wires[host.port] = control

    def remove(self):
        """Removes everything that build has made, all or part. The hosts' processes have ended."""
        for space in (*self.hosts.values(), self.switch):
            space.remove()
        for control in self.wires.values():
            os.remove(control)
        self.wires.clear()

    def impaired(self, *names, **how):
        """A context in which these cables are bad in both directions; wire.py has the names of how."""
        return together(*(self.impairments[name](how) for name in names))

    def _impair(self, name, how):
        if self.netem:
            for space, device in ((self.hosts[name], "eth0"), (self.switch, name)):
                self._qdisc(space, device, how)
            return
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(self.wires[name])
            s.sendall(json.dumps(how).encode() + b"\n")
            if s.recv(16) != b"ok\n":
                raise Failed(f"the wire of {name} does not obey")

    def _qdisc(self, space, device, how):
        options = ["limit", "10000"]
        if "delay" in how:
            options += ["delay", f"{how['delay']}ms", f"{how.get('jitter', 0)}ms"]
        for share in ("loss", "reorder"):
            if share in how:
                options += [share, f"{how[share]}%"]
        if "rate" in how:
            options += ["rate", f"{how['rate']}kbit"]
        run(["tc", "-n", space.name, "qdisc", "replace", "dev", device, "root", "netem", *options])

    @contextlib.contextmanager
    def refused(self, host, *rule):
        """A context in which the host treats arriving packets by a rule of iptables."""
        host.execute("iptables", "-w", "-A", "INPUT", *rule)
        try:
            yield
        finally:
            host.execute("iptables", "-w", "-D", "INPUT", *rule)

    def cut_to(self, name):
        """A context in which no packet reaches the host."""
        return self.refused(self.hosts[name], "-i", "eth0", "-j", "DROP")

    def cut_from(self, name):
        """A context in which no packet of the host reaches the others."""
        address = self.hosts[name].address
        return together(*(self.refused(other, "-s", address, "-j", "DROP")
                          for other in self.hosts.values() if other.address != address))

    def _plug(self, name, plugged):
        self.switch.ip("link", "set", name, *(("master", "bridge") if plugged else ("nomaster",)))


def combined(hows):
    """Several impairments of one cable as one: delays add up, and each loses its share of what the others let pass."""
    how = {}
    for key in ("delay", "jitter"):
        if total := sum(h.get(key, 0) for h in hows):
            how[key] = total
    passed = 1
    for h in hows:
        passed *= 1 - h.get("loss", 0) / 100
    if passed < 1:
        how["loss"] = 100 * (1 - passed)
    for key, worst in (("reorder", max), ("rate", min)):
        if shares := [h[key] for h in hows if key in h]:
            how[key] = worst(shares)
    return how
