"""What a seed draws for a trial: the world's shape, the jobs, and the faults, as a list that can be shortened."""

import random
from dataclasses import dataclass

from hack.simulation import readiness
from hack.simulation.world import Shape

_CYCLE, _STORM = 1_440.0, 720.0  # seconds: faults begin in the first part of a cycle, and all are over soon after it
_LONGEST = 600.0
_CLUSTERS = ("east", "west", "north")
# Kind -> how often it is drawn, and whether it is about a worker cluster.
KINDS = {
    "cut": (6, True), "cut-data": (3, True), "cut-both": (3, True), "cut-manager": (2, False),
    "cut-when-ready": (4, True), "slow": (3, True), "slow-manager": (2, False), "lose-answers": (3, True),
    "lose-manager-answers": (3, False), "errors": (2, True), "manager-errors": (2, False), "lag": (3, True),
    "manager-lag": (3, False), "end-watches": (2, True), "expire-watches": (2, True),
    "expire-manager-watches": (2, False), "repeat": (1, True), "crash": (6, False), "crash-both": (4, False),
    "crash-at-write": (6, False), "stop": (3, False), "manager-clock": (2, False), "cluster-clock": (1, True),
    "node-clock": (1, False), "delete-worker": (2, True), "evict-worker": (2, True), "delete-share": (1, True),
    "delete-placement": (1, False), "crash-loop": (3, True), "restore": (1, True),
    "tenant": (3, True), "slow-kueue": (2, True), "slow-start": (2, True), "slow-end": (2, True),
    "move-head": (2, False), "busy-heads": (2, False), "cordon": (1, True), "drain": (1, True), "end-job": (3, False),
    "cut-when-replaced": (1, True), "lose-create": (2, True), "freeze": (3, False), "late-slots": (1, True),
    "evict-when-admitted": (2, True), "delete-manager-pod": (2, False), "cordon-nodes": (2, True),
    "lose-login": (1, True),
}  # fmt: skip
# Faults that meet, with the seconds after the first one and how long they last; `!`: in another cluster.
KNOTS = (
    (("crash-both", 0, 20), ("delete-worker", 3, 1)),
    (("cut", 0, 400), ("crash-both", 310, 10), ("busy-heads", 311, 45)),
    (("late-slots", 0, 100), ("delete-share", 1, 1)),
    (("cordon-nodes", 0, 300), ("!cut-when-replaced", 1, 300)),
    (("slow-end", 0, 300), ("delete-manager-pod", 20, 1), ("delete-manager-pod", 40, 1)),
    (("cluster-clock", 0, 400), ("slow-end", 5, 300), ("end-job", 60, 1)),
    (("lose-create", 0, 500), ("node-clock", 90, 400)),
    (("evict-when-admitted", 0, 60),),
    (("tenant", 0, 60), ("delete-placement", 90, 1)),
)
_KNOTTED = 0.4  # how often a cycle has one


@dataclass(frozen=True, slots=True)
class Event:
    """A job or a fault. `amount` is between 0 and 1, and means what the kind makes of it."""

    number: int
    at: float
    kind: str
    target: str
    seconds: float
    amount: float

    def __str__(self) -> str:
        return f"{self.number} at {self.at:.1f}: {self.kind} {self.target} for {self.seconds:.1f} s ({self.amount:.3f})"


def draw_shape(seed: int) -> Shape:
    draw = random.Random(f"shape-{seed}")
    clusters = _CLUSTERS[: draw.choice((2, 2, 3))]
    gang = draw.choice(("AllOrNothing", "AllOrNothing", "BestEffort", "SameCluster"))
    strategy = draw.choice(("FillInOrder", "AvailableCapacity", *(("Spread",) if gang != "SameCluster" else ())))
    lost = draw.choice(("", "", "Replace", "Restart"))
    cpus = {name: draw.randint(3, 8) for name in clusters}
    return Shape(cpus, gang, strategy, lost, draw.choice((readiness.DEFAULT, 60.0)))


def draw_events(seed: int, hours: float, shape: Shape) -> list[Event]:
    """The events of a trial, by time."""
    draw = random.Random(f"events-{seed}")
    events = [
        event for cycle in range(max(1, round(hours * 3600 / _CYCLE))) for event in _cycle(draw, cycle * _CYCLE, shape)
    ]
    ordered = sorted(events, key=lambda event: event.at)
    return [Event(number, *_fields(event)) for number, event in enumerate(ordered)]


def length(hours: float) -> float:
    """Seconds of a trial, after which nothing may be left of any job."""
    return max(1, round(hours * 3600 / _CYCLE)) * _CYCLE


def _fields(event: Event) -> tuple[float, str, str, float, float]:
    return event.at, event.kind, event.target, event.seconds, event.amount


def _cycle(draw: random.Random, begin: float, shape: Shape) -> list[Event]:
    jobs = _jobs(draw, begin)
    return [*jobs, *_faults(draw, begin, shape), *_knot(draw, begin, shape, draw.choice(jobs).at)]


def _knot(draw: random.Random, begin: float, shape: Shape, job_at: float) -> list[Event]:
    """Faults that meet, about when a job begins."""
    if draw.random() >= _KNOTTED:
        return []
    target, *others = draw.sample([*shape.cpus], len(shape.cpus))
    start, amount, end = job_at + draw.choice((-1.0, draw.uniform(0, 90))), draw.random(), begin + _STORM + 120
    found = []
    for kind, after, seconds in draw.choice(KNOTS):
        name, at = kind.removeprefix("!"), start + after
        cluster = (others[0] if kind != name else target) if KINDS[name][1] else ""
        found.append(Event(0, at, name, cluster, max(min(seconds, end - at), 1.0), amount))
    return found


def _jobs(draw: random.Random, begin: float) -> list[Event]:
    found = []
    for _ in range(draw.randint(2, 6)):
        at = begin + draw.choice((draw.uniform(5, 60), draw.uniform(5, _STORM)))
        found.append(Event(0, at, "job", "", draw.uniform(200, 1_500), draw.random()))
    return found


def _faults(draw: random.Random, begin: float, shape: Shape) -> list[Event]:
    names, weights = [*KINDS], [often for often, _ in KINDS.values()]
    found = []
    for _ in range(draw.choice((1, 3, 6, 12))):
        kind = draw.choices(names, weights)[0]
        at = begin + draw.uniform(20, _STORM)
        longest = draw.choice((5.0, 30.0, 120.0, _LONGEST))
        target = draw.choice([*shape.cpus]) if KINDS[kind][1] else ""
        seconds = min(draw.uniform(longest / 3, longest), begin + _STORM + 120 - at)
        found.append(Event(0, at, kind, target, seconds, draw.random()))
    return found
