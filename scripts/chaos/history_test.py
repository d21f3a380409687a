import collections
import os
import tempfile
import unittest

from history import AWAY, DEADLINE, FAILURES, SLACK, START, Caller, Round, Spell, gaps, judge, read_executions, stops
from measure import Request, read
from processor import Wait

BEGUN, NORMAL, STOPPED = 100.0, 120.0, 130.0


def request(failure="", due=105.0, latency=0.02, waited=0.0):
    return Request(due, latency, failure, "n", waited)


class HistoryTest(unittest.TestCase):
    def broken(self, r, executions=1, idempotent=False, spells=(), protocol="link", waits=()):
        """The rule that a request breaks, "" for none."""
        breaches = judge([Caller("consumer", protocol, idempotent, [r])], collections.Counter(n=executions),
                         Round(BEGUN, NORMAL, STOPPED, list(spells), waits))
        self.assertLessEqual(len(breaches), 1)
        return breaches[0].rule if breaches else ""

    def test_legal(self):
        for name, r, executions, idempotent in (
                ("a response", request(), 1, False),
                ("a hedged one", request(), 2, True),
                ("the deadline, nothing done", request("deadline", latency=DEADLINE), 0, False),
                ("the deadline, carried out", request("deadline", latency=DEADLINE), 1, False),
                ("lost", request("upstream-reset"), 1, False),
                ("refused", request("no-endpoint"), 0, False),
                ("refused, after an attempt that was lost", request("upstream-connect"), 1, True),
                ("the last moment", request(latency=DEADLINE + SLACK - 0.01), 1, False),
                ("long in the client's queue", request(latency=50, waited=49.9), 1, False),
                ("after all", request(due=125), 1, False),
                ("cut off at the end", request("reset", due=STOPPED - 0.01, latency=0.02), 0, False)):
            with self.subTest(name):
                self.assertEqual(self.broken(r, executions, idempotent), "")

    def test_illegal(self):
        for name, r, executions, idempotent, want in (
                ("of another request", request("nonce"), 1, True, "its own response"),
                ("two at once", request("protocol"), 1, True, "its own response"),
                ("nobody asked", request("stray"), 0, True, "its own response"),
                ("nobody has made it", request(), 0, True, "a response of an application"),
                ("twice", request(), 2, False, "at most once"),
                ("twice, and lost", request("upstream-reset"), 2, False, "at most once"),
                ("refused, and done", request("overloaded"), 1, False, "refused means not carried out"),
                ("late", request(latency=DEADLINE + SLACK + 0.01), 1, False, "in time"),
                ("late, and failed", request("deadline", latency=DEADLINE + SLACK + 0.01), 0, True, "in time"),
                ("never", request("timeout", latency=60), 0, True, "in time"),
                ("late after the queue", request(latency=9, waited=9 - DEADLINE - SLACK - 0.01), 1, False, "in time"),
                ("never, until the end", request("reset", due=STOPPED - 9, latency=10), 0, False, "in time"),
                ("closed", request("reset"), 0, False, "a response"),
                ("not accepted", request("connect", waited=None), 0, False, "a response"),
                ("an unknown code", request("bad-target"), 0, False, "a stated code"),
                ("a status alone", request("HTTP 500"), 1, True, "a stated code"),
                ("before", request("deadline", due=98, latency=1.5), 0, False, "no failure before the faults"),
                ("for ever", request("no-endpoint", due=121), 0, False, "recovery"),
                ("for ever away", request("connect", due=121, waited=None), 0, False, "recovery")):
            with self.subTest(name):
                self.assertEqual(self.broken(r, executions, idempotent), want)

    def test_codes(self):
        for code in FAILURES:
            self.assertEqual(self.broken(request(code), 0), "")
        for status, protocol, want in ((502, "http", ""), (503, "http", ""), (504, "http2", ""), (502, "link", "a stated code"),
                                       (500, "http", "a stated code"), (404, "http", "a stated code")):
            self.assertEqual(self.broken(request(f"HTTP {status}"), 0, protocol=protocol), want)

    def test_a_stale_connection(self):
        r = request("upstream-reset", due=121)
        for protocol, idempotent, want in (("http", False, ""), ("http2", False, ""), ("http", True, "recovery"), ("link", False, "recovery")):
            self.assertEqual(self.broken(r, 0, idempotent, protocol=protocol), want)

    def test_a_sidecar_that_is_away(self):
        for cause in AWAY:
            for target, due, want in (("consumer", 105, ""), ("consumer", 102, "a response"), ("consumer", 107 + START, ""),
                                      ("consumer", 109 + START, "a response"), ("consumer-2", 105, "a response")):
                with self.subTest(cause=cause, target=target, due=due):
                    spells = [Spell(cause, target, 104, 108)]
                    self.assertEqual(self.broken(request("reset", due=due), 0, spells=spells), want)

    def test_a_sidecar_that_stands_still(self):
        late = request("deadline", due=103, latency=DEADLINE + SLACK + 3.9)
        for spells, want in (([], "in time"), ([Spell("pause", "consumer", 104, 108)], ""),
                             ([Spell("pause", "provider-1", 104, 108)], "in time"),
                             ([Spell("pause", "consumer", 104, 106), Spell("descriptors", "consumer", 105, 108)], ""),
                             ([Spell("pause", "consumer", 104, 106), Spell("pause", "consumer", 104, 106)], "in time")):
            with self.subTest(spells):
                self.assertEqual(self.broken(late, 0, spells=spells), want)
        self.assertEqual(self.broken(request("reset", due=105), 0, spells=[Spell("pause", "consumer", 104, 108)]), "a response")

    def test_a_busy_machine(self):
        late, lost = request("deadline", latency=DEADLINE + SLACK + 0.9), request("deadline", due=121, latency=DEADLINE)
        for r, waits, want in ((late, [], "in time"), (late, [Wait(104, 105.5, 0.5), Wait(105.5, 106, 0.5)], ""),
                               (late, [Wait(104, 105.5, 0.5), Wait(110, 111, 5)], "in time"), (lost, [Wait(120, 122, 2)], ""),
                               (lost, [Wait(120, 122, 0.5)], "recovery"), (request("no-endpoint", due=121), [Wait(120, 122, 2)], "recovery")):
            with self.subTest(waits):
                self.assertEqual(self.broken(r, 0, waits=waits), want)

    def test_gaps_and_stops(self):
        spells = [Spell("pause", "a", 15, 30), Spell("kill", "a", 1, 2), Spell("kill", "a", 8, 9), Spell("pause", "a", 50, 51),
                  Spell("kill", "b", 3, 4), Spell("cut-to", "a", 0, 99)]
        self.assertEqual(gaps(spells, "a"), [(1, 30 + START)])
        self.assertEqual(stops(spells, "a"), [(15, 30), (50, 51)])
        self.assertEqual(gaps(spells, "b"), [(3, 4 + START)])

    def test_description(self):
        breaches = judge([Caller("consumer-2", "http", True, [request("nonce")])], collections.Counter(n=3), Round(BEGUN, NORMAL, STOPPED, []))
        self.assertEqual(breaches[0].what, "n (idempotent) of consumer-2 over http, due after 5.00 s, nonce after 0.02 s, begun 3 times")


class LogsTest(unittest.TestCase):
    def test_requests(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "log")
            with open(path, "w", encoding="ascii") as f:
                f.write("2500000 20000 200 - - 000000000000000a 1500\n"
                        "1500000 30000 502 status upstream-reset 000000000000000b 0\n"
                        "3500000 40000 500 status - 000000000000000c 10\n"
                        "4500000 50000 0 connect - 000000000000000d -1\n")
            self.assertEqual(read(path), [
                Request(1.5, 0.03, "upstream-reset", "000000000000000b", 0), Request(2.5, 0.02, "", "000000000000000a", 0.0015),
                Request(3.5, 0.04, "HTTP 500", "000000000000000c", 0.00001), Request(4.5, 0.05, "connect", "000000000000000d", None)])

    def test_executions(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "log")
            with open(path, "w", encoding="ascii") as f:
                f.write("1 a\n2 b\n3 a\n")
            nonces, offset = read_executions(path, 4)
            self.assertEqual((nonces, offset), (collections.Counter(a=1, b=1), 12))
            self.assertEqual(read_executions(path, offset), (collections.Counter(), 12))


if __name__ == "__main__":
    unittest.main()
