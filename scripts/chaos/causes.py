"""What causes faults. Causes may overlap, also at one target."""

import contextlib
from typing import Callable, NamedTuple

from layers import together
from mesh import APPS, CONSUMERS, ETCDS, PROVIDERS, SERVICES

DAY = 86400

SIDECARS = CONSUMERS + PROVIDERS
PROCESSES = SIDECARS + APPS + ETCDS
HOSTS = SIDECARS + ETCDS

PORTS = {port for _, _, port in SERVICES.values()}  # of providers' sidecars

AT_ONCE = (0, 0)


class Cause(NamedTuple):
    what: str
    targets: tuple
    lasts: tuple    # the least and the most seconds that are drawn
    weight: int     # how often it is drawn, beside the others
    hold: Callable  # takes the mesh and a target; a context in which the fault lasts


CAUSES = {}


def cause(name, what, targets, lasts=(0.5, 6), weight=1):
    def register(hold):
        CAUSES[name] = Cause(what, targets, lasts, weight, hold)
        return hold
    return register


@cause("kill", "the process is killed, and started again at the end", PROCESSES, (0.2, 5), weight=4)
def kill(m, target):
    return m.processes[target].down()


@cause("pause", "the process is stopped (SIGSTOP)", PROCESSES, weight=4)
def pause(m, target):
    return m.processes[target].paused()


@cause("vanish", "the sidecar and its host's cable are gone, and its connections get neither FIN nor RST", SIDECARS)
@contextlib.contextmanager
def vanish(m, target):
    with m.network.unplugged[target](), m.processes[target].down():
        lose_links(m, target)
        yield


@cause("lost-links", "the connections to other sidecars are lost", SIDECARS, AT_ONCE)
@contextlib.contextmanager
def lost_links(m, target):
    lose_links(m, target)
    yield


def lose_links(m, target):
    """Ends the connections between sidecars at a host: the other end gets an RST if the cable is whole."""
    for port in PORTS:
        for end in ("sport", "dport"):
            m.hosts[target].execute("ss", "-K", end, f":{port}", check=False)


@cause("cut-to", "nothing reaches the host", HOSTS)
def cut_to(m, target):
    return m.network.cut_to(target)


@cause("cut-from", "nothing comes from the host", HOSTS)
def cut_from(m, target):
    return m.network.cut_from(target)


@cause("rst", "the host responds with RST to all packets for its sidecar", PROVIDERS)
def rst(m, target):
    return together(*(m.network.refused(m.hosts[target], "-p", "tcp", "--dport", str(port), "-j", "REJECT",
                                        "--reject-with", "tcp-reset") for port in PORTS))


def cable(name, what, targets=HOSTS, **how):
    cause(name, what, targets)(lambda m, target: m.network.impaired(target, **how))


cable("loss-1", "1% of the packets are lost", loss=1)
cable("loss-10", "10% of the packets are lost", loss=10)
cable("loss-40", "40% of the packets are lost", loss=40)
cable("delay-50", "packets take 50 ms ± 20 ms", delay=50, jitter=20)
cable("delay-100", "packets take 100 ms", delay=100)
cable("delay-500", "packets take 500 ms ± 100 ms", delay=500, jitter=100)
cable("reorder", "a quarter of the packets overtake the others, which take 10 ms", delay=10, reorder=25)
cable("narrow", "256 kbit/s", rate=256)


@cause("disk-full", "the disk of the consumers is full", ("disk",))
def disk_full(m, _):
    return m.disk_full()


@cause("slow-disk", "each write to the disk takes 0.3 s", ETCDS)
def slow_disk(m, target):
    return m.processes[target].slow_disk()


@cause("clock-ahead", "the wall clock jumps ahead by a day", SIDECARS)
def clock_ahead(m, target):
    return m.processes[target].clock(DAY)


@cause("clock-back", "the wall clock jumps back by two days", SIDECARS)
def clock_back(m, target):
    return m.processes[target].clock(-2 * DAY)


@cause("descriptors", "the process can open no descriptor more", SIDECARS)
def descriptors(m, target):
    return m.processes[target].without_descriptors()


@cause("reload", "the sidecar reloads a changed configuration", SIDECARS, AT_ONCE, weight=2)
@contextlib.contextmanager
def reload(m, target):
    m.change(target)
    m.processes[target].reload()
    yield


@cause("restart", "another process takes the place of the sidecar (hot restart)", SIDECARS, AT_ONCE, weight=4)
@contextlib.contextmanager
def restart(m, target):
    m.processes[target].replace()
    yield
