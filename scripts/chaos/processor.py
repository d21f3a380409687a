"""How long processes have waited for a processor: on a busy machine responses are late for that."""

import contextlib
import os
import threading
import time
from typing import NamedTuple

PERIOD = 0.5  # seconds between two looks


class Wait(NamedTuple):
    begun: float  # Unix time
    ended: float
    seconds: float


class Watch:
    """Looks at processes from its start until it is stopped. pids returns them."""

    def __init__(self, pids):
        self.pids, self.before = pids, {}
        self.waits = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self):
        """Returns the waits."""
        self.stopped.set()
        self.thread.join()
        return self.waits

    def _run(self):
        self._look()
        begun = time.time()
        while not self.stopped.wait(PERIOD):
            longest = self._look()
            ended = time.time()
            self.waits.append(Wait(begun, ended, waited(longest, ended - begun - PERIOD)))
            begun = ended

    def _look(self):
        """For each process the seconds that one of its threads has waited since the last look, the longest."""
        now, longest = {}, []
        for pid in self.pids():
            with contextlib.suppress(OSError):  # the process has ended
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                        now[pid, task] = int(f.read().split()[1]) / 1e9
            longest.append(max((seconds - self.before.get(key, 0) for key, seconds in now.items() if key[0] == pid), default=0))
        self.before = now
        return longest


def waited(longest, late):
    """How much later a response may have come, from the waits of processes: it passes through two. late is how much later than
    it wanted to the watch itself looked."""
    return sum(sorted(longest)[-2:]) + max(late, 0)
