"""Draws gangs and faults from a seed: which fault, what it hits, when, and for how long. Pure.

Fault 12 of seed 7 is the same in every run, whatever comes before and after. Its target is an index into the present
ones: names differ in every run, their order does not.
"""

import random
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from hack.lab.base.lab import MANAGER

WORKERS = ("east", "west")
_ANYWHERE = (*WORKERS, MANAGER)
# How far a new gang is when the fault strikes; AT_REST: none is on its way.
AT_REST = ""
MOMENTS = ("submitted", "planned", "reserved", "placed", "dispatched")
_RESTFUL = 0.5  # part of the faults that strike at rest: running gangs are tested as often as starting ones
_JOINED = 0.4  # part of the deeds that are done while the outage drawn before them lasts
_SHORTEST = 0.2  # seconds; a shorter fault of the network has no effect
LARGEST = 3  # workers of a gang when it is submitted, and of a fixed one ever
MOST = 8  # workers of an elastic gang: more than twice what any has at first
_ONE_OF = 3  # one gang in so many is elastic
READINESS_CLOCK = "readiness-clock"
_STEP = 4  # workers by which one grows or shrinks at most


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang as it is submitted; an elastic one may have from `least` to MOST workers while it runs, fewer than at
    first too.
    """

    workers: int
    elastic: bool
    least: int


def gang(seed: int, number: int) -> Gang:
    """Gang `number` of a seed, from 1 on. One in every three consecutive gangs is elastic, so that some always are."""
    chance, block = random.Random(f"{seed}/gang/{number}"), random.Random(f"{seed}/elastic/{(number - 1) // _ONE_OF}")
    workers = chance.randint(1, LARGEST)
    elastic = block.randrange(_ONE_OF) == (number - 1) % _ONE_OF
    # The permanent workers of an elastic job are in one share, which is given back as a whole. With at most one, no
    # share is ever larger than its workers, so the books of an elastic gang are as exact as any other's.
    return Gang(workers, elastic, chance.randint(0, min(1, workers - 1)))


def grown(workers: int, room: int, pick: int) -> int:
    """How many workers an elastic gang has when it has grown, at most by `room`."""
    return min(workers + 1 + pick % _STEP, workers + room, MOST)


def shrunk(workers: int, least: int, pick: int) -> int:
    """How many it has when it has shrunk."""
    return max(workers - 1 - pick % _STEP, least)


def room(wanted: Mapping[str, int], name: str, capacity: int) -> int:
    """By how many workers a gang may grow so that all that is wanted fits, whichever gangs replace the others."""
    others = sum(max(count, LARGEST) for other, count in wanted.items() if other != name)
    return max(0, min(MOST, capacity - others) - wanted[name])


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, `often` in each deck.

    `lasts` is the part of the longest outage that one may last; 0 for a deed.
    """

    name: str
    often: int
    where: tuple[str, ...] = ("",)
    ways: tuple[str, ...] = ("",)
    lasts: float = 0.0
    joins: bool = False  # a deed in the manager, which may be done while something else is out


# One deck. A process that is gone for ten seconds costs its cluster's operators their Leases, and then they restart; of
# the twenty seconds that are the longest by default, such an outage therefore lasts less than a cut. The order
# determines the shuffle: the fixed seed of `make test` has fifteen kinds in fifteen faults. Among them are all that
# admins do to a worker cluster and a LimitRange (mistakes.py), a job that KubeRay rejects, a deleted Placement, a clock
# that jumps, an elastic gang that grows during an outage, and one that shrinks (sizes.py). A readiness clock, which
# stays short for the faults after it, is not.
KINDS = (
    Kind("kubelet-killed", 1, _ANYWHERE, lasts=0.5),
    Kind("controller-clock-jumped", 2, ways=("ahead", "back"), lasts=1.0),
    Kind("kubeconfig-swapped", 2, WORKERS, lasts=1.0),
    Kind("kubeconfig-mistyped", 2, WORKERS, lasts=1.0),
    Kind("no-room", 2, WORKERS, lasts=1.0),
    Kind("shrunk", 3, joins=True),
    Kind("clock-jumped", 3, _ANYWHERE, lasts=1.0),
    Kind("limit-range", 6, _ANYWHERE, ("larger", "refusing"), lasts=1.0),
    Kind("kwok-killed", 1, WORKERS, lasts=0.5),
    Kind("scaled", 4, ways=("replicas", "named"), joins=True),
    Kind("copy-deleted", 4, WORKERS, ("graceful", "forced")),
    Kind(READINESS_CLOCK, 2),
    Kind("cordoned", 2, WORKERS, lasts=1.0),
    Kind("preempted", 3, WORKERS, lasts=1.0),
    Kind("controller-killed", 4),
    Kind("apiserver-killed", 3, _ANYWHERE, lasts=0.25),
    Kind("etcd-killed", 3, _ANYWHERE, lasts=0.25),
    Kind("cut", 6, WORKERS, ("silent", "unplugged", "refusing", "silent", "unplugged", "data"), lasts=1.0),
    Kind("share-deleted", 2, WORKERS),
    Kind("controller-stopped", 3, lasts=1.0),
    Kind("etcd-restored", 2, WORKERS, lasts=0.5),
    Kind("kueue-killed", 2, _ANYWHERE),
    Kind("job-rejected", 3, joins=True),
    Kind("grown", 3, joins=True),
    Kind("worker-deleted", 3, ways=("graceful", "forced"), joins=True),
    Kind("placement-deleted", 3, joins=True),
    Kind("job-deleted", 4, ways=("background", "foreground"), joins=True),
)
NAMES = tuple(kind.name for kind in KINDS)
DECK = sum(kind.often for kind in KINDS)
_SHUT = ("apiserver-killed", "etcd-killed", "kueue-killed")  # where the manager takes no orders meanwhile


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; numbers begin with 1.

    `where` is a cluster or empty, `lasts` seconds, `pick` the index of its target.
    """

    number: int
    kind: str
    where: str
    way: str
    lasts: float
    moment: str
    joins: bool
    pick: int

    def __str__(self) -> str:
        what = " ".join(filter(None, (self.kind, f"({self.way})" if self.way else "")))
        place = f" in {self.where}" if self.where else ""
        time = f" for {self.lasts:.1f} s" if self.lasts else ""
        when = f", a new gang being {self.moment}" if self.moment else ""
        return f"{what}{place}{time}{when}"


def fault(seed: int, number: int, longest: float) -> Fault:
    """Fault `number` of a seed, where the longest outage lasts so many seconds."""
    deck, card = divmod(number - 1, DECK)
    kind, where, way = _deck(seed, deck)[card]
    chance = random.Random(f"{seed}/{number}")
    length, joins = chance.random(), chance.random() < _JOINED
    return Fault(
        number=number,
        kind=kind.name,
        where=where,
        way=way,
        lasts=_SHORTEST + length * max(0.0, kind.lasts * longest - _SHORTEST) if kind.lasts else 0.0,
        moment=AT_REST if chance.random() < _RESTFUL else chance.choice(MOMENTS),
        joins=kind.joins and joins,
        pick=chance.randrange(1000),
    )


def _deck(seed: int, number: int) -> list[tuple[Kind, str, str]]:
    """Every kind as often as it comes, in every place and every way: shuffled, so that few faults are of all kinds."""
    chance = random.Random(f"{seed}/deck/{number}")
    cards = []
    for kind in KINDS:
        places = chance.sample(kind.where, len(kind.where))
        cards += [(kind, places[i % len(places)], kind.ways[i % len(kind.ways)]) for i in range(kind.often)]
    chance.shuffle(cards)
    return cards


def bunches(seed: int, faults: int, longest: float, kinds: Container[str] = NAMES) -> list[tuple[Fault, ...]]:
    """The first faults of a seed that are of these kinds, each alone, or an outage with the deed that is done while it
    lasts.
    """
    found: list[tuple[Fault, ...]] = []
    drawn = (fault(seed, number, longest) for number in count(1))
    for one in islice((each for each in drawn if each.kind in kinds), faults):
        if one.joins and found and len(found[-1]) == 1 and _open(found[-1][0]):
            found[-1] = (*found[-1], replace(one, moment=AT_REST))  # its moment is the outage
        else:
            found.append((one,))
    return found


def containing(bunches: Sequence[tuple[Fault, ...]], number: int) -> list[tuple[Fault, ...]]:
    """The bunch with the fault of that number."""
    return [bunch for bunch in bunches if any(one.number == number for one in bunch)]


def since(bunches: Sequence[tuple[Fault, ...]], number: int) -> list[tuple[Fault, ...]]:
    """The bunch with the fault of that number, and all after it."""
    return [bunch for bunch in bunches if bunch[-1].number >= number]


def _open(outage: Fault) -> bool:
    """Whether it lasts, and the manager takes orders meanwhile."""
    return outage.lasts > 0 and not (outage.where == MANAGER and outage.kind in _SHUT)
