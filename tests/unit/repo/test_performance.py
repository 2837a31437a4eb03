"""Does docs/performance.md promise what the benches hold us to, and no other figure?"""

import re

from hack.bench import promises
from hack.bench.promises import Promise
from hack.lab.base.paths import REPO

_DOC = (REPO / "docs/performance.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| at (least|most) ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
_FLEET = promises.FLEET, promises.WRITTEN, promises.FLAT
_BENCHES = {
    "dispatch": [*promises.DISPATCH.values()],
    "planner": [promises.DECISION, promises.DOUBLED],
    "crowd": [*promises.CROWD.values()],
    "rewriter": [promises.REWRITE],
    "reserve": [*promises.RESERVE.values(), promises.GROWTH],
    "walk": [*promises.WALK.values()],
    "fleet": [*dict.fromkeys(one for rows in _FLEET for one in rows.values())],  # several rows keep the same
    "faults": [*promises.FAULTS.values()],
}


def test_the_doc_promises_what_the_benches_do() -> None:
    wanted = [(bench, *_told(promise)) for bench, each in _BENCHES.items() for promise in each]
    assert _ROW.findall(_DOC) == wanted


def test_every_promise_is_in_the_doc() -> None:
    told = {promise.what for each in _BENCHES.values() for promise in each}
    assert {one.what for one in vars(promises).values() if isinstance(one, Promise)} <= told


def _told(promise: Promise) -> tuple[str, str, str, str]:
    side = "least" if promise.broken < promise.goal else "most"
    return promise.what, side, f"{promise.goal:g}", f"{promise.broken:g}"
