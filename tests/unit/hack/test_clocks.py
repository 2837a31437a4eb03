"""The wall clock of a process is set ahead and back while it runs; its monotonic clock and all other clocks go on."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import IO

import pytest

from hack.trials import clocks

_HOUR = 3600
_PROGRAM = """
import sys, threading, time
from datetime import UTC, datetime

def ask():
    while True:
        time.time()

threading.Thread(target=ask, daemon=True).start()
for line in sys.stdin:
    print(time.time(), datetime.now(UTC).isoformat(), time.monotonic(), flush=True)
"""


@pytest.fixture
def process() -> Iterator["subprocess.Popen[str]"]:
    """A process that prints its clocks for each line that it gets, while another thread reads them all the time."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running
        running.kill()


def ahead(running: "subprocess.Popen[str]") -> tuple[float, float, float]:
    """How far its clocks are ahead of ours: `time.time`, `datetime.now`, `time.monotonic`."""
    printed = _line(running.stdin, running.stdout)
    wall, moment, monotonic = printed.split()
    return (
        float(wall) - time.time(),
        datetime.fromisoformat(moment).timestamp() - time.time(),
        float(monotonic) - time.monotonic(),
    )


def _line(asks: IO[str] | None, answers: IO[str] | None) -> str:
    assert asks and answers
    asks.write("\n")
    asks.flush()
    return answers.readline()


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(_HOUR, id="ahead by an hour"), pytest.param(-_HOUR, id="back by an hour")],
)
def test_a_clock_is_set_and_set_right_again(process: "subprocess.Popen[str]", seconds: int) -> None:
    assert ahead(process) == pytest.approx((0, 0, 0), abs=5)
    assert clocks.set_ahead([process.pid], seconds) == 1
    assert ahead(process) == pytest.approx((seconds, seconds, 0), abs=5)
    assert clocks.set_ahead([process.pid], 0) == 1
    assert ahead(process) == pytest.approx((0, 0, 0), abs=5)


def test_a_clock_is_set_many_times_while_it_is_read(process: "subprocess.Popen[str]") -> None:
    for seconds in [_HOUR, -_HOUR, 0] * 10:
        clocks.set_ahead([process.pid], seconds)
        assert ahead(process) == pytest.approx((seconds, seconds, 0), abs=5)


def test_a_process_that_has_ended_is_left_out(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    assert clocks.set_ahead([process.pid], _HOUR) == 0
