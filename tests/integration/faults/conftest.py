"""Two controllers of one election, as local processes against the real clusters; the deployed ones are parked."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.testbed.clusters import Clusters, wait
from hack.testbed.controller import Controller
from hack.testbed.pace import SHIPPED

STARTED = 60  # seconds: the start of a Python process on a busy machine


@pytest.fixture
def pair(standing: Controller, parked: Clusters, tmp_path: Path) -> Iterator[tuple[Controller, Controller]]:
    """The first leads; the second stands by and is ready to. They wait as those that are shipped do."""
    standing.stop()
    folders = (tmp_path / "first", tmp_path / "second")
    for folder in folders:
        folder.mkdir()
    first, second = (Controller(parked.manager, f, pace=SHIPPED, elect=True, number=n) for n, f in enumerate(folders))
    with ExitStack() as cleanup:
        for one in (first, second):
            cleanup.callback(_end, one)
        first.start()
        wait(first.leads, STARTED, "the first one leads", first.tail)
        second.start()
        wait(lambda: "standing by" in second.tail(), STARTED, "the second one stands by", second.tail)
        yield first, second


def _end(one: Controller) -> None:
    """End one that may be stopped; the Lease is given back: whoever comes next need not wait."""
    if one.status() is None:
        one.send(signal.SIGCONT)
    one.stop(signal.SIGTERM)
