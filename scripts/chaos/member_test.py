import os
import resource
import sys
import tempfile
import unittest

from mesh import SLOW_DISK, Member

from harness.process import wait_for


class MemberTest(unittest.TestCase):
    """Faults that overlap at one process."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.p = Member("member", ["sh", "-c", f"echo '{SERVES}'; exec sleep 1000"], os.path.join(directory.name, "log"))
        self.p.start()
        self.addCleanup(self.p.stop)
        self.addCleanup(lambda: [c.kill() for c in self.p.alive()])  # a stopped process does not hear SIGTERM

    def wait_state(self, *states):
        def state():
            with open(f"/proc/{self.p.child.pid}/stat", encoding="ascii") as f:
                return f.read().rpartition(")")[2].split()[0]
        wait_for(f"state {' or '.join(states)}", lambda: state() in states)

    def test_paused_twice(self):
        one, other = self.p.paused(), self.p.paused()
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        self.wait_state("T")
        other.__exit__(None, None, None)
        self.wait_state("S")

    def test_killed_while_paused(self):
        pause, down, first = self.p.paused(), self.p.down(), self.p.child.pid
        pause.__enter__()
        down.__enter__()
        self.assertEqual(self.p.alive(), [])
        pause.__exit__(None, None, None)
        self.assertEqual(self.p.alive(), [])
        down.__exit__(None, None, None)
        self.assertNotEqual(self.p.child.pid, first)
        self.wait_state("S")

    def test_started_while_another_one_is_paused(self):
        with self.p.paused():
            with self.p.down():
                pass
            self.wait_state("S")

    def test_killed_twice(self):
        with self.p.down():
            with self.p.down():
                pass
            self.assertTrue(self.p.ended())
        self.assertEqual(len(self.p.alive()), 1)

    def test_replaced(self):
        first = self.p.child
        self.p.replace()
        self.assertEqual(self.p.alive(), [first, self.p.child])
        with self.p.paused():
            self.wait_state("T")
        with self.p.down():
            self.assertEqual(self.p.alive(), [])
            self.p.replace()
            self.assertEqual(self.p.alive(), [])
        self.assertEqual(len(self.p.alive()), 1)

    def test_a_successor_that_fails(self):
        first = self.p.child
        self.p.replace()
        self.p.child.kill()
        self.p.child.wait()
        self.assertEqual(self.p.alive(), [first])
        self.assertFalse(self.p.ended())

    def test_descriptors(self):
        def limits():
            return resource.prlimit(self.p.child.pid, resource.RLIMIT_NOFILE)
        wait_for("the start", self.p.serves)
        _, hard = limits()
        one, other = self.p.without_descriptors(), self.p.without_descriptors()
        one.__enter__()
        self.assertLess(limits()[0], 10)
        other.__enter__()
        one.__exit__(None, None, None)
        self.assertLess(limits()[0], 10)
        other.__exit__(None, None, None)
        self.assertEqual(limits(), (hard, hard))

    def test_a_process_that_starts(self):
        p = Member("starting", ["sleep", "1000"], self.p.log)
        self.assertTrue(wait_for("the start of the other one", self.p.serves))
        p.start()
        self.addCleanup(p.stop)
        limits = resource.prlimit(p.child.pid, resource.RLIMIT_NOFILE)
        with p.clock(60), p.without_descriptors():
            p.reload()
            self.assertEqual(resource.prlimit(p.child.pid, resource.RLIMIT_NOFILE), limits)
            self.assertEqual(p.clocks, {})
        self.assertEqual(len(p.alive()), 1)

    def test_slow_disk(self):
        """The process says of each write whether it took as long as on a slow disk."""
        p = Member("writer", [sys.executable, "-c", WRITER], self.p.log + "-writer")
        p.start()
        self.addCleanup(p.stop)

        def wait_line(want):
            lines = len(p.tail(1 << 20).splitlines())
            wait_for(f"a {want} write", lambda: want in p.tail(1 << 20).splitlines()[lines:])
        one, other = p.slow_disk(), p.slow_disk()
        wait_line("fast")
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        wait_line("slow")
        other.__exit__(None, None, None)
        wait_line("fast")


SERVES = '{"msg":"serving"}'

WRITER = f"""
import os, time
while True:
    start = time.monotonic()
    os.fdatasync(1)
    print("slow" if time.monotonic() - start >= {SLOW_DISK / 1e6} else "fast", flush=True)
    time.sleep(0.01)
"""

if __name__ == "__main__":
    unittest.main()
