import contextlib
import io
import unittest
from unittest import mock

import together
from causes import Cause
from history import Breach
from schedule import Event

from harness.process import Failed


class PlayTest(unittest.TestCase):
    """Faults of which it is only noted when they begin and end."""

    def setUp(self):
        self.noted = []
        causes = {name: Cause("", ("x", "y"), (0, 1), 1, self.hold) for name in ("a", "b")}
        patch = mock.patch.object(together, "CAUSES", causes)
        patch.start()
        self.addCleanup(patch.stop)

    @contextlib.contextmanager
    def hold(self, mesh, target):
        if target == mesh:
            raise OSError
        self.noted.append(f"+{target}")
        yield
        self.noted.append(f"-{target}")

    def test_overlap(self):
        spells = together.play(None, [Event(0, 0.2, "a", "x"), Event(0.1, 0.2, "b", "y"), Event(0.15, 0, "b", "x")])
        self.assertEqual(self.noted, ["+x", "+y", "+x", "-x", "-x", "-y"])
        self.assertEqual([(s.cause, s.target) for s in spells], [("b", "x"), ("a", "x"), ("b", "y")])
        for s in spells:
            self.assertLessEqual(s.begun, s.ended)
        self.assertLessEqual(spells[1].begun, spells[2].begun)

    def test_a_fault_that_can_not_begin(self):
        with self.assertRaises(OSError):
            together.play("y", [Event(0, 60, "a", "x"), Event(0, 60, "b", "y")])
        self.assertEqual(self.noted, ["+x", "-x"])


class TogetherTest(unittest.TestCase):
    def test_a_mesh_that_does_not_start(self):
        mesh = mock.Mock(**{"start.side_effect": Failed("no etcd")})
        with mock.patch.object(together, "Mesh", return_value=mesh):
            runs = together.Together(None)
            self.assertEqual(runs.run([]).broken(), ["a working mesh: 1\n    no etcd"])
        mesh.remove.assert_called_once_with()
        self.assertIsNone(runs.mesh)


class ShortenedTest(unittest.TestCase):
    def test_another_rule_does_not_count(self):
        def run(schedule):
            causes = {e.cause for e in schedule}
            return mock.Mock(breaches=[Breach(rule, "") for cause, rule in (("a", "twice"), ("b", "late")) if cause in causes])
        a, b = Event(0, 0, "a", "x"), Event(0, 0, "b", "x")
        for rule, want in (("twice", [a]), ("late", [b]), ("lost", [a, b])):
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(together.shortened(mock.Mock(run=run), [a, b], {rule}, 40), want)

    def test_luck(self):
        """The schedule fails in each second run, as often as it is asked for."""
        runs = []

        def run(schedule):
            runs.append(schedule)
            return mock.Mock(breaches=[Breach("late", "")] * (len(runs) % 2 == 0))
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(together.shortened(mock.Mock(run=run), [Event(0, 0, "a", "x")], {"late"}, 3), [])
        self.assertEqual(len(runs), 2)


if __name__ == "__main__":
    unittest.main()
