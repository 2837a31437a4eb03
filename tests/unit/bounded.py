"""Does something end soon, whatever it was given? Told by the processor time of this thread: the machine may be busy."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# A second of the loop is a second in which nobody else is served. What is read here is a megabyte at most; it takes milliseconds.
LONGEST = 1.0


@contextmanager
def soon() -> Iterator[None]:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < LONGEST
