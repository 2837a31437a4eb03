"""Since when can a worker cluster not be seen, when do its workers count as lost, and does Ray still hear from them?

The first loss stands in the WorkerCluster's status, so a restart of ours, or a link that comes and goes, does not start the
clock anew. Ray's own word counts for more than our link, and nobody is given up before Ray was asked. What is done when the
time is over is decided in report.py for a worker, and in gang/running.py for a share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.objects.unstructured import Raw, is_condition_true, parse_time

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Silence:
    """A worker cluster that cannot be seen, as it concerns all that runs there, or one pod."""

    why: str
    since: datetime | None  # first loss; None: not known yet
    until: datetime | None  # when its workers count as lost; None: never
    alive: bool | None = (
        None  # what the head's GCS says of the pod's Ray node; None: it cannot be asked, or does not know
    )
    late: str = ""  # the head will not be asked before somebody puts something right: a sentence that says what


def of_cluster(cluster: Raw | None, why: str | None, *, begun: bool, timeout: timedelta) -> Silence | None:
    """What is to be thought of a cluster; None while it can be seen.

    `cluster` is its WorkerCluster, None when there is none; `why` says why it cannot be seen, None when it can; `begun`: this
    process has only begun to read it; after `timeout` without it its workers count as lost.
    """
    if cluster is None:
        return Silence("is not registered any more", None, _LONG_AGO)
    if why is None:
        return None
    since = parse_time((cluster.get("status") or {}).get("lostSince"))
    # It may be well again since this process began to read it; or this loss is not told yet, and what is there is of another one.
    if since is None or begun or is_condition_true(cluster, names.CONNECTED):
        return Silence("cannot be seen", None, None)
    return Silence(f"cannot be seen since {since:%H:%M:%S} UTC", since, since + timeout)


def of_pod(found: Silence | None, pod: Raw, nodes: Mapping[str, bool] | None, late: str = "") -> Silence | None:
    """The same for a pod of the manager with a slot there.

    `nodes` says by address which nodes the head of its RayCluster hears from; None before anybody asked the head. `late` is
    why nobody can, where that is for somebody to put right.
    """
    if found is None:
        return None
    if found.since and nodes is None:
        return replace(found, until=None)
    return replace(found, alive=(nodes or {}).get(address(pod)), late=late)


def address(pod: Raw) -> str:
    """The address by which Ray's head knows a worker's node, empty while it has none."""
    return str((pod.get("status") or {}).get("podIP") or "")


def given_up(found: Mapping[str, Silence | None], now: datetime) -> dict[str, str]:
    """Those of the clusters whose workers count as lost now, unless Ray still hears from them, each with the reason."""
    late = {name: one.why for name, one in found.items() if one and one.until and now >= one.until}
    return {name: f"the worker cluster {why}" for name, why in late.items()}
