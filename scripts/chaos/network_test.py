import unittest

from network import combined


class CombinedTest(unittest.TestCase):
    def test_impairments_of_one_cable(self):
        for hows, want in (
                ([], {}),
                ([{"loss": 10}], {"loss": 10}),
                ([{"loss": 50}, {"loss": 50}], {"loss": 75}),
                ([{"delay": 50, "jitter": 20}, {"delay": 100}, {"loss": 100}], {"delay": 150, "jitter": 20, "loss": 100}),
                ([{"delay": 10, "reorder": 25}, {"delay": 10, "reorder": 50}], {"delay": 20, "reorder": 50}),
                ([{"rate": 256}, {"rate": 64}, {"delay": 1}], {"delay": 1, "rate": 64})):
            with self.subTest(hows):
                got = combined(hows)
                self.assertEqual(got.keys(), want.keys())
                for key, value in want.items():
                    self.assertAlmostEqual(got[key], value)


if __name__ == "__main__":
    unittest.main()
