import unittest

from schedule import Event
from shrink import shrink


def events(*names):
    return [Event(float(i), 8.0, name, "x") for i, name in enumerate(names, 1)]


class ShrinkTest(unittest.TestCase):
    def setUp(self):
        self.asked = []

    def shrunk(self, schedule, fails, tries=1000):
        def ask(candidate):
            self.asked.append(candidate)
            return fails(candidate)
        return shrink(schedule, ask, tries)

    def test_finds_the_faults_that_matter(self):
        for needed in ("a", "h", "ah", "cd", "beg", "abcdefgh"):
            with self.subTest(needed):
                got = self.shrunk(events(*"abcdefgh"), lambda s, n=needed: set(n) <= {e.cause for e in s})
                self.assertEqual("".join(e.cause for e in got), needed)

    def test_shortens(self):
        got = self.shrunk(events(*"abc"), lambda s: any(e.cause == "b" and e.lasts >= 3 for e in s))
        self.assertEqual(got, [Event(0.0, 4.0, "b", "x")])

    def test_moves_all_to_the_start(self):
        got = self.shrunk(events(*"abc"), lambda s: len(s) >= 2 and s[-1].at - s[0].at == 2)
        self.assertEqual([(e.at, e.cause) for e in got], [(0, "a"), (2, "c")])

    def test_without_faults(self):
        self.assertEqual(self.shrunk(events(*"abc"), lambda s: True), [])

    def test_tries_are_bounded(self):
        for tries in range(12):
            self.asked.clear()
            got = self.shrunk(events(*"abcdefgh"), lambda s: {"c", "f"} <= {e.cause for e in s}, tries)
            self.assertLessEqual(len(self.asked), tries)
            self.assertLessEqual({"c", "f"}, {e.cause for e in got})

    def test_a_failure_that_does_not_come_again(self):
        schedule = events(*"abcd")
        self.assertEqual(self.shrunk(schedule, lambda s: False), schedule)


if __name__ == "__main__":
    unittest.main()
