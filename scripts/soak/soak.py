"""Mixed traffic through sidecars for a long time, and what they use meanwhile.

Eight kinds of traffic go through one consumer's sidecar and seven providers', all over
links with mutual TLS. Meanwhile replicas, providers' sidecars and etcd are killed, and
the consumer's configuration changes. The first minute is not judged. After it, three
times on the way and at the end, the traffic pauses, and the live heap of each sidecar is
measured: no objects may have become more each time. The use at the end (live heap,
descriptors, goroutines, pending, buffered bytes) is compared with that after the first
minute.
In between resident memory, descriptors and goroutines are sampled every two seconds,
and may not grow in a long run. Latency is shown only: it depends on the machine.

    soak.py SECONDS OUT     OUT takes drawings and samples; "" keeps none
"""

import json
import os
import sys
import threading
import time

from level import REST, Level, level_at_rest, wait_unpooled
from mesh import LEASE, Mesh
from objects import live_heap, steady
from traffic import Traffic
from trend import Growth, draw

from harness.suite import Suite, change, table

WARMUP = 60  # seconds that are not judged
PARTS = 4    # of the time after it, each with a rest at its end
EVERY = 2    # seconds between samples

# How much a series may grow, from the end of WARMUP to the end: a share, and an amount
# in its unit. Resident memory follows bursts and the collector. A client or two more
# mean some descriptors and goroutines more.
BOUNDS = {"RSS MiB": (0.2, 16), "descriptors": (0.02, 4), "goroutines": (0.02, 4)}

# The least seconds for a judgement of a series. For some minutes resident memory follows the
# collector more than what is in use, and the others follow the load: it opens more connections
# whenever the machine stands still. What is in use at rest is judged in any case.
SERIES = 600

# The live heap at rest: a share, and MiB. Free lists and windows of statistics fill,
# and buffers of long messages stay for a while.
HEAP = (0.25, 6)

# How many live objects more there may be at the end of every part, over all sites that
# have grown in each. Free lists, tables of headers, and the runtime's memory for
# goroutines and waiters fill as well, but seldom in each part: 17 have been seen.
STEADY = 30

# How many more there may be at the end in all. A burst leaves exchanges in free lists.
# Each exchange and its memory are up to eight objects, and the loads open at most 256
# connections.
OBJECTS = 2500


def most(sites):
    """Names the sites with the most objects."""
    return ", ".join(f"{n} at {site}" for site, n in sites.most_common(12))


def more(before, now):
    """What has become more from one heap of a sidecar at rest to another."""
    (share, room), found = HEAP, []
    if now.mib > before.mib * (1 + share) + room:
        found.append(f"live heap ({before.mib:.1f} -> {now.mib:.1f} MiB)")
    if now.objects() > before.objects() + OBJECTS:
        found.append(f"live objects ({before.objects()} -> {now.objects()}: {most(now.sites - before.sites)})")
    return found


def heap_at_rest(p, first, file, end):
    """The live heap once no more is in use than at first, or at the time end."""
    while more(first, heap := live_heap(p, file)) and time.monotonic() < end:
        time.sleep(1)
    return heap


class Worker(threading.Thread):
    """Repeats step while running is set. An error of step stays in error."""

    def __init__(self):
        super().__init__(daemon=True)
        self.running, self.idle, self.error = threading.Event(), threading.Event(), None
        self.idle.set()
        self.start()

    def step(self):
        """Returns the seconds to wait before the next step."""
        raise NotImplementedError

    def run(self):
        while self.error is None:
            self.running.wait()
            self.idle.clear()
            try:
                pause = self.step()
            except Exception as e:  # pylint: disable=broad-except
                self.error, pause = e, 0
            self.idle.set()
            time.sleep(pause)


class Samples(Worker):
    """What each sidecar uses over time: points (second, value) by sidecar and kind."""

    def __init__(self, mesh, clock):
        self.mesh, self.clock = mesh, clock
        self.series = {kind: {p.name: [] for p in mesh.watched} for kind in BOUNDS}
        super().__init__()

    def step(self):
        at = self.clock()
        for p in self.mesh.watched:
            for kind, value in zip(BOUNDS, (p.rss() / 2**20, p.fds(), p.goroutines())):
                self.series[kind][p.name].append((at, value))
        return EVERY


class Faults(Worker):
    """Kills and restarts, one after another, each with a reload of the consumer."""

    def __init__(self, m, pause):
        self.mesh, self.pause, self.count = m, pause, 0
        self.faults = [
            lambda: self.kill(m.replicas[0], 1),             # behind a sidecar that stays
            lambda: self.kill(m.computing[1], LEASE + 2),    # out of etcd, and back
            lambda: self.kill(m.bulk, 0.5),                  # in the middle of streams
            lambda: self.drain(m.computing[2]),
            lambda: self.kill(m.callees[0], 1),
            lambda: self.kill(m.etcd, 2),
            lambda: self.kill(m.replicas[2], 1),
            lambda: self.drain(m.calling[1]),
        ]
        super().__init__()

    def step(self):
        self.faults[self.count // 2 % len(self.faults)]()
        self.mesh.reload()
        self.count += 2
        return self.pause

    def kill(self, p, seconds):
        p.kill()
        time.sleep(seconds)
        p.start()

    def drain(self, p):
        p.stop()
        p.start()


class Soak:
    """One run."""

    def __init__(self, suite, mesh, seconds):
        self.suite, self.mesh, self.seconds = suite, mesh, seconds
        self.began, self.rested = time.monotonic(), 0.0  # clock leaves the pauses out
        self.levels, self.heaps = [], []  # at rest, each by the sidecar's name: the levels of the first time and of the end
        self.samples, self.faults = Samples(mesh, self.clock), Faults(mesh, pause=5)
        self.traffic = Traffic(mesh, self.clock)

    def clock(self):
        return time.monotonic() - self.began - self.rested

    def run_until(self, second):
        self.traffic.gate.set()
        self.samples.running.set()
        self.faults.running.set()
        while self.clock() < second:
            if error := self.faults.error or self.samples.error:
                raise error
            time.sleep(0.5)
        self.faults.running.clear()
        self.samples.running.clear()

    def rest(self, last):
        """Measures what each sidecar uses without traffic. Only the levels of the last rest are compared with the first,
        so only that rest waits for them."""
        since = time.monotonic()
        self.faults.idle.wait()
        self.mesh.wait_whole()
        self.traffic.pause()
        for p in self.mesh.watched[1:]:
            if p.pools:
                wait_unpooled(p)
        end = time.monotonic() + REST  # for all together: each may leak
        if not self.levels:
            self.levels.append({p.name: Level(p) for p in self.mesh.watched})
        elif last:
            self.levels.append({p.name: level_at_rest(p, self.levels[0][p.name], end - time.monotonic()) for p in self.mesh.watched})
        heaps = {}
        for p in self.mesh.watched:
            file = self.suite.path(f"{p.name}-{len(self.heaps)}.heap")
            heaps[p.name] = heap_at_rest(p, self.heaps[0][p.name], file, end) if self.heaps else live_heap(p, file)
        self.heaps.append(heaps)
        self.rested += time.monotonic() - since

    def run(self):
        print(f"{self.seconds} s of traffic; a rest after {WARMUP} s, and {PARTS} until the end", flush=True)
        for part in range(PARTS + 1):
            self.run_until(WARMUP + (self.seconds - WARMUP) * part / PARTS)
            self.rest(last=part == PARTS)
            print(f"{self.rested:.0f} s of rest", flush=True)
        self.judge_traffic()
        self.judge_levels()
        self.judge_series()

    def judge_traffic(self):
        print(f"\n{self.faults.count} kills, restarts and reloads")
        table(("traffic", "done", "failed", "cut", "failures"),
              *((k.name, k.done, k.failed(), k.cut, dict(k.wrong) or "") for k in self.traffic.kinds))
        for k in self.traffic.kinds:
            self.suite.check(f"{k.name}: " + (f"at most one, or {k.lost:.1%}, failed" if k.lost else "none failed"),
                             k.done > 0 and k.failed() <= k.bound())
            self.suite.check(f"{k.name}: every response is right", not k.garbled, "; ".join(k.garbled[:3]))

    def judge_levels(self):
        rows, found = [("at rest", "heap MiB", "objects", "steadily", *Level.COLUMNS)], {}
        for name, b in self.levels[0].items():
            a, heaps = self.levels[-1][name], [heap[name] for heap in self.heaps]
            found[name] = a.above(b) + more(heaps[0], heaps[-1])
            if (grown := steady(heaps)).total() > STEADY:
                found[name].append(f"live objects (each time at least {grown.total()} more: {most(grown)})")
            rows.append((name, change(heaps[0].mib, heaps[-1].mib, "{:.1f}"), change(heaps[0].objects(), heaps[-1].objects()),
                         grown.total(), *a.cells(b)))
        table(*rows)
        for name, what in found.items():
            self.suite.check(f"{name}: rests where it rested after the first minute", not what, "; ".join(what))

    def judge_series(self):
        for kind, (share, room) in BOUNDS.items():
            grown = {name: Growth([p for p in points if p[0] >= WARMUP], share, room)
                     for name, points in self.samples.series[kind].items()}
            table((kind + ", under traffic", "first and last, slope, bound"), *grown.items())
            if self.seconds < SERIES:
                print(f"not judged in less than {SERIES} s")
                continue
            for name, growth in grown.items():
                self.suite.check(f"{name}: {kind} does not grow", not growth.over(), str(growth))

    def keep(self, directory):
        os.makedirs(directory, exist_ok=True)
        latency = {name: [(at, row[i]) for at, *row in self.traffic.latencies] for i, name in enumerate(("P50 ms", "P99 ms"))}
        series = {**self.samples.series, "latency": latency}
        for kind, points in series.items():
            draw(os.path.join(directory, f"soak-{kind.split()[0].lower()}.svg"), kind, points, self.seconds)
        with open(os.path.join(directory, "soak.json"), "w", encoding="ascii") as f:
            json.dump(series, f)


def main():
    suite = Suite()
    mesh = Mesh(suite)
    mesh.start()
    soak = Soak(suite, mesh, int(sys.argv[1]))
    try:
        soak.run()
    finally:
        if sys.argv[2]:
            soak.keep(sys.argv[2])
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
