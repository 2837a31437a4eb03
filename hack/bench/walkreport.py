"""What did two runs of one gang cost, one spanning clusters and one plain? Tables for people and values for programs. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hack.testbed import audit, figures
from hack.testbed.audit import Request
from hack.testbed.figures import Value, ratio

OURS = ("rayspan-controller", "rayspan-worker")  # the controller's accounts, in the manager and in worker clusters

Requests = Mapping[str, Sequence[Request]]  # by cluster


@dataclass(frozen=True, slots=True)
class Run:
    """What one run gave; requests are those about its namespace, until all workers ran and after that."""

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


def values(workers: int, spanning: Run, plain: Run) -> dict[str, Value]:
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


def text(workers: int, spanning: Run, plain: Run) -> str:
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
    """Ours by what is asked, others' by who asks. The worker clusters are one: their shares of a gang are alike."""
    found: Counter[str] = Counter()
    for cluster, asked in requests.items():
        where = "manager" if cluster == manager else "workers"
        for kind, number in audit.count(asked).items():
            if (kind.client in OURS) is ours:
                found[f"{where}  {f'{kind.verb} {kind.what}' if ours else kind.client}"] += number
    return found
