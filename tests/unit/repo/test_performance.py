"""docs/performance.md has exactly the promises of the benches, and the figures of their last runs."""

import re

from hack.bench import page, promises, record
from hack.bench.promises import Promise
from hack.lab.base.paths import REPO

_DOC = (REPO / "docs/performance.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| at (least|most) ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)


def test_the_doc_promises_what_the_benches_do() -> None:
    wanted = [
        (bench, *_told(promise)) for bench, each in promises.BENCHES.items() for promise in each if not promise.beside
    ]
    assert _ROW.findall(_DOC) == wanted


def test_the_doc_has_the_recorded_figures() -> None:
    """`python -m hack.bench --write` writes both from a run."""
    assert "<!-- figures -->" in _DOC
    assert page.written(_DOC, record.read()) == _DOC


def test_every_promise_is_in_the_doc() -> None:
    told = {promise.what for each in promises.BENCHES.values() for promise in each}
    assert {one.what for one in vars(promises).values() if isinstance(one, Promise)} <= told


def _told(promise: Promise) -> tuple[str, str, str, str]:
    side = "least" if promise.least else "most"
    return promise.what, side, f"{promise.goal:g}", f"{promise.broken:g}"
