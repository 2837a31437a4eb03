"""The promises of each bench, and from where on one counts as broken. Pure: values in, verdicts out.

`python -m hack.bench` fails by them. A goal is what we aim at. Figures of one run on a busy machine say little, so a
promise is broken only beyond a margin that no such noise reaches: with --lenient only those give status 1, and need no
second run. Ratios within a run and counts of requests carry over to other machines; milliseconds do by their margin.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hack.testbed.figures import Value

MET, MISSED, BROKEN, UNKNOWN, BESIDE = "met", "missed", "broken", "not measured", "for comparison"


@dataclass(frozen=True, slots=True)
class Promise:
    """The goal of a figure, and from where on it is broken: an upper bound, or a lower one if `broken` is the lower
    value.
    """

    what: str
    goal: float
    broken: float

    def meets(self, value: float) -> bool:
        """Whether the goal is reached."""
        return value >= self.goal if self.least else value <= self.goal

    def verdict(self, value: float) -> str:
        """The measured value; unmeasured figures are left out."""
        if math.isnan(value):
            return UNKNOWN
        if self.beside:
            return BESIDE
        kept = value >= self.broken if self.least else value <= self.broken
        return MET if self.meets(value) else MISSED if kept else BROKEN

    @property
    def bound(self) -> str:
        """The goal in words."""
        if self.beside:
            return "none"
        return f"at {'least' if self.least else 'most'} {self.goal:g}"

    @property
    def least(self) -> bool:
        return self.broken < self.goal

    @property
    def beside(self) -> bool:
        """Whether nothing is promised: it stands beside what is, for comparison."""
        return math.isinf(self.broken)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a bench beside its promise: of which row, and the least and most of that row's runs.

    The two are nan if it was measured once.
    """

    bench: str
    about: str
    promise: Promise
    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def verdict(self) -> str:
        return self.promise.verdict(self.value)

    def complaint(self, *, lenient: bool = False) -> str:
        """A sentence if the goal is missed (if that must count, broken); else empty."""
        whose, what = ", ".join(filter(None, (self.bench, self.about))), self.promise.what
        verdict = self.verdict
        if verdict in (MET, BESIDE) or (lenient and verdict == MISSED):
            return ""
        if verdict == UNKNOWN:
            return f"{whose}: {what} was not measured"
        beyond = f", and counts as broken beyond {self.promise.broken:g}" if verdict == BROKEN else ""
        return f"{whose}: {what} is {self.value:.4g}, shall be {self.promise.bound}{beyond}"


@dataclass(frozen=True)
class Found:
    """The result of a bench: lines for programs, and its rows."""

    lines: list[str]
    rows: list[Row]


def beside(what: str) -> Promise:
    """A figure of which nothing is promised."""
    return Promise(what, math.inf, math.inf)


# Our pace was 0.63 to 0.98 of the floor's over a year, the floor 12 to 24 pods a second. It became faster since, with
# our own loop and parser. Requests are counted, not timed: 1.0 and 1.0 for each of a hundred pods. A gang whose slots
# must be written sends 2.0 to the manager, and up to 3.0 of a thousand on a busy lab, which shows them as starting
# before they run.
RATIO = Promise("the pace against the floor's", 0.95, 0.5)
MANAGER = Promise("our requests to the manager per pod", 1.1, 2.5)
WORKERS = Promise("our requests to worker clusters per pod", 1.0, 7.0)
# It was 12.8 to 16.1 ms before objects were parsed only once and pods reconciled only twice.
OWN_CPU = Promise("milliseconds of our CPU per pod, both replicas", 5.0, 20.0)
# The garbage collector takes the manager's pods at its own pace either way, and a remote pod goes when its pod does.
GONE = Promise("the time until a deleted gang is gone against the floor's", 1.2, 2.5)
DISPATCH = {"ratio": RATIO, "ours_manager": MANAGER, "ours_workers": WORKERS, "cpu_ms": OWN_CPU, "gone_ratio": GONE}

# What MultiKueue needs for as much, beside ours: of the whole lab, since the two divide the work differently.
_PACE, _LAB_MANAGER, _LAB_WORKERS, _LAB_CPU = (
    beside("pods a second"),
    beside("requests of everybody to the manager per pod"),
    beside("requests of everybody to worker clusters per pod"),
    beside("milliseconds of CPU of the whole lab per pod"),
)
DISPATCH_BESIDE = {
    "pods_s": _PACE,
    "floor_pods_s": beside("pods a second of the floor"),
    "all_manager": _LAB_MANAGER,
    "all_workers": _LAB_WORKERS,
    "lab_cpu_ms": _LAB_CPU,
}
MULTIKUEUE = {
    "pods_s": _PACE,
    "kueue_manager": beside("requests of the manager's Kueue to the manager per pod"),
    "kueue_workers": beside("requests of the manager's Kueue to worker clusters per pod"),
    "cpu_ms": beside("milliseconds of CPU of the manager's Kueue per pod"),
    "all_manager": _LAB_MANAGER,
    "all_workers": _LAB_WORKERS,
    "lab_cpu_ms": _LAB_CPU,
}

# Every kind of decision, the hard ones too: 70 to 175 ms of CPU time on a busy machine. It must be no worse than
# linear: a doubled dimension cost 0.9 to 1.7 times as much; a quadratic one would cost four times.
DECISION = Promise("milliseconds of a decision", 100.0, 400.0)
DOUBLED = Promise("the factor of a doubled dimension", 2.0, 3.0)

# A change is planned once, only by the gangs that it concerns: at 5 ms each, a thousand take five seconds. A doubled
# crowd costs twice as much, and four times where each gang is planned with all before it.
GANG = Promise("milliseconds for each gang that waits", 5.0, 25.0)
PLANS = Promise("plans of each gang after a change", 1.0, 1.5)
OTHERS = Promise("plans after a change in a tree that is not theirs", 0.0, 0.5)
NEWCOMER = Promise("milliseconds for a gang that comes to a crowd", 100.0, 500.0)
CROWD = {
    "gang_ms": GANG,
    "gang_plans": PLANS,
    "others_plans": OTHERS,
    "new_ms": NEWCOMER,
    "doubled": Promise("the factor of a doubled crowd", 2.2, 3.2),
}

# 0.36 to 0.73 ms of CPU time on a busy machine.
REWRITE = Promise("microseconds to rewrite a pod", 1000.0, 3000.0)

# A slot and one or two statuses for each worker, and a fixed cost of each gang, which the smallest gang of eight
# divides among few workers: so the goals of dispatch, doubled.
WRITES_MANAGER = Promise("our writes to the manager per worker", 4.0, 8.0)
WRITES_WORKERS = Promise("our writes to worker clusters per worker", 7.0, 14.0)
RESERVE = {"writes_manager": WRITES_MANAGER, "writes_workers": WRITES_WORKERS}
# Quota is reserved share by share, whatever their size: a gang of hundreds takes as long as one of eight. Small times
# are mostly chance.
GROWTH = Promise("the time to Ready of the largest gang against the smallest", 2.0, 5.0)
_SHORT = 2.0  # seconds: growth within these says nothing

# A remote pod starts after its pod, so twice the time is fair; the rest is the placement of the gang. Each forbidden
# request is wasted.
RUNNING = Promise("Running P99 against plain KubeRay", 3.0, 10.0)
REFUSED = Promise("our refused requests per worker", 0.5, 2.0)
WALK = {"running_ratio": RUNNING, "ours_refused": REFUSED}

# 0.55 is the best that its list allows; at 1 spanning has no benefit.
MAKESPAN = {"ratio": Promise("the makespan over two clusters against that of two halves split by hand", 0.6, 0.9)}


# A leader's Lease is renewed every 2 s and lost after 10, so a stall of a quarter of a second does no harm. All
# promises of a fleet are CPU time, counts or memory; other work on the machine at most doubles them.
_STALL = Promise("milliseconds for which the loop stands still", 250.0, 1000.0)
FLEET = {
    **{f"{what}_stall_ms": _STALL for what in ("start", "resync", "contact", "teardown")},
    "stall_ms": _STALL,
    "start_cpu_s": Promise("seconds of CPU time from a start to its first decision", 8.0, 16.0),
    "start_peak_mb": Promise("megabytes at most while it starts", 350.0, 500.0),
    "leader_mb": Promise("megabytes of a leader", 250.0, 400.0),
    "standby_mb": Promise("megabytes of who stands by", 150.0, 250.0),
    "teardown_cpu_ms": Promise("milliseconds for each worker of a gang that ends", 5.0, 10.0),
    "cpu_ms": Promise("milliseconds for a worker, both replicas", 5.0, 15.0),
    # One reconcile makes the remote pod, one reports that it runs. A few come between the two when it starts later than
    # the awaited burst.
    "looks": Promise("looks at a worker until it runs", 2.2, 5.0),
    # From 2 on, slots are written after all.
    "manager_writes": Promise("our writes to the manager per worker", 1.1, 1.9),
    "worker_writes": Promise("our writes to worker clusters per worker", 1.0, 1.5),
}
# For a gang in more shares than templates list: each slot is written first.
WRITTEN = {
    "looks": Promise("looks at a worker whose slot is written until it runs", 3.2, 6.0),
    "manager_writes": Promise("our writes to the manager per worker whose slot is written", 2.0, 3.5),
}
FLAT = {
    "cpu_factor": Promise(
        "the cost of a worker among a thousand in a hundred clusters against one of a hundred in two", 1.5, 3.0
    )
}

# Wall-clock times of one run. A slow cluster must not delay others. A successor, a placement or a new leader may take a
# second or two, since KubeRay and people look at seconds. The broken bound is beyond any busy machine. Counts have no
# margin.
_BACK = "from a lost copy to where the one in its place runs, beyond what nodes take"
FAULTS = {
    "east_ratio": Promise(
        "the pace in a cluster while another one answers in 5 s, against that one being well", 0.9, 0.5
    ),
    "one_p99_s": Promise(f"seconds {_BACK}, P99 of workers lost one by one", 1.0, 5.0),
    "many_p99_s": Promise(f"seconds {_BACK}, P99 of a hundred lost at once", 1.0, 10.0),
    "gap_s": Promise("seconds without a new copy beyond the Lease's, when a leader is killed", 2.0, 5.0),
    "doubled": Promise("copies that were made twice then", 0.0, 0.0),
    "freed_p99_s": Promise("seconds from room that comes free to the gang that is placed in it, P99", 2.0, 10.0),
    "wrong": Promise("gangs that were placed out of turn", 0.0, 0.0),
}

# The worst of all ways between a head and two workers. All clusters and Ray share the processors of one machine: on two
# full ones a rate of 0.2 of the flat network's was seen.
RELAY = {
    "rate_ratio": Promise("the rate of objects of 256 MB against a flat network's", 0.5, 0.05),
    "call_more_ms": Promise("milliseconds that a call takes longer than in a flat network", 3.0, 10.0),
    "sidecar_mb": Promise("megabytes of an idle sidecar", 40.0, 80.0),
    "sidecar_mcpu": Promise("thousandths of a processor that an idle sidecar uses", 50.0, 150.0),
}
RELAY_BESIDE = {
    "cpu_s_gb": beside("processor seconds of the relay for each gigabyte"),
    "mb_s": beside("megabytes a second over the relay"),
    "flat_mb_s": beside("megabytes a second over the flat network"),
}


BENCHES: Mapping[str, tuple[Promise, ...]] = {
    "dispatch": (*DISPATCH.values(), *DISPATCH_BESIDE.values()),
    "multikueue": tuple(MULTIKUEUE.values()),
    "planner": (DECISION, DOUBLED),
    "crowd": tuple(CROWD.values()),
    "rewriter": (REWRITE,),
    "reserve": (*RESERVE.values(), GROWTH),
    "walk": tuple(WALK.values()),
    "makespan": tuple(MAKESPAN.values()),
    # Several rows keep one promise.
    "fleet": tuple(dict.fromkeys([*FLEET.values(), *WRITTEN.values(), *FLAT.values()])),
    "faults": tuple(FAULTS.values()),
    "relay": (*RELAY.values(), *RELAY_BESIDE.values()),
}


def rows(bench: str, about: str, values: Mapping[str, Value], promises: Mapping[str, Promise]) -> list[Row]:
    """One row for each promise about a row of values.

    A key's least and most run stand beside it, as in `ratio_min`. Figures with one promise are told apart by their
    keys.
    """
    every = [*promises.values()]

    def row(key: str, promise: Promise) -> Row:
        low, high = (float(values.get(f"{key}_{end}", math.nan)) for end in ("min", "max"))
        whose = about if every.count(promise) == 1 else ", ".join(filter(None, (about, key)))
        return Row(bench, whose, promise, float(values[key]), low, high)

    return [row(key, promise) for key, promise in promises.items()]


def met(values: Mapping[str, Value], promises: Mapping[str, Promise]) -> bool:
    """Whether one row of values reaches every goal."""
    return all(promise.meets(float(values[key])) for key, promise in promises.items())


def planner(decisions: Mapping[str, float], doubled: Mapping[str, float]) -> list[Row]:
    """The planner's: milliseconds of every kind of decision, and the factor of every dimension."""
    slow = [Row("planner", kind, DECISION, cost) for kind, cost in decisions.items()]
    return [*slow, *(Row("planner", name, DOUBLED, factor) for name, factor in doubled.items())]


def growth(measured: list[dict[str, Value]]) -> list[Row]:
    """The reservations' growth: for each number of clusters the largest gang beside the smallest. Chance counts as
    none.
    """
    found = []
    for over in dict.fromkeys(row["clusters"] for row in measured):
        mine = sorted((row for row in measured if row["clusters"] == over), key=lambda row: float(row["workers"]))
        first, last = float(mine[0]["ready_s"]), float(mine[-1]["ready_s"])
        factor = 1.0 if last - first <= _SHORT else last / first if first else math.inf
        found.append(Row("reserve", f"over {over} clusters", GROWTH, factor))
    return found
