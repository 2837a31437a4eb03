"""Any clusters by their kubeconfigs, and how a test or the demo reads and changes them.

Changes go through kubectl, as a user makes them; reads go straight to the API server. It starts no cluster and caches
no object.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from hack.lab.base import commands
from hack.lab.base import lab as definition
from hack.lab.base.progress import LabError
from hack.lab.build import tools
from hack.testbed.reader import NotThere, Raw, Reader, Refused, Unreachable
from hack.testbed.writer import Writer

T = TypeVar("T")

_PATIENCE = 120.0  # seconds for one kubectl on a busy machine
_PAUSE = 0.2  # between two polls; one costs a few milliseconds


@dataclass(frozen=True)
class Cluster:
    """One cluster, as its kubeconfig reaches it."""

    name: str
    kubeconfig: Path

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.kubeconfig)

    @cached_property
    def writer(self) -> Writer:
        return Writer(self.reader)

    def kubectl(self, *words: str | Path, input: str | None = None, timeout: float = _PATIENCE) -> str:
        """Run kubectl and return what it prints; raises LabError with its complaint."""
        return commands.run([program(), f"--kubeconfig={self.kubeconfig}", *words], input=input, timeout=timeout)

    def get(self, kind: str, name: str | None = None, namespace: str | None = None, selector: str | None = None) -> Raw:
        """One object, {} if it does not exist; without a name their list, over all namespaces unless one is given."""
        if name and namespace is None and self.reader.namespaced(kind):
            namespace = "default"
        query = {} if selector is None else {"labelSelector": selector}
        try:
            return self.reader.get(self.reader.path(kind, name, namespace), query)
        except Refused as refusal:
            if name and refusal.status == 404:
                return {}
            raise

    def items(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[Raw]:
        found: list[Raw] = self.get(kind, None, namespace, selector)["items"]
        return found

    def log(self, pod: str, namespace: str = "default", *, lines: int | None = None) -> str:
        """The log of a pod's only container."""
        path = self.reader.path("pods", pod, namespace) + "/log"
        return self.reader.text(path, {} if lines is None else {"tailLines": str(lines)}, accept="*/*")

    def apply(self, text: str) -> str:
        return self.kubectl("apply", "-f", "-", input=text)

    def delete(self, kind: str, name: str, namespace: str = "default", *, wait: bool = True) -> None:
        """It is fine if there is nothing to delete."""
        self.kubectl("-n", namespace, "delete", kind, name, "--ignore-not-found", f"--wait={str(wait).lower()}")

    def wait(self, predicate: Callable[[], T], timeout: float, what: str, dump: Callable[[], str] | None = None) -> T:
        """Look until `predicate` gives something true, and return that; see `wait`."""
        return wait(predicate, timeout, f"{self.name}: {what}", dump)


@dataclass(frozen=True)
class Clusters:
    """A manager cluster and its worker clusters, in the order in which a policy fills them."""

    manager: Cluster
    workers: Mapping[str, Cluster]

    @property
    def all(self) -> tuple[Cluster, ...]:
        return (self.manager, *self.workers.values())


def of(manager: Path, workers: Mapping[str, Path]) -> Clusters:
    return Clusters(Cluster("manager", manager), {name: Cluster(name, file) for name, file in workers.items()})


def of_lab() -> Clusters:
    """The clusters of the lab on this machine."""
    lab = definition.load()
    around = (os.environ.get("NO_PROXY"), definition.SUBNET)  # a proxy for the Internet knows no way into the lab
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(filter(None, around))
    known = {cluster.name: Cluster(cluster.name, cluster.kubeconfig) for cluster in lab.clusters}
    return Clusters(known.pop(lab.manager.name), known)


def wait(predicate: Callable[[], T], timeout: float, what: str, dump: Callable[[], str] | None = None) -> T:
    """Poll until `predicate` returns something true; an unreachable API server, or a missing kind, means "not yet".

    Raises LabError with `what` did not happen, the last error, and what `dump` says about the cause.
    """
    deadline = time.monotonic() + timeout
    trouble = ""
    while True:
        try:
            found = predicate()
            if found:
                return found
            trouble = ""
        except (Unreachable, NotThere) as failure:
            trouble = f" ({failure})"
        if time.monotonic() > deadline:
            raise LabError(f"After {timeout:.0f} s still not: {what}{trouble}.{_dumped(dump)}")
        time.sleep(_PAUSE)


def program() -> str:
    """kubectl: the one named in KUBECTL, else the lab's own, else the one on the PATH."""
    named = os.environ.get("KUBECTL")
    if named:
        return named
    try:
        return str(tools.path("kubectl"))
    except LabError:
        found = shutil.which("kubectl")
        if found is None:
            raise LabError("There is no kubectl: install it, name it in KUBECTL, or run `make lab`.") from None
        return found


def condition(found: Raw, kind: str) -> Raw:
    """The condition of that type in an object's status, {} if it has none."""
    conditions: list[Raw] = (found.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == kind), {})


def _dumped(dump: Callable[[], str] | None) -> str:
    try:
        said = dump() if dump else ""
    except (Unreachable, Refused) as failure:
        said = f"(no more is known: {failure})"
    return f" {said}" if said else ""
