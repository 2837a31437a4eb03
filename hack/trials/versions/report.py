"""Writes docs/versions.md. Pure but for the page's place.

It claims what a row says and nothing more: a pair without a row was not run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hack.lab.base.lab import MANAGER
from hack.lab.base.paths import REPO
from hack.lab.base.versions import OLDER_RAY, OTHERS, RAY, TODAY, Runs
from hack.trials.versions.pairs import CLUSTERS, PAIRS, Pair
from hack.trials.versions.rows import Row

PAGE: Final = REPO / "docs" / "versions.md"
NOT_RUN: Final = "**not run**"
_FOLDERS: Final = re.compile(r"/(?:[^/\s`]+/)+")
_NAMES: Final = {"kubernetes": "Kubernetes", "kueue": "Kueue", "kuberay": "KubeRay"}


def page(rows: Mapping[str, Row], checks: Sequence[str]) -> str:
    """Write the whole page; `checks` is what a run tries, in order."""
    tried = "".join(f"{number}. {what}\n" for number, what in enumerate(checks, 1))
    table = "".join(_line(pair, rows.get(pair.name), checks) for pair in PAIRS)
    return _HEADER.format(tried=tried, built=_built()) + table + _FLOORS


def sentence(said: str) -> str:
    """A failure's first sentence, before its details, without the folders of the machine."""
    first = _FOLDERS.sub("", said.splitlines()[0].partition(". ")[0])
    return f"{first.rstrip('.:')}."


def _line(pair: Pair, row: Row | None, checks: Sequence[str]) -> str:
    """For a pair that was run, the versions that the clusters reported, since those were seen."""
    runs = {name: row.seen.get(name, pair.runs(name)) if row else pair.runs(name) for name in CLUSTERS}
    cells = [
        f"`{pair.name}`: {pair.what}",
        *(_runs(name, runs[name]) for name in CLUSTERS),
        _ray(pair, row),
        *_outcome(row, checks),
    ]
    return f"| {' | '.join(cells)} |\n"


def _runs(cluster: str, runs: Runs) -> str:
    parts = [(runs.kubernetes, TODAY.kubernetes), (runs.kueue, TODAY.kueue)]
    if cluster == MANAGER:
        parts.append((runs.kuberay, TODAY.kuberay))
    return ", ".join(_version(version, version != today) for version, today in parts)


def _ray(pair: Pair, row: Row | None) -> str:
    """The Ray version that its job reported, or must run; empty for a row without one."""
    ran = row.ray if row else pair.ray
    return _version(ran, ran != RAY) if ran else ""


def _version(version: str, other: bool) -> str:
    bare = version.removeprefix("v")
    return f"**{bare}**" if other else bare


def _outcome(row: Row | None, checks: Sequence[str]) -> Iterator[str]:
    """The day, and how each check went, by its number."""
    if row is None:
        yield from ("", NOT_RUN)
        return
    yield row.date
    well = {check.what: f"{check.seconds:.0f} s" for check in row.checks}
    done = [f"{number}: {well[what]}" for number, what in enumerate(checks, 1) if what in well]
    left = [str(number) for number, what in enumerate(checks, 1) if what not in well]
    said = [f"works ({', '.join(done)})"] if done else []
    said += [f"**failed**: {_cell(row.failed)}"] if row.failed else [f"{NOT_RUN}: {', '.join(left)}"] if left else []
    yield "; ".join(said)


def _cell(said: str) -> str:
    return " ".join(said.replace("|", "\\|").split())


def _built() -> str:
    each = (f"{_NAMES[name]} {one.removeprefix('v')}" for name, known in OTHERS.items() for one in known)
    return ", ".join([*each, f"Ray {OLDER_RAY}"])


_HEADER: Final = f"""\
# Versions: with which Kubernetes, Kueue, KubeRay and Ray it was run

This page is generated: `make versions` runs the pairs below and writes it, and a test compares it with what is kept \
of the runs
(`docs/versions.json`). All other tests run on Kubernetes {TODAY.kubernetes.removeprefix("v")}, \
Kueue {TODAY.kueue.removeprefix("v")}, KubeRay {TODAY.kuberay.removeprefix("v")} \
and Ray {RAY}; the lab
can also run {{built}} ([CONTRIBUTING.md](../CONTRIBUTING.md#commands)).

## What was run

Each pair is a lab of its own: a manager and the worker clusters `east` and `west`, with real kubelets, from the \
sources of these
versions. The clusters are asked which versions they are, and what they say stands here. Then, with Rayspan as \
the demo installs it, it is seen that

{{tried}}
That is a short look. It says that a version is no obstacle, and not that every feature was tried with it. Versions \
that are not today's are **bold**;
what stands as {NOT_RUN} was not run, and nothing is claimed of it.

| Pair | Manager: Kubernetes, Kueue, KubeRay | `east`: Kubernetes, Kueue | `west`: Kubernetes, Kueue | The job: Ray \
| Run on | What came of it |
|---|---|---|---|---|---|---|
"""

_FLOORS: Final = """
## Floors

What sets the oldest version that can work, found by reading what Rayspan uses. Between a floor and what was run \
above nothing was tried.

| Where | Floor | What sets it |
|---|---|---|
| Kueue in a worker cluster | 0.15 | All that is read and written there is `kueue.x-k8s.io/v1beta2`, \
which 0.15 is the first to serve (`kueue:apis/kueue/v1beta2`); 0.14 has `v1beta1` alone. \
The annotations of a pod that joins a group Workload \
(`pod-group-serving`, `prebuilt-workload-name`, `role-hash`, `pod-suspending-parent`) are older. |
| Kubernetes in a worker cluster | 1.29 | Kueue asks for it, from 0.14 to 0.19. Rayspan itself uses nothing \
newer there: pods, ConfigMaps, Secrets, Services, Leases and EndpointSlices of their stable versions. |
| KubeRay in a worker cluster | none | It is not needed there. |
| Kueue in the manager | 0.15 | `kueue.x-k8s.io/v1beta2`, as in a worker cluster. |
| Kubernetes in the manager | 1.36, or 1.31 with [the webhook](admission.md#the-gate-before-kubernetes-136) \
| The gate is a MutatingAdmissionPolicy of `admissionregistration.k8s.io/v1`, or that webhook. \
WorkerClusters have rules with `cidr()`, which a CRD may use from 1.31 on. \
The chart asks for 1.34, the oldest that was run. |
| KubeRay in the manager | 1.5 for zones and regions by label | A worker group has `labels` since 1.5; only \
[zones and regions by Ray's own labels](elastic.md#a-group-for-each-zone-ray-chooses) use them. What else is \
used is older. |
"""
