"""How fast were gated pods dispatched, by whom, and at which cost? Pure: recorded changes and requests in, figures out."""

import statistics
from collections.abc import Mapping, Sequence

from hack.bench import timeline
from hack.bench.walkreport import Requests, Run
from hack.testbed import figures
from hack.testbed.figures import Value, percentile, ratio
from hack.testbed.recorder import Change

Figures = Mapping[str, float]

# What we set ourselves: so much of the floor's pace, and so many requests of ours for each pod.
LEAST_RATIO, MOST_MANAGER, MOST_WORKERS = 0.8, 4.0, 7.0

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
}
_THROUGH = {
    "through_pods_s": "pods/s with KubeRay making them",
    "kuberay_pods_s": "pods/s that KubeRay makes",
    "through_p50_s": "created to Running P50, s",
    "through_p99_s": "created to Running P99, s",
    "gone_s": "deleted until nothing is left, s",
}


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
    """Of a gang whose pods are dispatched while KubeRay makes them: seconds count from its first pod, or each from its own."""
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
    """What it cost for each pod; `own` requests are those of the controller's accounts, which the floor uses as well."""
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


def values(workers: int, ours: Sequence[Figures], floor: Sequence[Figures], by_line: Figures) -> dict[str, Value]:
    """One size: medians of ours and of the floor's runs, and the ratio of their paces."""
    mine, least = _median(ours), _median(floor)
    share = ratio(mine["pods_s"], least["pods_s"])
    met = share >= LEAST_RATIO and mine["ours_manager"] <= MOST_MANAGER and mine["ours_workers"] <= MOST_WORKERS
    return {
        "workers": workers,
        "ratio": share,
        "met": "yes" if met else "no",
        **mine,
        **{f"floor_{key}": value for key, value in least.items()},
        **by_line,
    }


def table(rows: Sequence[Mapping[str, Value]]) -> str:
    """All sizes side by side, each beside its floor."""
    head = ["gated pods", *(word for row in rows for word in (str(row["workers"]), "floor"))]
    nothing = float("nan")
    lines: list[list[Value]] = [["pods/s against the floor's", *_pairs(rows, "ratio", "")]]
    lines += [[text, *(row[which + key] for row in rows for which in ("", "floor_"))] for key, text in _KEYS.items()]
    lines += [[text, *(value for row in rows for value in (row[key], nothing))] for key, text in _THROUGH.items()]
    return figures.table(head, lines)


def last_line(rows: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """The ratio for each size, and whether every goal was met for each."""
    ratios: dict[str, Value] = {f"ratio_{row['workers']}": row["ratio"] for row in rows}
    return {**ratios, "met": "yes" if all(row["met"] == "yes" for row in rows) else "no"}


def _pairs(rows: Sequence[Mapping[str, Value]], key: str, beside: str) -> list[Value]:
    return [value for row in rows for value in (row[key], beside or float("nan"))]


def _median(runs: Sequence[Figures]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in _KEYS}
