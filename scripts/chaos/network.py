"""A network of its own: hosts, each a network namespace, on one switch, a bridge in
another. Cables can be made bad, cut in either direction, and unplugged."""

import json
import os
import shutil
import socket
import sys

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
            self.plug(host)
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

    def impair(self, names, **how):
        """Makes cables bad in both directions, or good again without how; wire.py has its names."""
        for name in names:
            host = self.hosts[name]
            if self.netem:
                for space, device in ((host, "eth0"), (self.switch, host.port)):
                    self.qdisc(space, device, how)
                continue
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(PATIENCE)
                s.connect(self.wires[name])
                s.sendall(json.dumps(how).encode() + b"\n")
                if s.recv(16) != b"ok\n":
                    raise Failed(f"the wire of {name} does not obey")

    def qdisc(self, space, device, how):
        options = ["limit", "10000"]
        if "delay" in how:
            options += ["delay", f"{how['delay']}ms", f"{how.get('jitter', 0)}ms"]
        for share in ("loss", "reorder"):
            if share in how:
                options += [share, f"{how[share]}%"]
        run(["tc", "-n", space.name, "qdisc", "replace", "dev", device, "root", "netem", *options])

    def refuse_input(self, host, *rule):
        host.execute("iptables", "-w", "-A", "INPUT", *rule)

    def cut_to(self, host):
        """No packet reaches the host any more."""
        self.refuse_input(host, "-i", "eth0", "-j", "DROP")

    def cut_from(self, host):
        """No packet of the host reaches the others."""
        for other in self.hosts.values():
            if other is not host:
                self.refuse_input(other, "-s", host.address, "-j", "DROP")

    def mend(self):
        """Ends all cuts and refusals."""
        for host in self.hosts.values():
            host.execute("iptables", "-w", "-F", "INPUT")

    def unplug(self, host):
        self.switch.ip("link", "set", host.port, "nomaster")

    def plug(self, host):
        self.switch.ip("link", "set", host.port, "master", "bridge")
