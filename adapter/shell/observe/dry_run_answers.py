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
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.observe.targets import TargetBuilder

# An admin who changes a LimitRange or a webhook sees the next job follow; a queue of like jobs asks once.
VALID_FOR = timedelta(minutes=2)
# A refusal is never final: a ResourceQuota may have room again, a namespace another level. Nobody is woken by that.
REFUSAL_VALID_FOR = timedelta(minutes=1)
# For how long a plan is put off until the clusters that it takes have said something. Refusals that come one after the other, in a fleet
# of dozens or behind a long line of plans, end before all have been heard, and a gang would ask round and round: without a
# word of why, and with the manager's quota. Such a plan is written, and its clusters are asked before its shares are.
PUT_OFF_FOR = REFUSAL_VALID_FOR
# Answers that are kept: each is some kilobytes. More than that are asked again before their time, which costs a request.
MOST_ANSWERS = 1_000
_MOST_DIGESTS = 10_000  # worker groups of gangs whose shape is remembered: to find it takes a fifth of a millisecond

ClusterGroup = tuple[str, str]  # cluster and worker group
_WorkerShape = tuple[str, str]  # namespace and digest


@dataclass(frozen=True, slots=True)
class _DryRunAnswer:
    result: DryRunResult
    circumstances: object  # what was seen of the cluster and the namespace when it was asked


class DryRunAnswers:
    """Remembers answers, and which ones plans wait for."""

    def __init__(
        self, fleet: Fleet, targets: TargetBuilder, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._fleet, self._targets, self._clock = fleet, targets, clock
        self._answers: dict[_WorkerShape, dict[str, _DryRunAnswer]] = {}  # by cluster
        self._digests: dict[tuple[str, str, str], str] = {}  # by Workload's uid, attempt and worker group
        self._awaited: dict[str, tuple[tuple[ClusterGroup, ...], datetime]] = {}  # by Workload's uid, and since when

    def answers_for(self, workload: Workload, podset: PodSet) -> Mapping[str, DryRunResult]:
        """What clusters make of a worker group's pods, as far as that counts now."""
        if not self._answers:
            return {}
        found, now = self._answers.get(self._shape_of(workload, podset), {}), self._clock()
        return {name: one.result for name, one in found.items() if self._is_valid(name, workload.namespace, one, now)}

    def known_answers(self, workload: Workload, pairs: Iterable[ClusterGroup]) -> dict[ClusterGroup, DryRunResult]:
        """The same for some clusters and worker groups."""
        asked = list(pairs)
        groups = {
            podset.name: self.answers_for(workload, podset)
            for podset in workload.podsets
            if any(podset.name == g for _, g in asked)
        }
        return {(cluster, group): tried for cluster, group in asked if (tried := groups.get(group, {}).get(cluster))}

    def add_answer(
        self, cluster: str, workload: Workload, podset: PodSet, result: DryRunResult, circumstances: object
    ) -> None:
        """Keep an answer; `under`: what `under` said before the cluster was asked."""
        counts_for = REFUSAL_VALID_FOR if result.denied_reason else VALID_FOR
        self._forget_expired()
        shape = self._shape_of(workload, podset)
        of_shape = self._answers.pop(shape, {})
        self._answers[shape] = {
            **of_shape,
            cluster: _DryRunAnswer(replace(result, valid_until=self._clock() + counts_for), circumstances),
        }

    def circumstances(self, cluster: str, namespace: str) -> object:
        """What of an answer's circumstances is seen: which connection it is, what the cluster gives pods, the namespace's labels."""
        member = self._fleet.caches().get(cluster)
        return member and (member, member.spec.pods, dict(member.namespace_labels.get(namespace) or {}))

    def defers_plan(self, workload: Workload, pairs: tuple[ClusterGroup, ...]) -> bool:
        """Note which answers the plan of a gang waits for, none when it waits for none; returns whether it does."""
        now = self._clock()
        _, since = self._awaited.pop(workload.uid, ((), now))
        if not pairs or now - since >= PUT_OFF_FOR:
            return False
        self._awaited[workload.uid] = pairs, since
        return True

    def awaited_answers(self, workload: Workload) -> tuple[ClusterGroup, ...]:
        """Which answers the last plan of a gang waits for."""
        return self._awaited.get(workload.uid, ((), None))[0]

    def _is_valid(self, cluster: str, namespace: str, answer: _DryRunAnswer, now: datetime) -> bool:
        return now < answer.result.valid_until and answer.circumstances == self.circumstances(cluster, namespace)

    def _shape_of(self, workload: Workload, podset: PodSet) -> _WorkerShape:
        key = workload.uid, workload.attempt, podset.name
        if key not in self._digests or not workload.attempt:
            if len(self._digests) >= _MOST_DIGESTS:
                self._digests.clear()
            nowhere = replace(self._targets.clusterless_target(podset), queue=workload.queue)
            self._digests[key] = dry_run_pod.digest(podset.template, podset.name, nowhere)
        return workload.namespace, self._digests[key]

    def _forget_expired(self) -> None:
        """Forget what does not count any more, and the shapes that were asked for longest ago where there is too much."""
        now = self._clock()
        self._awaited = {uid: note for uid, note in self._awaited.items() if now - note[1] < VALID_FOR}
        if sum(map(len, self._answers.values())) < MOST_ANSWERS:
            return
        live = {
            shape: {c: n for c, n in notes.items() if now < n.result.valid_until}
            for shape, notes in self._answers.items()
        }
        self._answers = {shape: notes for shape, notes in live.items() if notes}
        while sum(map(len, self._answers.values())) >= MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
