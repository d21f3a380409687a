import unittest

from causes import CAUSES, Cause
from schedule import BEGIN, END, Event, draw, end, parsed, steps, written


class ScheduleTest(unittest.TestCase):
    def test_a_seed_draws_one_schedule(self):
        for seed in range(20):
            self.assertEqual(draw(seed, CAUSES), draw(seed, CAUSES))
        self.assertEqual(len({written(draw(seed, CAUSES)) for seed in range(20)}), 20)

    def test_a_seed_draws_the_same_for_ever(self):
        causes = {"long": Cause("", ("app-1", "provider-1", "consumer"), (5, 9), 1, None),
                  "short": Cause("", ("consumer",), (0, 0), 2, None)}
        self.assertEqual(written(draw(7, causes)),
                         "0.5+0:short:consumer 0.9+6.2:long:app-1 1.8+7.2:long:consumer "
                         "1.9+0:short:consumer 3.2+0:short:consumer 4.6+5.8:long:consumer 5+0:short:consumer")

    def test_what_is_drawn(self):
        drawn = [draw(seed, CAUSES) for seed in range(1000)]
        for schedule in drawn:
            self.assertEqual(schedule, sorted(schedule))
            for e in schedule:
                self.assertIn(e.target, CAUSES[e.cause].targets)
                self.assertTrue(0 <= e.at <= BEGIN and e.lasts >= 0 and e.end() <= END + 0.1, e)
        pairs = {(e.cause, e.target) for schedule in drawn for e in schedule}
        self.assertEqual(pairs, {(name, t) for name, cause in CAUSES.items() for t in cause.targets})

    def test_overlaps_at_one_target(self):
        def overlap(schedule):
            return any(a.target == b.target and a.at <= b.at < a.end() for a in schedule for b in schedule if a is not b)
        self.assertGreater(sum(overlap(draw(seed, CAUSES)) for seed in range(200)), 40)

    def test_written_and_parsed(self):
        for seed in range(200):
            schedule = draw(seed, CAUSES)
            self.assertEqual(parsed(written(schedule), CAUSES), schedule)
        self.assertEqual(parsed("", CAUSES), [])
        self.assertEqual(parsed(" 2+0:reload:consumer  0.5+1.5:kill:app-1 ", CAUSES),
                         [Event(0.5, 1.5, "kill", "app-1"), Event(2, 0, "reload", "consumer")])

    def test_what_is_wrong_is_named(self):
        for text, want in (("kill:app-1", "AT[+]LASTS"), ("1+1:fly:app-1", "unknown cause"), ("1+1:reload:app-1", "a target of"),
                           ("1+:kill:app-1", "AT[+]LASTS"), ("1+1.1.1:kill:app-1", "could not convert")):
            with self.subTest(text), self.assertRaisesRegex(ValueError, want):
                parsed(text, CAUSES)

    def test_steps(self):
        reload, kill, pause = Event(1, 0, "reload", "consumer"), Event(0, 1, "kill", "app-1"), Event(0.5, 2, "pause", "app-1")
        self.assertEqual(steps([kill, pause, reload]), [
            (0, kill, True), (0.5, pause, True), (1, kill, False), (1, reload, True), (1, reload, False), (2.5, pause, False)])
        self.assertEqual(end([kill, pause, reload]), 2.5)
        self.assertEqual(end([]), 0)


if __name__ == "__main__":
    unittest.main()
