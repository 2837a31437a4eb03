"""Caches the answers of dry runs, and knows which answers a gang's plan waits for.

An answer counts for one shape of worker in one namespace of one cluster, while what is observed of both stays the same.
It expires after minutes, because not everything that changes pods there can be watched. gang/dry_run.py decides which
dry runs are needed, and shell/write/dry_run_requests.py sends them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from adapter.objects.workload import PodSet, Workload
from adapter.rewrite import dry_run_pod
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.observe.targets import TargetBuilder

# How long a successful answer counts: the next job follows a changed LimitRange or webhook, and similar jobs need one
# dry run per queue.
VALID_FOR = timedelta(minutes=2)
# How long a denial counts. It is never final: a ResourceQuota may have capacity again, or a namespace another level. No
# watch announces that.
REFUSAL_VALID_FOR = timedelta(minutes=1)
# How long a plan waits for answers. In a fleet of dozens, or behind many plans, the first denials expire before the
# last answer. A gang that waited longer would repeat dry runs without end or reason, and hold the manager's quota.
# After this time the plan is written, and its clusters get dry runs before reservations.
PUT_OFF_FOR = REFUSAL_VALID_FOR
# The most cached answers, of some kilobytes each; an answer dropped early costs a request.
MOST_ANSWERS = 1_000
_MOST_DIGESTS = 10_000  # computing one takes a fifth of a millisecond

ClusterGroup = tuple[str, str]  # cluster and worker group
_WorkerShape = tuple[str, str]  # namespace and digest


@dataclass(frozen=True, slots=True)
class _DryRunAnswer:
    result: DryRunResult
    circumstances: object  # observed at the request


class DryRunAnswers:
    def __init__(self, fleet: Fleet, targets: TargetBuilder, clock: Callable[[], datetime]) -> None:
        self._fleet, self._targets, self._clock = fleet, targets, clock
        self._answers: dict[_WorkerShape, dict[str, _DryRunAnswer]] = {}  # by cluster
        self._digests: dict[tuple[str, str, str], str] = {}  # by Workload's uid, attempt and worker group
        self._awaited: dict[str, tuple[tuple[ClusterGroup, ...], datetime]] = {}  # by Workload's uid, and since when

    def answers_for(self, workload: Workload, podset: PodSet) -> Mapping[str, DryRunResult]:
        """Valid answers for a group's pods, by cluster."""
        if not self._answers:
            return {}
        answers, now = self._answers.get(self._shape_of(workload, podset), {}), self._clock()
        return {
            name: answer.result
            for name, answer in answers.items()
            if self._is_valid(name, workload.namespace, answer, now)
        }

    def known_answers(self, workload: Workload, pairs: Iterable[ClusterGroup]) -> dict[ClusterGroup, DryRunResult]:
        requested = list(pairs)
        groups = {
            podset.name: self.answers_for(workload, podset)
            for podset in workload.podsets
            if any(podset.name == group for _, group in requested)
        }
        return {
            (cluster, group): result for cluster, group in requested if (result := groups.get(group, {}).get(cluster))
        }

    def add_answer(
        self, cluster: str, workload: Workload, podset: PodSet, result: DryRunResult, circumstances: object
    ) -> None:
        """Cache an answer; `circumstances` were read before the request."""
        valid_for = REFUSAL_VALID_FOR if result.denied_reason else VALID_FOR
        self._forget_expired()
        shape = self._shape_of(workload, podset)
        by_cluster = self._answers.pop(shape, {})
        self._answers[shape] = {
            **by_cluster,
            cluster: _DryRunAnswer(replace(result, valid_until=self._clock() + valid_for), circumstances),
        }

    def circumstances(self, cluster: str, namespace: str) -> object:
        member = self._fleet.caches().get(cluster)
        return member and (member, member.spec.pods, dict(member.namespace_labels.get(namespace) or {}))

    def defers_plan(self, workload: Workload, pairs: tuple[ClusterGroup, ...]) -> bool:
        """Record which answers a gang's plan waits for; return whether it waits."""
        now = self._clock()
        _, since = self._awaited.pop(workload.uid, ((), now))
        if not pairs or now - since >= PUT_OFF_FOR:
            return False
        self._awaited[workload.uid] = pairs, since
        return True

    def awaited_answers(self, workload: Workload) -> tuple[ClusterGroup, ...]:
        return self._awaited.get(workload.uid, ((), None))[0]

    def _is_valid(self, cluster: str, namespace: str, answer: _DryRunAnswer, now: datetime) -> bool:
        return now < answer.result.valid_until and answer.circumstances == self.circumstances(cluster, namespace)

    def _shape_of(self, workload: Workload, podset: PodSet) -> _WorkerShape:
        key = workload.uid, workload.attempt, podset.name
        if key not in self._digests or not workload.attempt:
            if len(self._digests) >= _MOST_DIGESTS:
                self._digests.clear()
            target = replace(self._targets.clusterless_target(podset), queue=workload.queue)
            self._digests[key] = dry_run_pod.digest(podset.template, podset.name, target)
        return workload.namespace, self._digests[key]

    def _forget_expired(self) -> None:
        """Drop expired entries; then, while too many answers remain, shapes of the namespace with the most of them.

        Of these, the least recently updated ones: no tenant's shapes drop those of others.
        """
        now = self._clock()
        self._awaited = {uid: note for uid, note in self._awaited.items() if now - note[1] < VALID_FOR}
        if sum(map(len, self._answers.values())) < MOST_ANSWERS:
            return
        live = {
            shape: {cluster: answer for cluster, answer in answers.items() if now < answer.result.valid_until}
            for shape, answers in self._answers.items()
        }
        self._answers = {shape: answers for shape, answers in live.items() if answers}
        counts = Counter[str]()
        for (namespace, _), answers in self._answers.items():
            counts[namespace] += len(answers)
        while counts.total() >= MOST_ANSWERS:
            largest = max(counts, key=counts.__getitem__)
            shape = next(shape for shape in self._answers if shape[0] == largest)
            counts[largest] -= len(self._answers.pop(shape))
