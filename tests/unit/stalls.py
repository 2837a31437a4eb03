"""Pauses of the event loop, as a busy machine makes them.

`pytest tests/unit --stall 0.6` finds tests whose expected answer must come within a limit of less than that. Of each
test the first pauses fall at random; a limit that is tested itself has to hold with them, too.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_MOST_PAUSES: Final = 3  # of a test
_CHANCE: Final = 0.04  # for each turn of the loop

_turn: Final[Any] = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]
_sleep: Final = time.sleep


@contextmanager
def stalled(seconds: float, seed: str) -> Iterator[None]:
    """Pause every event loop several times for `seconds`."""
    drawn, pauses = random.Random(seed), 0

    def turn(loop: Any) -> None:
        nonlocal pauses
        if pauses < _MOST_PAUSES and drawn.random() < _CHANCE:
            pauses += 1
            _sleep(seconds)
        _turn(loop)

    asyncio.BaseEventLoop._run_once = turn  # type: ignore[attr-defined]
    try:
        yield
    finally:
        asyncio.BaseEventLoop._run_once = _turn  # type: ignore[attr-defined]
