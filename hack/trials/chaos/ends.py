"""Counts which of our controller's processes ended, and whether each end is explained. Pure: pods in, sentences out.

A kubelet keeps only how the last container of a pod ended, but it counts the ends (restartCount). The count is judged,
and single ends are the evidence. An end is explained by a kill of the trial's own, or by the process's own message that
it lost its Lease. The latter counts only as often as the trial did something that may cost a Lease. All others are
crashes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from adapter import leader_election, names
from adapter.objects.unstructured import Raw, meta, uid_of
from hack.lab.base.lab import MANAGER
from hack.trials.chaos.draw import Fault

# How a controller says why it ends, at the end of its log (adapter/cli/controller.py, lease.py), with its exit code.
RESIGNED = f"stopped writing, and exiting to be restarted: Lease {names.LEASE} in {names.SYSTEM_NAMESPACE}: "
_CODE = 1
_BEFORE = "before the trial"
# A leader that is stopped for less has time left: it renewed at most RETRY before, and may lose a whole attempt after.
_PAUSE = (
    leader_election.RENEW_DEADLINE_SECONDS
    - leader_election.RETRY_PERIOD_SECONDS
    - leader_election.REQUEST_TIMEOUT_SECONDS
)


@dataclass(frozen=True, slots=True)
class Look:
    """One read of a pod's container: how many processes have ended, which last, and how."""

    uid: str
    pod: str
    ends: int
    last: str  # the id of the container that ended last, empty if none did
    code: int | None
    how: str


@dataclass
class Book:
    """All that was seen of the pods of one Deployment since `begin`."""

    looks: dict[str, Look] = field(default_factory=dict)  # the newest read of each pod, by uid
    resigned: set[str] = field(default_factory=set)  # containers that reported the loss of their Lease
    told: dict[str, str] = field(default_factory=dict)  # how each container ended
    deleted: set[str] = field(default_factory=set)  # the pods that the trial deleted
    excuses: int = 0  # faults of the trial that may have cost a Lease
    _before: dict[str, int] = field(default_factory=dict)  # ends that came before, by uid
    _there: set[str] = field(default_factory=set)  # the pods of the last read

    def begin(self, pods: Iterable[Raw]) -> None:
        """Hold no end against anybody that came before now."""
        for look in self._mine(pods):
            self._before[look.uid] = look.ends
            self.told[look.last] = _BEFORE
            self._keep(look)

    def news(self, pods: Iterable[Raw]) -> list[Look]:
        """The looks that show an end which is not noted yet: what it said is to be fetched now, while it can be."""
        return [look for look in self._mine(pods) if look.last and look.last not in self.told]

    def note(self, look: Look, said: str, killed: Collection[str]) -> None:
        """Keep how a container ended, and what it said last."""
        resigned = look.last not in killed and look.code == _CODE and RESIGNED in said
        self.told[look.last] = f"{look.how}{', having lost its Lease' if resigned else ''}"
        if resigned:
            self.resigned.add(look.last)

    def saw(self, pods: Iterable[Raw]) -> None:
        """Keep the counts of one list of the Deployment's pods."""
        looks = self._mine(pods)
        self._there = {look.uid for look in looks}
        for look in looks:
            self._keep(look)

    def ends(self) -> int:
        """How many processes have ended since it began."""
        return sum(look.ends - self._before.get(uid, 0) for uid, look in self.looks.items())

    def crashes(self, called: str, killed: Collection[str]) -> list[str]:
        """A sentence for unexplained ends, and for each pod that is gone and was not deleted by the trial."""
        ends, kills = self.ends(), len(killed)
        found = []
        if left := unexplained(ends, kills, len(self.resigned), self.excuses):
            hows = "; ".join(how for one, how in self.told.items() if one not in killed and how != _BEFORE)
            found.append(
                f"{left} of {ends} ends of {called} are not explained: the trial killed {kills}, and "
                f"{len(self.resigned)} lost their Lease, for which {self.excuses} faults may be the reason; "
                f"how they ended: {hows or 'not seen'}"
            )
        gone = [look.pod for uid, look in self.looks.items() if uid not in self._there | self.deleted]
        return [*found, *(f"pod {pod} of {called} is gone, and the trial did not delete it" for pod in gone)]

    def _mine(self, pods: Iterable[Raw]) -> list[Look]:
        """The pods that count: not those that the trial deleted, whose ends are noted, nor those that were leaving
        before.
        """
        known = [pod for pod in pods if uid_of(pod) in self.looks or not meta(pod).get("deletionTimestamp")]
        return [read(pod) for pod in known if uid_of(pod) not in self.deleted]

    def _keep(self, look: Look) -> None:
        known = self.looks.get(look.uid)
        if known is None or look.ends >= known.ends:  # an old answer takes nothing back
            self.looks[look.uid] = look


def unexplained(ends: int, kills: int, resigned: int, excuses: int) -> int:
    """How many ends are explained neither by kills nor by Leases that faults may have cost."""
    return max(0, ends - kills - min(resigned, excuses))


def may_cost_the_lease(fault: Fault) -> bool:
    """Whether the leader may lose its Lease by a fault: it excuses one process, since a standby holds none."""
    if fault.kind == "controller-stopped":
        return fault.lasts >= _PAUSE
    return fault.where == MANAGER and fault.kind in ("apiserver-killed", "etcd-killed")


def read(pod: Raw) -> Look:
    """Read a pod's only container. One that waits to be started again has ended once more than it was restarted."""
    status = container_status(pod)
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated") or {}
    ended: Mapping[str, object] = state.get("terminated") or last
    waits = "waiting" in state and bool(last) and bare(last.get("containerID")) == bare(status.get("containerID"))
    pending = "terminated" in state or waits
    code = ended.get("exitCode")
    return Look(
        uid_of(pod),
        str(meta(pod).get("name")),
        int(status.get("restartCount") or 0) + pending,
        bare(ended.get("containerID")),
        code if isinstance(code, int) else None,
        _how(ended, str((state.get("waiting") or {}).get("reason") or "")),
    )


def container_status(pod: Raw) -> Raw:
    """The status of its first container, {} if there is none yet."""
    found: Raw = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0]
    return found


def bare(container: object) -> str:
    """The id alone, of what is written as containerd://ID."""
    return str(container or "").rpartition("/")[2]


def _how(ended: Mapping[str, object], waits: str) -> str:
    message = str(ended.get("message") or "").strip()
    words = [f"{ended.get('reason')}, exit code {ended.get('exitCode')}", message, f"waits: {waits}" if waits else ""]
    return ", ".join(filter(None, words))
