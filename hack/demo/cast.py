"""Records the demo in asciinema's format, asciicast version 2.

The recording is the output as it goes to a file, line by line, with nothing drawn over. It is written only after the
demo has worked.
"""

import io
import json
from collections.abc import Callable
from typing import TextIO

WIDTH, HEIGHT = 120, 48
"""Of the terminal that plays it: the demo's longest line fits; it has more lines than fit at once."""

LONGEST_PAUSE = 2.0
"""Seconds that a player waits at most: the clusters take a minute to come, in which nothing is seen."""


class Recorder(io.TextIOBase):
    """A standard output that goes where it went before, and is remembered."""

    def __init__(self, shown: TextIO, clock: Callable[[], float]) -> None:
        """`clock` gives seconds, from any moment on."""
        self._shown, self._clock, self._begun = shown, clock, clock()
        self._said: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        self._said.append((self._clock() - self._begun, text))
        return self._shown.write(text)

    def flush(self) -> None:
        self._shown.flush()

    def isatty(self) -> bool:
        """Not a terminal: output to one is redrawn, and a recording of that would lack times."""
        return False

    def text(self, title: str) -> str:
        """The recording so far, as a file of it is."""
        head = {"version": 2, "width": WIDTH, "height": HEIGHT, "idle_time_limit": LONGEST_PAUSE, "title": title}
        events = [[round(seconds, 3), "o", said.replace("\n", "\r\n")] for seconds, said in self._said if said]
        return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in [head, *events])
