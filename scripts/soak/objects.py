"""The live objects of a sidecar's heap by the lines that allocated them, and the lines
whose objects only become more."""

import collections
import re
from typing import NamedTuple

from harness.process import run

# For a sidecar's environment: its profile holds every allocation, not a sample.
EVERY_ALLOCATION = {"GODEBUG": "memprofilerate=1"}

OWN = "github.com/remora-proxy/remora/"


class Heap(NamedTuple):
    """What is in use after collections. sites counts objects by the lines that allocated them."""

    mib: float
    sites: collections.Counter

    def objects(self):
        return self.sites.total()


def live_heap(p, file):
    """The Heap. Pooled objects need two collections to go. file keeps the profile, for go
    tool pprof."""
    for _ in range(3):
        profile = p.fetch("/debug/pprof/heap?gc=1")
    with open(file, "wb") as f:
        f.write(profile)
    return parse(run(["go", "tool", "pprof", "-raw", file]).stdout)


def parse(raw):
    """The Heap of what go tool pprof -raw prints: samples, each with the objects and
    bytes allocated and those in use, and its locations, innermost first; then the
    locations, each with its functions, of which several are where one is inlined."""
    samples, _, locations = raw.partition("\nLocations\n")
    frames, inlined = {}, []
    for line in locations.partition("\nMappings\n")[0].splitlines():
        start = re.match(r" *(?:(\d+): 0x\w+ M=\d+ )?", line)
        if start.group(1):
            inlined = frames[start.group(1)] = []
        if m := re.match(r"(.*) (?:\S*/)?(\S+:\d+):\d+ s=\d+$", line[start.end():]):
            inlined.append(m.groups())
    size, sites = 0, collections.Counter()
    for m in re.finditer(r"^ +\d+ +\d+ +([1-9]\d*) +(\d+): ([\d ]+)$", samples, re.M):
        size += int(m.group(2))
        sites[site([f for at in m.group(3).split() for f in frames[at]])] += int(m.group(1))
    return Heap(size / (1 << 20), sites)


def site(stack):
    """Names the innermost line, and the function of the sidecar's own that led there."""
    function, line = stack[0]
    own = next((f for f, _ in stack if f.startswith(OWN)), function)
    return f"{line} in {own.removeprefix(OWN)}"


def steady(heaps):
    """The least growth of each site from one heap to the next. A site that fills to a
    bound, or varies, stands still or shrinks in between."""
    grown = {s: min(b.sites[s] - a.sites[s] for a, b in zip(heaps, heaps[1:])) for s in heaps[-1].sites}
    return collections.Counter({s: n for s, n in grown.items() if n > 0})
