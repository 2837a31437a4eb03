"""Gathers what a person would look at first after a failed demo, and names the commands for the rest.

It changes nothing, and reports what it could not read instead of failing.
"""

from collections.abc import Callable, Iterator

from adapter import names
from hack.demo import job
from hack.lab.base.progress import LabError
from hack.testbed import clusters, install
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw, Refused, Unreachable

LAB = ".venv/bin/python -m hack.lab"

_LOG_LINES = 12  # enough for one exception
_EVENTS = 6
_ABOUT = ("RayJob", "RayCluster", "Workload", "Job")


def text() -> str:
    try:
        manager = clusters.of_lab().manager
    except LabError as failure:
        return str(failure)
    parts = (("Placement", _placements), ("Latest events", _events), ("End of the controller's log", _controller))
    said = [f"{title}:\n{indented(_tried(part, manager))}" for title, part in parts]
    return "\n".join([*said, _MORE])


def indented(said: str) -> str:
    return "\n".join(f"  {line}" for line in said.splitlines()) or "  (nothing)"


_MORE = f"""More is in:
  {LAB} kubectl mgr describe rayjob {job.NAME}
  {LAB} kubectl mgr get placements -o yaml
  {LAB} kubectl mgr -n {names.SYSTEM_NAMESPACE} logs deployment/{install.CONTROLLER} --all-pods
  {LAB} logs            # the clusters' own components
The job stays for you to look at; the next demo removes it."""


def _tried(part: Callable[[Cluster], Iterator[str]], manager: Cluster) -> str:
    try:
        return "\n".join(part(manager))
    except (Unreachable, Refused) as failure:
        return f"not to be had: {failure}"


def _placements(manager: Cluster) -> Iterator[str]:
    for placed in job.placements(manager):
        status = placed.get("status", {})
        said = (placed["metadata"]["name"], status.get("state"), status.get("where"), status.get("reason"))
        yield ": ".join(filter(None, said))


def _events(manager: Cluster) -> Iterator[str]:
    found = [one for one in manager.items("events", job.NAMESPACE) if _about_us(one["involvedObject"])]
    for event in sorted(found, key=_when)[-_EVENTS:]:
        about = event["involvedObject"]
        yield f"{_when(event)} {about['kind']} {about['name']}: {event.get('reason')}: {event.get('message')}"


def _about_us(about: Raw) -> bool:
    return about.get("kind") in _ABOUT and job.NAME in about.get("name", "")


def _when(event: Raw) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def _controller(manager: Cluster) -> Iterator[str]:
    for pod in manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS):
        yield manager.log(pod["metadata"]["name"], names.SYSTEM_NAMESPACE, lines=_LOG_LINES)
