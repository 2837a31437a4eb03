"""The cache of one worker cluster: its connection, its stores, and since when it is unreachable.

An unreachable cluster keeps its stores, but nothing may be concluded from them while `unreachable_reason` is set. It is
also set until the cluster has proved its identity.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from adapter import membership, names
from adapter.admission.cluster_identity import IdentityRecord
from adapter.admission.condition_patches import STEADY_AFTER
from adapter.names import ReasonCode
from adapter.objects import trim
from adapter.objects.reason import Reason
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.selectors import Labels
from adapter.objects.specs import WorkerCluster
from adapter.objects.unstructured import (
    UNREADABLE,
    Key,
    Raw,
    condition_true_since,
    key_of,
    mapping_field,
    meta,
    text_field,
    uid_of,
    version_of,
)
from adapter.objects.worker_pod import slot_of
from adapter.quota import clusterqueue, cohort, kueue_answers, node_capacity
from adapter.quota.kueue_answers import Answers, Question
from adapter.quota.tree import QuotaTree, build, local_queue_target
from adapter.rewrite.service_mirror import MirrorState, slice_keys
from adapter.shell.clusters.claim_holder import ClaimHolder
from adapter.shell.clusters.cluster_cache import CLAIM, CONNECTION, PROBE, ClusterCache, WatchedKind
from adapter.shell.clusters.identity import ConnectionIdentity
from adapter.shell.clusters.indexes import by_placement, by_reserved_workload
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable, UnusableCluster
from adapter.shell.kube.memory_budget import WORKER_CLUSTER_BYTES, WORKER_NAMESPACE_BYTES
from adapter.shell.kube.store import ChangeHandler, Store

log = logging.getLogger(__name__)

FIRST_LISTS = "it is being read for the first time"


class Syncing(Unreachable):
    """The first read of the cluster is unfinished."""


def ignore(*_: object) -> None:
    """Ignore changes: a listener reconciles everything when it starts."""


@dataclass(frozen=True, slots=True)
class WorkerClusterListeners:
    on_reservation: Callable[[str, Raw | None, Raw | None], None] = ignore
    on_pod: Callable[[str, Raw | None, Raw | None], None] = ignore
    on_capacity: Callable[[str, Raw | None, Raw | None], None] = ignore
    on_head_mirror: Callable[[Raw | None, Raw | None], None] = ignore
    on_contact: Callable[[str], None] = ignore
    on_writable: Callable[[str], None] = ignore
    on_kueue_answer: Callable[[str, str], None] = ignore  # cluster and ClusterQueue
    on_namespace: Callable[[str, str], None] = ignore  # cluster, and a namespace that became incomplete, or complete


class WorkerClusterCache(ClusterCache):
    def __init__(
        self,
        name: str,
        spec: WorkerCluster,
        client: Client,
        manager_id: str,
        listeners: WorkerClusterListeners,
        known: IdentityRecord | None = None,
    ) -> None:
        super().__init__(client, WORKER_CLUSTER_BYTES, WORKER_NAMESPACE_BYTES)
        self.name, self.spec = name, spec
        self.identity = ConnectionIdentity(known or IdentityRecord(name))
        self.claim: ClaimHolder | None = None  # None without leader election
        self._listeners, self._manager_id = listeners, manager_id
        self.first_reached = asyncio.Event()  # reachable once, with all that must be followed
        # The last report: why it is unreachable, as text and condition reason, and why no claim is held.
        self._last_reported = "not connected yet", "", ""
        self._unreachable_since: datetime | None = datetime.now(UTC)
        self._reachable_since: float | None = None  # by the monotonic clock
        self._errors[PROBE] = Syncing(FIRST_LISTS)

        self._tree: QuotaTree | None = None
        self._tree_outdated = False
        self._nodes: node_capacity.NodeIndex | None = None
        self._queues: dict[Key, tuple[str, str]] | None = None
        self._namespace_labels: dict[str, Labels] | None = None

        self._reservation_reader = functools.partial(parse_reservation, name)
        self.workloads = Store(
            self._on_share, index=by_reserved_workload, trim_object=trim.group_workload, metered=True
        )
        self._set_kueue_answers({})
        # By share uid: since when it holds quota, and the first version with it.
        self._reserved_versions: dict[str, tuple[datetime | None, int]] = {}
        self.pods = Store(
            lambda a, b: listeners.on_pod(name, a, b),
            index=by_placement,
            counted_value=slot_of,
            trim_object=trim.remote_pod,
            metered=True,
        )
        self.services, self.slices = (Store(listeners.on_head_mirror, metered=True) for _ in range(2))
        self.cluster_queues, self.cohorts, self.flavors = (
            Store(self._capacity_handler(self._forget_tree)) for _ in range(3)
        )
        self.local_queues = Store(self._capacity_handler(self._forget_queues))
        self.namespaces = Store(self._capacity_handler(self._forget_namespaces), trim_object=trim.without_annotations)
        self._node_objects = Store(self._capacity_handler(self._forget_nodes), trim_object=trim.node)
        self._watch_kinds(self._kinds_to_watch())
        self.namespace_shares.on_change = self._on_namespace

    def _on_namespace(self, namespace: str) -> None:
        log.info("worker cluster %s: %s", self.name, self.namespace_shares.describe(namespace))
        shares = set(map(uid_of, self.workloads))
        self._reserved_versions = {uid: entry for uid, entry in self._reserved_versions.items() if uid in shares}
        self._listeners.on_namespace(self.name, namespace)

    def _on_share(self, before: Raw | None, after: Raw | None) -> None:
        if after is None:
            self._reserved_versions.pop(uid_of(before or {}), None)
        else:
            since, (recorded_since, first_version) = (
                condition_true_since(after, names.QUOTA_RESERVED),
                self._reserved_versions.get(uid_of(after), (None, 0)),
            )
            restored = version_of(after) < first_version  # versions restart from a lower number
            if since != recorded_since or restored:
                self._reserved_versions[uid_of(after)] = since, version_of(after)
            if kueue_answers.has_answered(before, after):
                self._learn_from(after)
        self._listeners.on_reservation(self.name, before, after)

    def _learn_from(self, share: Raw) -> None:
        namespace, _ = key_of(share)
        queue, covered = self._queue_behind((namespace, text_field(mapping_field(share, "spec"), "queueName")))
        if not queue:
            return  # the queues are not listed yet
        answers = kueue_answers.record_answer(self.kueue_answers, (namespace, queue), covered, share, time.monotonic())
        if answers is not self._kueue_answers:
            self._set_kueue_answers(answers)
            self._listeners.on_kueue_answer(self.name, queue)

    def record_question(self, local_queue: Key, question: Question) -> None:
        """Record that a share asks now whether Kueue counts resources that the ClusterQueue does not cover."""
        queue, covered = self._queue_behind(local_queue)
        key, now = (local_queue[0], queue), time.monotonic()
        self._set_kueue_answers(kueue_answers.record_question(self.kueue_answers, key, covered, question, now))

    def _queue_behind(self, local_queue: Key) -> tuple[str, frozenset[str]]:
        """The ClusterQueue of a LocalQueue, and what it covers; nothing if it is missing or unreadable."""
        queue = self.queues.get(local_queue, ("", ""))[0]
        try:
            return queue, clusterqueue.covered_resources(self.cluster_queues.by_name(queue) or {})
        except UNREADABLE:
            return queue, frozenset()

    @property
    def kueue_answers(self) -> Answers:
        """What Kueue there has answered about the requests that it counts."""
        now = time.monotonic()
        if now >= self._answers_expire_at:  # a plan reads this of a hundred clusters
            self._set_kueue_answers(kueue_answers.drop_expired(self._kueue_answers, now))
        return self._kueue_answers

    def _set_kueue_answers(self, answers: Answers) -> None:
        self._kueue_answers = answers
        self._answers_expire_at = kueue_answers.expires_at(answers)  # by the monotonic clock

    def read_reservation(self, raw: Raw) -> Reservation:
        return self.workloads.read_cached(raw, self._reservation_reader)

    def reserved_as_of(self, share: Reservation) -> int:
        """The first version in which a share holds its quota; Kueue's later writes about pods do not raise it."""
        since, first_version = self._reserved_versions.get(share.uid, (None, 0))
        return first_version if since == share.reserved_at else share.version

    def queue_version(self, share: Reservation) -> int:
        return version_of(self.cluster_queues.by_name(share.cluster_queue) or {})

    def _capacity_handler(self, forget: Callable[[], None]) -> ChangeHandler:

        def handle_change(before: Raw | None, after: Raw | None) -> None:
            forget()
            self._listeners.on_capacity(self.name, before, after)

        return handle_change

    def _forget_tree(self) -> None:
        self._tree_outdated = True

    def _forget_queues(self) -> None:
        self._queues = None

    def _forget_namespaces(self) -> None:
        self._namespace_labels = None

    def _forget_nodes(self) -> None:
        self._nodes = None

    def _forget_derived(self) -> None:
        self._reserved_versions.clear()
        self._set_kueue_answers({})
        self._tree, self._nodes, self._queues, self._namespace_labels = None, None, None, None

    @property
    def unreachable_reason(self) -> str:
        """Why nothing may be concluded from the stores now, or empty."""
        return self.unreachable.text if self.unreachable else ""

    @property
    def unreachable(self) -> Reason | None:
        if self._unreachable_since is None and self.synced:
            return None
        error = self._unusable_error or self.first_error
        message = _error_message(error, self.name, self.spec) if error else FIRST_LISTS
        since = f" since {self._unreachable_since:%H:%M:%S} UTC" if self._unreachable_since else ""
        syncing = error is None or isinstance(error, Syncing)
        code = ReasonCode.CLUSTER_SYNCING if syncing else ReasonCode.CLUSTER_UNREACHABLE
        return Reason(code, f"is unreachable{since}: {message}")

    @property
    def unusable_reason(self) -> str:
        """A condition reason if the cluster is another one or not ours to use, or empty."""
        return self._unusable_error.reason if self._unusable_error else ""

    @property
    def _unusable_error(self) -> UnusableCluster | None:
        errors = (self._errors.get(source) for source in (PROBE, CLAIM))
        return next((error for error in errors if isinstance(error, UnusableCluster)), None)

    @property
    def unclaimed_reason(self) -> str:
        """Why no claim is held, a fragment."""
        return self.claim.unclaimable_reason or self.claim.blocked_reason if self.claim else ""

    @property
    def is_unclaimable(self) -> bool:
        """Whether writes go on without a claim."""
        return bool(self.claim and self.claim.unclaimable_reason)

    def fence_reason(self) -> str:
        return self.identity.fence_reason() or (self.claim.fence_reason() if self.claim else "")

    def on_claim(self, trouble: UnusableCluster | None, opened: bool) -> None:
        """`trouble`: another manager holds the claim. `opened`: the cluster has become writable."""
        self._note_error(CLAIM, trouble)
        if opened:
            self._listeners.on_writable(self.name)

    async def verify_identity(self) -> None:
        self.identity.verify_uid(await self.client.cluster_uid())

    def require_reachable(self) -> None:
        """Raise Unreachable while nothing may be concluded, so that consecutive callers do not each wait in vain."""
        if self.unreachable_reason:
            raise Unreachable(f"worker cluster {self.name} {self.unreachable_reason}")

    @property
    def unmirrored_reason(self) -> str:
        """Why workers that find their head by a mirror cannot be created, a fragment or empty."""
        mirror_error = next(
            (error for _, error in sorted(self.unreadable_kinds.items(), key=lambda item: item[0].plural)), None
        )
        return (
            f"heads cannot be mirrored there: {_error_message(mirror_error, self.name, self.spec)}"
            if mirror_error
            else ""
        )

    @property
    def is_steady(self) -> bool:
        """Whether it has been reachable for so long that an earlier loss is over."""
        return (
            self._reachable_since is not None
            and time.monotonic() - self._reachable_since >= STEADY_AFTER.total_seconds()
        )

    @property
    def tree(self) -> QuotaTree:
        # Building the tree is most of a plan's cost, so it is kept until a queue changes.
        if self._tree is None or self._tree_outdated:
            self._tree = build(self.cluster_queues, self.cohorts, self.flavors, previous=self._tree)
            self._tree_outdated = False
        return self._tree

    def cohort_root(self, cluster_queue: Raw) -> cohort.TreeKey:
        """The root of a ClusterQueue's cohort tree; raises one of UNREADABLE."""
        return clusterqueue.tree_root(cluster_queue, self.cohorts.by_name)

    @property
    def nodes(self) -> node_capacity.NodeIndex:
        if self._nodes is None:
            self._nodes = node_capacity.parse_nodes(self._node_objects)
        return self._nodes

    @property
    def queues(self) -> dict[Key, tuple[str, str]]:
        """For each LocalQueue its `clusterqueue.local_queue_target`."""
        if self._queues is None:
            self._queues = {key_of(queue): local_queue_target(queue) for queue in self.local_queues}
        return self._queues

    @property
    def namespace_labels(self) -> dict[str, Labels]:
        if self._namespace_labels is None:
            self._namespace_labels = {
                key_of(namespace)[1]: meta(namespace).get("labels") or {} for namespace in self.namespaces
            }
        return self._namespace_labels

    def head_mirror(self, service: Key) -> MirrorState | None:
        """The mirror of a head's Service; None where heads are not mirrored."""
        if not self.spec.head.is_mirrored:
            return None
        if self.unreadable_kinds:
            return MirrorState(None, (), readable=False)
        slices = [self.slices.get(key) for key in slice_keys(service)]
        return MirrorState(self.services.get(service), [endpoint_slice for endpoint_slice in slices if endpoint_slice])

    def _kinds_to_watch(self) -> list[WatchedKind]:
        # The selector includes the cluster: of an API server registered under two names, each cache sees only its own
        # objects.
        ours = {"labelSelector": f"{names.MANAGER_LABEL}={self._manager_id},{names.CLUSTER_LABEL}={self.name}"}
        # A missing right to mirrors only prevents new workers: running workers must not count as unreachable.
        mirrors = [
            WatchedKind(resources.SERVICES, self.services, selectors=ours, optional_if=_is_forbidden),
            WatchedKind(resources.ENDPOINT_SLICES, self.slices, selectors=ours, optional_if=_is_forbidden),
        ]
        return [
            *(mirrors if self.spec.head.is_mirrored else ()),
            WatchedKind(resources.WORKLOADS, self.workloads, selectors=ours),
            WatchedKind(resources.PODS, self.pods, selectors=ours, deferred=True),
            WatchedKind(resources.CLUSTER_QUEUES, self.cluster_queues),
            WatchedKind(resources.LOCAL_QUEUES, self.local_queues),
            WatchedKind(resources.COHORTS, self.cohorts),
            WatchedKind(resources.FLAVORS, self.flavors),
            WatchedKind(resources.NAMESPACES, self.namespaces),
            WatchedKind(resources.NODES, self._node_objects),
        ]

    def follow_deferred(self) -> None:
        super().follow_deferred()
        if not self.synced:  # waiters and listeners are notified when it is
            self.first_reached.clear()
            self._last_reported = self.unreachable_reason, self.unusable_reason, self.unclaimed_reason

    def _on_follow_result(self, kind: WatchedKind, error: Exception | None) -> None:
        before = self.unmirrored_reason
        super()._on_follow_result(kind, error)
        if self.unmirrored_reason != before:
            log.info("worker cluster %s: %s", self.name, self.unmirrored_reason or "heads can be mirrored there")
            self._listeners.on_contact(self.name)

    def _note_error(self, source: WatchedKind | str, error: Exception | None) -> None:
        super()._note_error(source, error)
        if source in (PROBE, CONNECTION) and isinstance(error, Unreachable):
            self.identity.mark_unverified()
        if not self._errors:
            self._reachable_since = self._reachable_since if self._unreachable_since is None else time.monotonic()
            self._unreachable_since = None
        elif self._unreachable_since is None:  # of several losses the first counts
            self._unreachable_since, self._reachable_since = datetime.now(UTC), None
        if self._last_reported != (report := (self.unreachable_reason, self.unusable_reason, self.unclaimed_reason)):
            self._last_reported = report
            if not self.unreachable_reason:
                self.first_reached.set()
            log.info("worker cluster %s %s", self.name, self.unreachable_reason or "is seen")
            self._listeners.on_contact(self.name)


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status == 403


def _error_message(error: Exception, name: str, spec: WorkerCluster) -> str:
    if isinstance(error, ApiError) and error.status == 401:
        renew = f"run {membership.renewal_command(name)}" if spec.source.kube_config else "renew the Secret"
        return f"it does not accept the kubeconfig's token or certificate, which may have ended; {renew}"
    if isinstance(error, ApiError) and error.status == 403:
        bind = "" if spec.source.kube_config else " and bind its ClusterRoles to that account"
        return f"the kubeconfig's account lacks a right ({error.message}); apply kustomize/overlays/worker there{bind}"
    return str(error)
