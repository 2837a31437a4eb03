"""Trials that are written down, not drawn: each breaks a promise when one known fault is put back, and none without.

Most are named after the patch of `hack/mutants` that they find. A draw meets such a moment seldom.
"""

from dataclasses import dataclass

from hack.simulation import readiness
from hack.simulation.plan import Event
from hack.simulation.world import Shape

# At a second, for so many seconds: the kind, its target, and its amount.
Line = tuple[float, float, str, str, float]
_JOB: Line = (5, 470, "job", "", 0.7)  # five workers


@dataclass(frozen=True, slots=True)
class Scenario:
    """Two clusters of some CPUs each, and what happens there."""

    cpus: tuple[int, int]
    lines: tuple[Line, ...]
    rule: str  # that a fault breaks
    seed: int = 1
    seconds: float = 720.0

    @property
    def shape(self) -> Shape:
        east, west = self.cpus
        return Shape({"east": east, "west": west}, "AllOrNothing", "FillInOrder", "", readiness.DEFAULT)

    @property
    def events(self) -> list[Event]:
        return [
            Event(number, at, kind, target, seconds, amount)
            for number, (at, seconds, kind, target, amount) in enumerate(self.lines)
        ]


SCENARIOS = {
    "cluster-clock-is-ours": Scenario(
        (4, 4),
        ((5, 200, "job", "", 0.7), (20, 400, "cluster-clock", "east", 0.1), (30, 400, "slow-end", "east", 0.5)),
        "quota released early",
    ),
    "copy-asked-for-again-elsewhere": Scenario(
        (5, 9), (_JOB, (4, 200, "lose-create", "east", 0.1)), "created elsewhere", seed=2
    ),
    "copy-made-anew": Scenario(
        (4, 4), (_JOB, (100, 20, "crash-both", "", 0.5), (103, 1, "delete-worker", "east", 0.1)), "created again"
    ),
    "copy-without-an-answer-is-forgotten": Scenario(
        (4, 9), (_JOB, (4, 500, "lose-create", "east", 0.6)), "worker twice"
    ),
    "decides-by-its-own-clock": Scenario(
        (4, 9), (_JOB, (4, 500, "lose-create", "east", 0.4), (100, 600, "node-clock", "", 0.7)), "lost early"
    ),
    "gang-starts-with-a-part": Scenario((4, 4), (_JOB,), "starts with a part"),
    "leads-with-one-cluster-half-read": Scenario((4, 4), (_JOB, (100, 20, "lose-login", "east", 0.1)), "not gone"),
    "new-leader-waits-for-no-head": Scenario(
        (4, 4),
        (
            _JOB, (60, 400, "cut", "east", 0.1), (370, 10, "crash-both", "", 0.5), (371, 45, "busy-heads", "", 0.5),
        ),
        "share dropped",
    ),
    "promise-forgotten": Scenario(
        (4, 4), tuple((at, 300, "job", "", size) for at, size in ((5, 0.4), (5.2, 0.5), (5.3, 0.1))), "overbooked"
    ),
    "ready-without-a-last-look": Scenario(
        (4, 4), ((5, 400, "job", "", 0.7), (2, 100, "evict-when-admitted", "east", 0.5)), "starts with a part", seed=2
    ),
    "slot-doubled": Scenario((6, 6), (_JOB, (60, 1, "delete-share", "east", 0.1)), "slot twice"),
    "slot-written-blind": Scenario(
        (6, 9), (_JOB, (60, 100, "late-slots", "east", 0.3), (61, 1, "delete-share", "east", 0.1)),
        "deleted while wanted",
    ),
    "unseen-means-gone": Scenario((8, 8), (_JOB, (60, 200, "cut", "east", 0.1)), "share dropped"),
    "worker-without-an-address-is-given-up": Scenario(
        (4, 4), (_JOB, (4, 450, "cut-when-ready", "east", 0.1)), "given up"
    ),
    # The place of a worker that could not start is taken again, because its new cluster is unreachable for a moment.
    "replaced-in-an-excluded-cluster": Scenario(
        (6, 6),
        (
            (1, 300, "cordon-nodes", "east", 0.5), (5, 600, "job", "", 0.7),
            (6, 300, "cut-when-replaced", "west", 0.5),
        ),
        "excluded cluster",
    ),
}  # fmt: skip
