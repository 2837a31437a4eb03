"""kubectl for the lab and for people who use it: always with the lab's own binary and kubeconfig.

It never reads ~/.kube, so it cannot reach a cluster that is not the lab's.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from hack.lab.base import commands
from hack.lab.base.lab import Cluster
from hack.lab.base.progress import LabError
from hack.lab.build import tools

_PATIENCE = 120.0  # seconds for one command on a busy machine
_DIRECT = {"NO_PROXY": "*", "no_proxy": "*"}  # a proxy set for the Internet knows no way into the lab


def run(cluster: Cluster, *words: str | Path) -> str:
    return commands.run([*_program(cluster), *words], env=_DIRECT, timeout=_PATIENCE)


def kustomize(directory: Path) -> str:
    return commands.run([tools.path("kubectl"), "kustomize", directory], timeout=_PATIENCE)


def become(cluster: Cluster, words: Sequence[str]) -> None:
    """Turn this process into kubectl, so that terminals, signals and exit codes are kubectl's own."""
    config(cluster)
    argv = [str(word) for word in (*_program(cluster), *words)]
    os.execve(argv[0], argv, {**os.environ, **_DIRECT})


def config(cluster: Cluster) -> str:
    if not cluster.kubeconfig.exists():
        raise LabError(f"The cluster {cluster.name} is not running: run `python -m hack.lab up`.")
    return cluster.kubeconfig.read_text(encoding="utf-8")


def _program(cluster: Cluster) -> list[str | Path]:
    own = [f"--kubeconfig={cluster.kubeconfig}", f"--cache-dir={cluster.directory / 'kubectl-cache'}"]
    return [tools.path("kubectl"), *own]
