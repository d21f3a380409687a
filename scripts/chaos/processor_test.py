import os
import time
import unittest

from processor import PERIOD, Watch, waited

from harness.process import wait_for


class ProcessorTest(unittest.TestCase):
    def test_waited(self):
        for longest, late, want in (([], 0, 0), ([1], 0, 1), ([0.5, 0.1, 2], -0.1, 2.5), ([1, 1], 0.25, 2.25)):
            self.assertEqual(waited(longest, late), want)

    def test_watch(self):
        start = time.time()
        watch = Watch(lambda: [os.getpid(), 2**22 + 1])  # no process has the latter
        wait_for("two looks", lambda: len(watch.waits) >= 2)
        waits = watch.stop()
        self.assertTrue(start <= waits[0].begun < waits[0].ended == waits[1].begun)
        self.assertTrue(all(0 <= w.seconds and w.ended - w.begun >= PERIOD / 2 for w in waits))


if __name__ == "__main__":
    unittest.main()
