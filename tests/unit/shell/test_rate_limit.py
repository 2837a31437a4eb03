"""The token bucket: a burst, then one token at each interval."""

import pytest

from adapter.shell.rate_limit import TokenBucket


def test_a_burst_and_then_one_at_a_time() -> None:
    bucket = TokenBucket(3, 10)
    taken = [second for second in range(100) if bucket.try_take(float(second))]
    assert taken == [0, 1, 2, *range(10, 100, 10)]


def test_a_rest_gives_the_burst_back_and_no_more() -> None:
    bucket = TokenBucket(3, 10)
    assert [bucket.try_take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.try_take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_the_wait_is_until_the_next_token() -> None:
    bucket = TokenBucket(1, 10)
    assert bucket.take_or_delay(0.0) == 0.0
    assert [bucket.take_or_delay(2.0), bucket.take_or_delay(7.0)] == pytest.approx([8.0, 3.0])
