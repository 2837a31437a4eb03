"""What does each bench promise, and from where on is that broken? Pure: values in, sentences out; `python -m hack.bench` fails by them.

A goal is what we set ourselves; a line for programs tells whether it was met. Figures of one run on a busy machine say little, so a
promise counts as broken only by a margin that no such noise reaches: whoever sees the status 1 need not run it again to believe it.
Ratios within a run and counts of requests carry to other machines; milliseconds do so by their margin.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hack.testbed.figures import Value


@dataclass(frozen=True, slots=True)
class Promise:
    """Of a figure: the goal, and from where on it is broken. It may be so much at most, or at least if that is the lower one."""

    what: str
    goal: float
    broken: float

    def meets(self, value: float) -> bool:
        """Whether the goal is reached."""
        return value >= self.goal if self._least else value <= self.goal

    def complaint(self, about: str, value: float) -> str:
        """A sentence if it is broken, else empty; what was not measured is not kept."""
        if math.isnan(value):
            return f"{about}: {self.what} was not measured"
        kept = value >= self.broken if self._least else value <= self.broken
        word = "at least" if self._least else "at most"
        return (
            ""
            if kept
            else f"{about}: {self.what} is {value:.3g}, shall be {word} {self.goal:g}, and counts as broken beyond {self.broken:g}"
        )

    @property
    def _least(self) -> bool:
        return self.broken < self.goal


@dataclass(frozen=True)
class Found:
    """What a bench gives: lines for programs, and a sentence for each promise that is broken."""

    lines: list[str]
    broken: list[str] = field(default_factory=list)


# Our pace was 0.63 to 0.98 of the floor's over a year's labs, the floor itself 12 to 24 pods a second. Requests are counted, not timed:
# 1.0 and 1.0 for each pod of a hundred. Of a gang whose slots must be written, 2.0 go to the manager, and up to 3.0 of a thousand on a busy lab,
# which shows them as starting before they run.
RATIO = Promise("the pace against the floor's", 0.8, 0.5)
MANAGER = Promise("our requests to the manager per pod", 1.2, 2.5)
WORKERS = Promise("our requests to worker clusters per pod", 7.0, 7.0)
DISPATCH = {"ratio": RATIO, "ours_manager": MANAGER, "ours_workers": WORKERS}

# Every kind of decision, the hard ones too: 70 to 175 ms of CPU time beside a lab that worked. No worse than linear: a doubled dimension
# cost 0.9 to 1.7 times as much; what is quadratic costs four times.
DECISION = Promise("milliseconds of a decision", 100.0, 400.0)
DOUBLED = Promise("the factor of a doubled dimension", 2.0, 3.0)

# A change is planned through once, by those only whom it concerns; each in 5 ms is a thousand in five seconds. A crowd twice as large
# costs twice as much, and four times where each is planned with all before it.
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

# 0.36 to 0.73 ms of CPU time beside a lab that worked.
REWRITE = Promise("microseconds to rewrite a pod", 1000.0, 3000.0)

# A slot and one or two statuses for each worker, and what a gang costs whatever its size, which the smallest gang of eight shares out
# to few: so the goals of dispatch, and twice as much.
WRITES_MANAGER = Promise("our writes to the manager per worker", 4.0, 8.0)
WRITES_WORKERS = Promise("our writes to worker clusters per worker", 7.0, 14.0)
RESERVE = {"writes_manager": WRITES_MANAGER, "writes_workers": WRITES_WORKERS}
# Room is reserved share by share, whatever their size: a gang of hundreds takes as long as one of eight. Small times are mostly chance.
GROWTH = Promise("the time to Ready of the largest gang against the smallest", 2.0, 5.0)
_SHORT = 2.0  # seconds: growth within these says nothing

# A copy is another pod that starts after the first, so twice the time is fair; how long a gang takes to be placed is the rest. Each
# request that is refused was for nothing.
RUNNING = Promise("Running P99 against plain KubeRay", 3.0, 10.0)
REFUSED = Promise("our refused requests per worker", 0.5, 2.0)
WALK = {"running_ratio": RUNNING, "ours_refused": REFUSED}


# A leader's Lease is renewed every 2 s and lost after 10: a loop that stands still for a quarter of a second is in nobody's way. All that is
# promised of a fleet is CPU time, counts or memory, and no more than doubled by who works beside.
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
    "looks": Promise("looks at a worker until it runs", 4.0, 7.0),
    # From 2 on, slots are written after all.
    "manager_writes": Promise("our writes to the manager per worker", 1.1, 1.9),
    "worker_writes": Promise("our writes to worker clusters per worker", 1.0, 1.5),
}
# Of a gang in more shares than templates list: the slot of each is written first.
WRITTEN = {"manager_writes": Promise("our writes to the manager per worker whose slot is written", 2.0, 3.5)}
FLAT = {
    "cpu_factor": Promise(
        "the cost of a worker among a thousand in a hundred clusters against one of a hundred in two", 1.5, 3.0
    )
}

# Times of the clock, of one run. What is slow elsewhere is in nobody's way; who is replaced, placed or leads next has a second or two, for KubeRay
# and people look at seconds. Broken is what no busy machine makes of that. What is counted has no margin.
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


def complaints(about: str, values: Mapping[str, Value], promises: Mapping[str, Promise]) -> list[str]:
    """A sentence for each promise that one row of values breaks."""
    said = (promise.complaint(about, float(values[key])) for key, promise in promises.items())
    return [sentence for sentence in said if sentence]


def met(values: Mapping[str, Value], promises: Mapping[str, Promise]) -> bool:
    """Whether one row of values reaches every goal."""
    return all(promise.meets(float(values[key])) for key, promise in promises.items())


def planner(decisions: Mapping[str, float], doubled: Mapping[str, float]) -> list[str]:
    """The planner's: milliseconds of every kind of decision, and the factor of every dimension."""
    slow = [DECISION.complaint(f"planner, {kind}", cost) for kind, cost in decisions.items()]
    steep = [DOUBLED.complaint(f"planner, {name}", factor) for name, factor in doubled.items()]
    return [sentence for sentence in (*slow, *steep) if sentence]


def growth(rows: list[dict[str, Value]]) -> list[str]:
    """The reservations': for each number of clusters the largest gang beside the smallest."""
    said = []
    for over in dict.fromkeys(row["clusters"] for row in rows):
        mine = sorted((row for row in rows if row["clusters"] == over), key=lambda row: float(row["workers"]))
        first, last = float(mine[0]["ready_s"]), float(mine[-1]["ready_s"])
        if last - first > _SHORT or math.isnan(last - first):
            said.append(GROWTH.complaint(f"reserve over {over} clusters", last / first if first else math.inf))
    return [sentence for sentence in said if sentence]
