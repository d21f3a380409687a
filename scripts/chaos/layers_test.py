import unittest

from layers import Layers, together


class LayersTest(unittest.TestCase):
    def setUp(self):
        self.applied = []
        self.layers = Layers(lambda values: self.applied.append(list(values)))

    def test_ends_in_the_order_of_the_beginnings(self):
        first, second = self.layers("a"), self.layers("b")
        for step in (first.__enter__, second.__enter__):
            step()
        for layer in (first, second):
            layer.__exit__(None, None, None)
        self.assertEqual(self.applied, [["a"], ["a", "b"], ["b"], []])

    def test_equal_values(self):
        with self.layers("a"), self.layers("a"):
            pass
        self.assertEqual(self.applied, [["a"], ["a", "a"], ["a"], []])

    def test_an_apply_that_fails(self):
        def fail(values):
            if values:
                raise OSError
        layers = Layers(fail)
        with self.assertRaises(OSError), layers():
            self.fail("begun")
        self.assertEqual(layers.values, [])

    def test_together(self):
        with together(self.layers(1), self.layers(2)):
            self.assertEqual(self.applied[-1], [1, 2])
        self.assertEqual(self.applied[-2:], [[1], []])


if __name__ == "__main__":
    unittest.main()
