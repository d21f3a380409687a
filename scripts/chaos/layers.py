"""What several faults do to one thing at a time."""

import contextlib


class Layers:
    """The faults of one kind at one thing, each with a value. They may begin and end in any order. After
    each change apply gets the values of those that last, the latest last."""

    def __init__(self, apply):
        self.apply, self.values = apply, []

    @contextlib.contextmanager
    def __call__(self, value=True):
        self.values.append(value)
        try:
            self.apply(self.values)
            yield
        finally:
            self.values.remove(value)
            self.apply(self.values)


@contextlib.contextmanager
def together(*contexts):
    """Enters all, and leaves them in the opposite order."""
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
