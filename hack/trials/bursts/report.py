"""Reports the bursts: requests by sender, times beside one cluster, and faults. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hack.testbed import figures
from hack.testbed.figures import Value, percentile, ratio
from hack.trials.bursts.steps import Taken
from hack.trials.bursts.waves import WORKERS, Half
from hack.trials.chaos.invariants import DOUBLED, LEDGER, LOST, ORPHAN, Finding

GOAL = 1.0  # seconds by which a step may be longer than in one cluster
_NAMED = {LOST: "lost", DOUBLED: "doubled", ORPHAN: "orphans", LEDGER: "leaked"}

Steps = Mapping[str, Sequence[Taken]]  # by kind of step
Key = tuple[str, str, str]  # cluster, account, verb


def requests_table(halves: Sequence[Half], manager: str) -> str:
    """The requests of a worker on its way up and down, by account and kind; the worker clusters are one."""
    up, down = (_per_worker(halves, manager, way) for way in ("up", "down"))
    rows: list[list[Value]] = [[" ".join(key), up.get(key, 0), down.get(key, 0)] for key in sorted({*up, *down})]
    rows.append(["all", sum(up.values()), sum(down.values())])
    return figures.table(("requests per worker", "up", "down"), rows)


def requests_values(halves: Sequence[Half], manager: str) -> dict[str, Value]:
    """The sums: ours are those of accounts whose names begin with rayspan."""
    found: dict[str, Value] = {"workers": WORKERS}
    for way in ("up", "down"):
        every = _per_worker(halves, manager, way)
        found[f"{way}_s"] = percentile([half.seconds for half in halves if half.way == way], 50)
        for where in ("manager", "workers"):
            here = {key: number for key, number in every.items() if key[0] == where}
            found[f"{way}_{where}"] = sum(here.values())
            found[f"{way}_{where}_ours"] = sum(number for key, number in here.items() if key[1].startswith("rayspan"))
    return found


def _per_worker(halves: Sequence[Half], manager: str, way: str) -> dict[Key, float]:
    mine = [half for half in halves if half.way == way]
    found = Counter[Key](
        ("manager" if cluster == manager else "workers", one.kind.client, one.kind.verb)
        for half in mine
        for cluster, requests in half.requests.items()
        for one in requests
    )
    return {key: count / (WORKERS * len(mine)) for key, count in found.items()}


def steps_rows(ours: Steps, alone: Steps) -> list[dict[str, Value]]:
    """For each step: seconds over two clusters and in one, their ratio and difference, and CPU."""
    return [_row(step, ours[step], alone[step]) for step in ours if step in alone]


def _row(step: str, ours: Sequence[Taken], alone: Sequence[Taken]) -> dict[str, Value]:
    found: dict[str, Value] = {"step": step, "times": len(ours)}
    longer = []
    for percent in (50, 99):
        mine, plain = (percentile([one.seconds for one in taken], percent) for taken in (ours, alone))
        longer.append(mine - plain)
        found |= {f"p{percent}_s": mine, f"alone_p{percent}_s": plain}
        found |= {f"ratio_p{percent}": ratio(mine, plain), f"added_p{percent}_s": mine - plain}
    spent, plainly = (percentile([one.cpu_s for one in taken], 50) for taken in (ours, alone))
    found |= {"cpu_s": spent, "alone_cpu_s": plainly}
    return {**found, "met": "yes" if max(longer) <= GOAL else "no"}


def steps_table(rows: Sequence[Mapping[str, Value]]) -> str:
    """All steps; `alone` is one cluster without us."""
    return figures.table(list(rows[0]), [list(row.values()) for row in rows]) if rows else ""


def lines(halves: Sequence[Half], manager: str, rows: Iterable[Mapping[str, Value]]) -> list[str]:
    """The lines for programs."""
    waves = [figures.line("bursts-waves", requests_values(halves, manager))] if halves else []
    return [*waves, *(figures.line("bursts-step", row) for row in rows)]


def closing(wrong: Sequence[Finding], rows: Sequence[Mapping[str, Value]]) -> str:
    """The last lines: the faults, a sentence each, and one with their number and whether the steps met their goal."""
    found = Counter(_NAMED.get(one.kind, "other") for one in wrong)
    counts = ", ".join(f"{word} {found[word]}" for word in (*_NAMED.values(), "other"))
    added = ", ".join(
        f"{row['step']} adds P50 {row['added_p50_s']:.2f} s, P99 {row['added_p99_s']:.2f} s" for row in rows
    )
    met = "yes" if rows and all(row["met"] == "yes" for row in rows) else "no"
    failed = [f"FAILED: {one.kind}: {one.text}" for one in wrong]
    return "\n".join([*failed, f"{counts}; {added or 'no step was taken'}; goal of {GOAL:g} s met: {met}"])
