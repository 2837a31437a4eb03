"""Asserts that a call ends soon, by the processor time of this thread, because the machine may be busy."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# The loop serves nobody else during such a call. At most a megabyte is parsed here, which takes milliseconds.
LONGEST = 1.0


@contextmanager
def soon() -> Iterator[None]:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < LONGEST
