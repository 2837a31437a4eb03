"""What did worker clusters say that a copy would be there, and what is yet to be asked?

An answer counts for one shape of worker in one namespace of one cluster, as long as what we see of both is the same, and for some minutes:
what adds to pods there cannot be watched. It may be lost at any time, and is asked for anew then. How it is asked is for
shell/write/dry_run_requests.py, and who is asked when for gang/dry_run.py.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from adapter.objects.workload import PodSet, Workload
from adapter.rewrite import dry_run_pod
from adapter.rewrite.dry_run_pod import Tried
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.observe.targets import Targets

# An admin who changes a LimitRange or a webhook sees the next job follow; a queue of like jobs asks once.
COUNTS_FOR = timedelta(minutes=2)
# A refusal is never final: a ResourceQuota may have room again, a namespace another level. Nobody is woken by that.
REFUSED_FOR = timedelta(minutes=1)
# For how long a plan is put off until the clusters that it takes have said something. Refusals that come one after the other, in a fleet
# of dozens or behind a long line of plans, end before all have been heard, and a gang would ask round and round: without a
# word of why, and with the manager's quota. Such a plan is written, and its clusters are asked before its shares are.
PUT_OFF_FOR = REFUSED_FOR
# Answers that are kept: each is some kilobytes. More than that are asked again before their time, which costs a request.
MOST = 1_000
_DIGESTS = 10_000  # worker groups of gangs whose shape is remembered: to find it takes a fifth of a millisecond

Pair = tuple[str, str]  # cluster and worker group
_Shape = tuple[str, str]  # namespace and digest


@dataclass(frozen=True, slots=True)
class _Note:
    tried: Tried
    under: object  # what was seen of the cluster and the namespace when it was asked


class Trials:
    """Remembers answers, and which ones plans wait for."""

    def __init__(
        self, fleet: Fleet, targets: Targets, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._fleet, self._targets, self._now = fleet, targets, clock
        self._notes: dict[_Shape, dict[str, _Note]] = {}  # by cluster
        self._digests: dict[tuple[str, str, str], str] = {}  # by Workload's uid, attempt and worker group
        self._wanted: dict[str, tuple[tuple[Pair, ...], datetime]] = {}  # by Workload's uid, and since when

    def of(self, work: Workload, podset: PodSet) -> Mapping[str, Tried]:
        """What clusters make of a worker group's pods, as far as that counts now."""
        if not self._notes:
            return {}
        found, now = self._notes.get(self._shape(work, podset), {}), self._now()
        return {name: one.tried for name, one in found.items() if self._counts(name, work.namespace, one, now)}

    def known(self, work: Workload, pairs: Iterable[Pair]) -> dict[Pair, Tried]:
        """The same for some clusters and worker groups."""
        asked = list(pairs)
        groups = {
            podset.name: self.of(work, podset) for podset in work.podsets if any(podset.name == g for _, g in asked)
        }
        return {(cluster, group): tried for cluster, group in asked if (tried := groups.get(group, {}).get(cluster))}

    def note(self, cluster: str, work: Workload, podset: PodSet, tried: Tried, under: object) -> None:
        """Keep an answer; `under`: what `under` said before the cluster was asked."""
        counts_for = REFUSED_FOR if tried.refused else COUNTS_FOR
        self._tidy()
        shape = self._shape(work, podset)
        of_shape = self._notes.pop(shape, {})
        self._notes[shape] = {**of_shape, cluster: _Note(replace(tried, until=self._now() + counts_for), under)}

    def under(self, cluster: str, namespace: str) -> object:
        """What of an answer's circumstances is seen: which connection it is, what the cluster gives pods, the namespace's labels."""
        member = self._fleet.members().get(cluster)
        return member and (member, member.spec.pods, dict(member.namespace_labels.get(namespace) or {}))

    def puts_off(self, work: Workload, pairs: tuple[Pair, ...]) -> bool:
        """Note which answers the plan of a gang waits for, none when it waits for none; returns whether it does."""
        now = self._now()
        _, since = self._wanted.pop(work.uid, ((), now))
        if not pairs or now - since >= PUT_OFF_FOR:
            return False
        self._wanted[work.uid] = pairs, since
        return True

    def wanted(self, work: Workload) -> tuple[Pair, ...]:
        """Which answers the last plan of a gang waits for."""
        return self._wanted.get(work.uid, ((), None))[0]

    def _counts(self, cluster: str, namespace: str, note: _Note, now: datetime) -> bool:
        return now < note.tried.until and note.under == self.under(cluster, namespace)

    def _shape(self, work: Workload, podset: PodSet) -> _Shape:
        key = work.uid, work.attempt, podset.name
        if key not in self._digests or not work.attempt:
            if len(self._digests) >= _DIGESTS:
                self._digests.clear()
            nowhere = replace(self._targets.nowhere(podset), queue=work.queue)
            self._digests[key] = dry_run_pod.digest(podset.template, podset.name, nowhere)
        return work.namespace, self._digests[key]

    def _tidy(self) -> None:
        """Forget what does not count any more, and the shapes that were asked for longest ago where there is too much."""
        now = self._now()
        self._wanted = {uid: note for uid, note in self._wanted.items() if now - note[1] < COUNTS_FOR}
        if sum(map(len, self._notes.values())) < MOST:
            return
        live = {shape: {c: n for c, n in notes.items() if now < n.tried.until} for shape, notes in self._notes.items()}
        self._notes = {shape: notes for shape, notes in live.items() if notes}
        while sum(map(len, self._notes.values())) >= MOST:
            del self._notes[next(iter(self._notes))]
