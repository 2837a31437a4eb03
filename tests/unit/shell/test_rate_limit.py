"""So many at once, and then one in so many seconds."""

import pytest

from adapter.shell.rate_limit import Bucket


def test_a_burst_and_then_one_at_a_time() -> None:
    bucket = Bucket(3, 10)
    taken = [second for second in range(100) if bucket.take(float(second))]
    assert taken == [0, 1, 2, *range(10, 100, 10)]


def test_a_rest_gives_the_burst_back_and_no_more() -> None:
    bucket = Bucket(3, 10)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_the_wait_is_until_the_next_token() -> None:
    bucket = Bucket(1, 10)
    assert bucket.delay(0.0) == 0.0
    assert [bucket.delay(2.0), bucket.delay(7.0)] == pytest.approx([8.0, 3.0])
