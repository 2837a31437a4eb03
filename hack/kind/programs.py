"""Runs docker, kind and kubectl; the environment's settings for other clusters and platforms do not count."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hack.lab.base import commands
from hack.lab.base.commands import run
from hack.lab.base.progress import LabError
from hack.testbed import clusters

SHORT_SECONDS: Final = 300.0
LONG_SECONDS: Final = 3600.0  # pulls, builds, loads and new clusters
WAIT_SECONDS: Final = 120.0  # until an API server, or a webhook behind it, answers

# The image store of Docker 29 gives each build another id otherwise: the id covers the time in the attestation.
_DOCKER: Final[Mapping[str, str]] = {"DOCKER_DEFAULT_PLATFORM": "", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
_KIND: Final[Mapping[str, str]] = {"KIND_EXPERIMENTAL_PROVIDER": "docker", "KIND_EXPERIMENTAL_DOCKER_NETWORK": ""}


def run_docker(*words: str | Path, input: str | None = None, long: bool = False, check: bool = True) -> str:
    """Run docker; returns its standard output."""
    return run(["docker", *words], env=_DOCKER, input=input, timeout=_seconds(long), check=check)


def run_kind(*words: str | Path, input: str | None = None, long: bool = False) -> str:
    """Run kind; returns its standard output."""
    return run(["kind", *words], env=_KIND, input=input, timeout=_seconds(long))


def run_kubectl(kubeconfig: Path, *words: str | Path, input: str | None = None, long: bool = False) -> str:
    """Run kubectl on one cluster; returns its standard output."""
    return run(["kubectl", f"--kubeconfig={kubeconfig}", *words], input=input, timeout=_seconds(long))


def await_kubectl(kubeconfig: Path, *words: str, goal: str, input: str | None = None) -> None:
    """Repeat a command of kubectl until it succeeds; raises LabError with its last complaint if that takes too long."""
    complaint = ""

    def succeeds() -> bool:
        nonlocal complaint
        try:
            run_kubectl(kubeconfig, *words, input=input)
        except LabError as failure:
            commands.check()  # an interrupt ends the wait
            complaint = str(failure)
            return False
        return True

    clusters.wait(succeeds, WAIT_SECONDS, goal, lambda: complaint)


def _seconds(long: bool) -> float:
    return LONG_SECONDS if long else SHORT_SECONDS
