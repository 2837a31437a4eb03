"""Reports the runs of a gang: how fast, by whom and at which cost. Tables for people, values for programs. Pure.

The bench `walk` compares a run of one gang that spans clusters with a plain one. `dispatch` compares our controller's
pace with the floor's. Both count the requests of the controller's accounts as ours.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hack.bench import promises, timeline
from hack.testbed import audit, figures
from hack.testbed.audit import Request
from hack.testbed.figures import Value, percentile, ratio
from hack.testbed.recorder import Change

OURS = ("rayspan-controller", "rayspan-worker")  # the controller's accounts, in the manager and in worker clusters

Requests = Mapping[str, Sequence[Request]]  # by cluster
Figures = Mapping[str, float]  # by key

_KEYS = {
    "pods_s": "pods/s",
    "total_s": "all Running after, s",
    "running_p50_s": "Running P50, s",
    "running_p99_s": "Running P99, s",
    "copy_p50_s": "copy made to Running P50, s",
    "copy_p99_s": "copy made to Running P99, s",
    "ours_manager": "requests to the manager, own",
    "ours_workers": "requests to worker clusters, own",
    "all_manager": "requests to the manager, all",
    "all_workers": "requests to worker clusters, all",
    "cpu_ms": "own CPU ms per pod",
    "lab_cpu_ms": "the whole lab's CPU ms per pod",
    "rss_mb": "own memory, MB",
    "gone_s": "deleted until the last pod and copy is gone, s",
}
# Reported with the least and the most of all runs.
_SPREAD = ("pods_s", "ours_manager", "ours_workers", "cpu_ms", "gone_s")
_THROUGH = {
    "through_pods_s": "pods/s with KubeRay making them",
    "kuberay_pods_s": "pods/s that KubeRay makes",
    "through_p50_s": "created to Running P50, s",
    "through_p99_s": "created to Running P99, s",
    "through_gone_s": "deleted until nothing is left, s",
}
_EXTRA = {
    "extra_pods_s": "pods/s of the floor with one more write",
    "extra_ms": "what such a write costs it, ms per pod",
}


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run; requests are those for its namespace, until all workers ran and after that."""

    manager: str
    times: Mapping[str, float]
    up: Requests
    down: Requests

    def count(self, requests: Requests, *, here: bool, ours: bool = False) -> int:
        """Requests to the manager (`here`) or to the worker clusters; `ours` only or everybody's."""
        asked = (r for cluster, found in requests.items() if (cluster == self.manager) is here for r in found)
        return sum(not ours or request.kind.client in OURS for request in asked)

    def refused(self) -> int:
        """Our requests that failed, conflicts and all: each was for nothing."""
        every = (request for phase in (self.up, self.down) for found in phase.values() for request in found)
        return sum(request.failed and request.kind.client in OURS for request in every)


def walk_values(workers: int, spanning: Run, plain: Run) -> dict[str, Value]:
    """Times in seconds, and requests for each worker: `up` until all ran, `down` from there until all was gone."""
    requests: dict[str, float] = {}
    for phase, spans, alone in (("up", spanning.up, plain.up), ("down", spanning.down, plain.down)):
        requests |= {
            f"{phase}_ours_manager": spanning.count(spans, here=True, ours=True) / workers,
            f"{phase}_ours_workers": spanning.count(spans, here=False, ours=True) / workers,
            f"{phase}_all_manager": spanning.count(spans, here=True) / workers,
            f"{phase}_all_workers": spanning.count(spans, here=False) / workers,
            f"{phase}_plain": plain.count(alone, here=True) / workers,
        }
    everything = sum(value for key, value in requests.items() if "_all_" in key)
    return {
        "workers": workers,
        **spanning.times,
        "plain_running_p99_s": plain.times["running_p99_s"],
        "running_ratio": ratio(spanning.times["running_p99_s"], plain.times["running_p99_s"]),
        "plain_all_gone_s": plain.times["all_gone_s"],
        **requests,
        "ours_refused": spanning.refused() / workers,
        "requests_ratio": ratio(everything, requests["up_plain"] + requests["down_plain"]),
    }


def walk_text(workers: int, spanning: Run, plain: Run) -> str:
    """Times, then our requests by kind, then everybody else's by client."""
    times: list[tuple[Value, ...]] = [(key, value, plain.times[key]) for key, value in spanning.times.items()]
    ours = _rows(spanning, plain, workers, ours=True)
    others = _rows(spanning, plain, workers, ours=False)
    head = ("up", "down", "plain up", "plain down")
    tables = (
        figures.table((f"{workers} workers", "spanning", "plain"), times),
        figures.table(("our requests per worker", *head), ours),
        figures.table(("requests of others per worker", *head), others),
    )
    return "\n\n".join(tables)


def _rows(spanning: Run, plain: Run, workers: int, *, ours: bool) -> list[tuple[Value, ...]]:
    columns = [_counted(phase, spanning.manager, ours) for run in (spanning, plain) for phase in (run.up, run.down)]
    names = sorted(set().union(*columns))
    rows: list[tuple[Value, ...]] = [(name, *(column[name] / workers for column in columns)) for name in names]
    return [*rows, ("all", *(column.total() / workers for column in columns))]


def _counted(requests: Requests, manager: str, ours: bool) -> Counter[str]:
    """Our requests by kind, others' by account. The worker clusters are one: their shares of a gang are alike."""
    found: Counter[str] = Counter()
    for cluster, asked in requests.items():
        where = "manager" if cluster == manager else "workers"
        for kind, number in audit.count(asked).items():
            if (kind.client in OURS) is ours:
                found[f"{where}  {f'{kind.verb} {kind.what}' if ours else kind.client}"] += number
    return found


def pace(changes: Sequence[Change], manager: str) -> Figures:
    """Seconds count from the first of the pods that were dispatched; those that KubeRay made before never are."""
    rise = timeline.rise(changes, manager)
    begun = min((rise.pods[name] for name in rise.running), default=float("nan"))
    since = [at - begun for at in rise.running.values()]
    copies = [rise.running[name] - at for name, at in rise.remotes.items() if name in rise.running]
    total = percentile(since, 100)
    return {
        "pods_s": ratio(len(since), total),
        "total_s": total,
        "running_p50_s": percentile(since, 50),
        "running_p99_s": percentile(since, 99),
        "copy_p50_s": percentile(copies, 50),
        "copy_p99_s": percentile(copies, 99),
    }


def through(changes: Sequence[Change], manager: str) -> Figures:
    """For a gang whose pods are dispatched while KubeRay makes them: seconds since its first pod, or since each pod."""
    rise = timeline.rise(changes, manager)
    made, running = list(rise.pods.values()), rise.running
    own = [running[name] - at for name, at in rise.pods.items() if name in running]
    return {
        "through_pods_s": ratio(len(running), percentile(list(running.values()), 100) - min(made, default=0.0)),
        "kuberay_pods_s": ratio(len(made), percentile(made, 100) - min(made, default=0.0)),
        "through_p50_s": percentile(own, 50),
        "through_p99_s": percentile(own, 99),
    }


def cost(workers: int, manager: str, requests: Requests, *, cpu_s: float, lab_cpu_s: float, rss_mb: float) -> Figures:
    """The cost of each pod; `own` requests are those of the controller's accounts, which the floor uses as well."""
    run = Run(manager, {}, requests, {})
    return {
        "ours_manager": run.count(run.up, here=True, ours=True) / workers,
        "ours_workers": run.count(run.up, here=False, ours=True) / workers,
        "all_manager": run.count(run.up, here=True) / workers,
        "all_workers": run.count(run.up, here=False) / workers,
        "cpu_ms": cpu_s * 1000 / workers,
        "lab_cpu_ms": lab_cpu_s * 1000 / workers,
        "rss_mb": rss_mb,
    }


def gone(changes: Sequence[Change], manager: str) -> Figures:
    """Seconds from the deletion of the RayCluster until its last pod, and its last copy, was gone."""
    fall = timeline.fall(changes, manager)
    return {"gone_s": max(fall["pods_gone_s"], fall["copies_gone_s"])}


def dispatch_values(
    workers: int, ours: Sequence[Figures], floor: Sequence[Figures], by_line: Figures, extra: Sequence[Figures] = ()
) -> dict[str, Value]:
    """One size: medians of our runs and the floor's, and their ratio.

    The spread is that of all runs; a ratio's is that of consecutive runs.
    """
    mine, least = _median(ours), _median(floor)
    values: dict[str, Value] = {"workers": workers}
    for name, key in (("ratio", "pods_s"), ("gone_ratio", "gone_s")):
        values[name] = ratio(mine[key], least[key])
        values |= _spread(name, [ratio(one[key], other[key]) for one, other in zip(ours, floor, strict=True)])
    values |= {**mine, **_spreads("", ours)}
    values["met"] = "yes" if promises.met(values, promises.DISPATCH) else "no"
    values |= {**{f"floor_{key}": value for key, value in least.items()}, **_spreads("floor_", floor)}
    return {**values, **by_line, **_dearer(least["pods_s"], [one["pods_s"] for one in extra])}


def dispatch_table(rows: Sequence[Mapping[str, Value]]) -> str:
    """All sizes side by side, each beside its floor; with the least and the most where that was kept."""
    head = ["gated pods", *(word for row in rows for word in (str(row["workers"]), "floor"))]
    nothing = float("nan")
    lines: list[list[Value]] = [
        [text, *(cell for row in rows for cell in (figures.spread(row, key), nothing))]
        for key, text in (("ratio", "pods/s against the floor's"), ("gone_ratio", "deletion against the floor's"))
    ]
    for key, text in _KEYS.items():
        lines.append([text, *(figures.spread(row, which + key) for row in rows for which in ("", "floor_"))])
    by_lines = _THROUGH | (_EXTRA if any("extra_ms" in row for row in rows) else {})
    lines += [[text, *(cell for row in rows for cell in (row[key], nothing))] for key, text in by_lines.items()]
    return figures.table(head, lines)


def dispatch_last_line(rows: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """The ratio for each size, and whether every goal was met for each."""
    ratios: dict[str, Value] = {f"ratio_{row['workers']}": row["ratio"] for row in rows}
    return {**ratios, "met": "yes" if all(row["met"] == "yes" for row in rows) else "no"}


def _dearer(pods_s: float, extra: Sequence[float]) -> Figures:
    """The cost of one more write for the floor, if measured: milliseconds of each pod's share of the time."""
    if not extra:
        return {}
    slower = statistics.median(extra)
    return {"extra_pods_s": slower, "extra_ms": 1000 * (ratio(1, slower) - ratio(1, pods_s))}


def _median(runs: Sequence[Figures]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in _KEYS}


def _spreads(which: str, runs: Sequence[Figures]) -> Figures:
    return {name: at for key in _SPREAD for name, at in _spread(which + key, [run[key] for run in runs]).items()}


def _spread(name: str, of: Sequence[float]) -> dict[str, float]:
    return {f"{name}_min": min(of), f"{name}_max": max(of)}
