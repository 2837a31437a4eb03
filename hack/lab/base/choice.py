"""Reads which versions each cluster runs from the values of --kubernetes, --kueue and --kuberay.

It builds nothing, and knows no version but those of versions.py.
"""

from collections.abc import Iterable, Mapping, Sequence

from hack.lab.base.lab import MANAGER
from hack.lab.base.progress import LabError
from hack.lab.base.versions import OTHERS, TODAY

Versions = dict[str, dict[str, str]]
"""Cluster → component → version, such as v1.35.4, where it is not today's."""

HELP: Mapping[str, str] = {
    "kubernetes": "another Kubernetes for a cluster, as west=1.34.4, or for all of them, as 1.35.4; may be said again",
    "kueue": "another Kueue, likewise",
    "kuberay": "another KubeRay, which runs in mgr alone",
}


def versions(asked: Mapping[str, Sequence[str]], clusters: Sequence[str]) -> Versions:
    """What differs from today, of component -> words as CLUSTER=VERSION or VERSION; a later word overrides an earlier
    one.

    Raises LabError for an unknown cluster, and for a version that the lab does not build.
    """
    found: Versions = {}
    for component, words in asked.items():
        for word in words:
            where, version = _read(component, word, clusters)
            for cluster in where:
                found.setdefault(cluster, {})[component] = version
    different = {cluster: _different(runs) for cluster, runs in found.items()}
    return {cluster: runs for cluster, runs in different.items() if runs}


def _read(component: str, word: str, clusters: Sequence[str]) -> tuple[Sequence[str], str]:
    """The clusters that a word means, and the version in it."""
    cluster, _, version = word.rpartition("=")
    places = [MANAGER] if component == "kuberay" else clusters
    if cluster and cluster not in places:
        raise LabError(
            f"--{component} {word}: {cluster} runs none, or is no cluster of this lab; {_said(places)} may be meant."
        )
    version = f"v{version.removeprefix('v')}"
    known = (*OTHERS[component], getattr(TODAY, component))
    if version not in known:
        raise LabError(f"--{component} {word}: the lab knows no {component} {version}; it has {_said(sorted(known))}.")
    return [cluster] if cluster else places, version


def _different(runs: Mapping[str, str]) -> dict[str, str]:
    return {component: version for component, version in runs.items() if version != getattr(TODAY, component)}


def _said(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
