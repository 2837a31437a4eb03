"""What does one worker cluster look like from here: its connection, its stores, and since when it is silent.

A member that cannot be seen keeps its stores, but nobody may act on them: `why_silent` is then a sentence. So it is while it has
not proved that it is the cluster that it was.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from adapter import membership, names
from adapter.admission.cluster_identity import Known
from adapter.admission.condition_patches import STEADY_AFTER
from adapter.objects import trim
from adapter.objects.reservation import Reservation, reservation
from adapter.objects.selectors import Labels
from adapter.objects.specs import WorkerCluster
from adapter.objects.unstructured import Key, Raw, key_of, meta, true_since, uid_of
from adapter.objects.worker_pod import slot_of
from adapter.quota import clusterqueue, cohort, node_capacity
from adapter.quota.tree import Tree, build, leads_to
from adapter.rewrite.service_mirror import Standing, slice_keys
from adapter.shell.clusters.claim_holder import Claim
from adapter.shell.clusters.cluster_cache import CLAIM, CONNECTION, PROBE, Cluster, Row
from adapter.shell.clusters.identity import Identity
from adapter.shell.clusters.indexes import by_placement, by_reserved_workload
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable, Unusable
from adapter.shell.kube.memory_budget import OF_WORKER_CLUSTER
from adapter.shell.kube.store import Changed, Store, version

log = logging.getLogger(__name__)

FIRST_LISTS = "it is being read for the first time"


def _nobody(*_: object) -> None:
    """Whoever comes to listen looks at everything first."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who wants to know what changed in a member; nobody, unless told otherwise."""

    reservation: Callable[[str, Raw | None, Raw | None], None] = _nobody
    pod: Callable[[str, Raw | None, Raw | None], None] = _nobody
    room: Callable[[str, Raw | None, Raw | None], None] = _nobody
    head_mirror: Callable[[Raw | None, Raw | None], None] = _nobody
    contact: Callable[[str], None] = _nobody
    opened: Callable[[str], None] = _nobody


class Member(Cluster):
    """One connected worker cluster; `run` keeps it true until cancelled."""

    def __init__(
        self,
        name: str,
        spec: WorkerCluster,
        client: Client,
        manager_id: str,
        tell: Listeners,
        known: Known | None = None,
    ) -> None:
        """`known`: what is on record of who it is; by default nothing."""
        super().__init__(client, OF_WORKER_CLUSTER)
        self.name, self.spec = name, spec
        self.identity = Identity(known or Known(name))
        self.claim: Claim | None = None  # where this process takes part in no election
        self._tell, self._manager_id = tell, manager_id
        self.seen = asyncio.Event()  # set once it was seen, with all that is to be followed
        # What the listeners were told last: why it is silent, in words and in a word, and what its claim lacks.
        self._told = "not connected yet", "", ""
        self._silent_since: datetime | None = datetime.now(UTC)
        self._seen_since: datetime | None = None
        self._troubles[PROBE] = Unreachable(FIRST_LISTS)

        self._tree: Tree | None = None
        self._tree_is_old = False
        self._nodes: node_capacity.Nodes | None = None
        self._queues: dict[Key, tuple[str, str]] | None = None
        self._namespace_labels: dict[str, Labels] | None = None

        self._reads_share = functools.partial(reservation, name)
        self.workloads = Store(self._share, index=by_reserved_workload, slims=trim.share)
        self._reserved: dict[str, tuple[datetime | None, int]] = {}  # share's uid -> holds quota since, as of version
        self.pods = Store(lambda a, b: tell.pod(name, a, b), index=by_placement, counted=slot_of, slims=trim.copy)
        self.services, self.slices = Store(tell.head_mirror), Store(tell.head_mirror)
        self.cluster_queues, self.cohorts, self.flavors = (Store(self._news(self._forget_tree)) for _ in range(3))
        self.local_queues = Store(self._news(self._forget_queues))
        self.namespaces = Store(self._news(self._forget_namespaces), slims=trim.namespace)
        self._node_objects = Store(self._news(self._forget_nodes), slims=trim.node)
        self._rows = self._table()

    def _share(self, before: Raw | None, after: Raw | None) -> None:
        if after is None:
            self._reserved.pop(uid_of(before or {}), None)
        else:
            since, (known, first) = (
                true_since(after, names.QUOTA_RESERVED),
                self._reserved.get(uid_of(after), (None, 0)),
            )
            restored = version(after) < first  # versions count from lower down
            if since != known or restored:
                self._reserved[uid_of(after)] = since, version(after)
        self._tell.reservation(self.name, before, after)

    def reservation(self, raw: Raw) -> Reservation:
        """Read a share of its store, once for each of its versions."""
        return self.workloads.reading(raw, self._reads_share)

    def reserved_as_of(self, share: Reservation) -> int:
        """The version that told first that a share holds its quota: what Kueue writes down of its pods later is no news of that."""
        since, first = self._reserved.get(share.uid, (None, 0))
        return first if since == share.reserved_at else share.version

    def queue_version(self, share: Reservation) -> int:
        """The version in which the ClusterQueue is seen in which a share holds its quota."""
        return version(self.cluster_queues.named(share.cluster_queue) or {})

    def _news(self, forget: Callable[[], None]) -> Changed:
        """What a store tells when something in it changes: what was read of it is old, and there may be room."""

        def heard(before: Raw | None, after: Raw | None) -> None:
            forget()
            self._tell.room(self.name, before, after)

        return heard

    def _forget_tree(self) -> None:
        self._tree_is_old = True

    def _forget_queues(self) -> None:
        self._queues = None

    def _forget_namespaces(self) -> None:
        self._namespace_labels = None

    def _forget_nodes(self) -> None:
        self._nodes = None

    def _forget(self) -> None:
        """Keep nothing that was read of the stores either."""
        self._reserved.clear()
        self._tree, self._nodes, self._queues, self._namespace_labels = None, None, None, None

    @property
    def why_silent(self) -> str:
        """Why nothing may be concluded from the stores now; empty when all is well."""
        if self._silent_since is None and self.synced:
            return ""
        met = self._unusable or self.trouble
        trouble = _sentence(met, self.name, self.spec) if met else FIRST_LISTS
        since = f" since {self._silent_since:%H:%M:%S} UTC" if self._silent_since else ""
        return f"cannot be seen{since}: {trouble}"

    @property
    def stranger(self) -> str:
        """The reason, in a word, for which what answers is not this cluster, or not ours to use; empty when nothing is said of that."""
        return self._unusable.reason if self._unusable else ""

    @property
    def _unusable(self) -> Unusable | None:
        met = (self._troubles.get(source) for source in (PROBE, CLAIM))
        return next((one for one in met if isinstance(one, Unusable)), None)

    @property
    def unclaimed(self) -> str:
        """Why no claim to it is held although one would be needed, a part of a sentence."""
        return self.claim.lack or self.claim.hindrance if self.claim else ""

    @property
    def unguarded(self) -> bool:
        """Whether no claim to it can be held, and work goes on without."""
        return bool(self.claim and self.claim.lack)

    def fence(self) -> str:
        """Why nothing may be written there now, empty when it may."""
        return self.identity.fence() or (self.claim.fence() if self.claim else "")

    def claimed(self, trouble: Unusable | None, opened: bool) -> None:
        """Hear who holds the claim to it: somebody else, or nobody but us; and whether it may be written to from now on."""
        self._note(CLAIM, trouble)
        if opened:
            self._tell.opened(self.name)

    async def prove(self) -> None:
        """Ask who answers, and compare it with what is on record."""
        self.identity.met(await self.client.uid())

    def must_be_seen(self) -> None:
        """Raise Unreachable while nothing may be concluded: for those who come to their turn one after the other, and
        would each wait for an answer in vain."""
        if self.why_silent:
            raise Unreachable(f"worker cluster {self.name} {self.why_silent}")

    @property
    def unmirrored(self) -> str:
        """Why no worker can be made there that finds its head by a mirror, a part of a sentence; empty where there is nothing in
        the way. What runs there needs none of that to be seen."""
        refused = next((why for _, why in sorted(self.unread.items(), key=lambda one: one[0].plural)), None)
        return f"heads cannot be mirrored there: {_sentence(refused, self.name, self.spec)}" if refused else ""

    @property
    def steady(self) -> bool:
        """Whether it has been seen for so long that an earlier loss is over."""
        return self._seen_since is not None and datetime.now(UTC) - self._seen_since >= STEADY_AFTER

    @property
    def tree(self) -> Tree:
        """The cluster's quota as its objects show it."""
        if (
            self._tree is None or self._tree_is_old
        ):  # once for all plans until a queue changes: it is most of their cost
            self._tree = build(self.cluster_queues, self.cohorts, self.flavors, before=self._tree)
            self._tree_is_old = False
        return self._tree

    def root(self, cluster_queue: Raw) -> cohort.Key:
        """The root of the tree of cohorts in which one of its ClusterQueues stands; raises one of UNREADABLE."""
        return clusterqueue.root(cluster_queue, self.cohorts.named)

    @property
    def nodes(self) -> node_capacity.Nodes:
        """The nodes that take pods."""
        if self._nodes is None:
            self._nodes = node_capacity.read(self._node_objects)
        return self._nodes

    @property
    def queues(self) -> dict[Key, tuple[str, str]]:
        """For each LocalQueue, which ClusterQueue it feeds, and why it takes nothing, as `clusterqueue.leads_to` says it."""
        if self._queues is None:
            self._queues = {key_of(queue): leads_to(queue) for queue in self.local_queues}
        return self._queues

    @property
    def namespace_labels(self) -> dict[str, Labels]:
        """The labels of each namespace."""
        if self._namespace_labels is None:
            self._namespace_labels = {key_of(one)[1]: meta(one).get("labels") or {} for one in self.namespaces}
        return self._namespace_labels

    def head_mirror(self, service: Key) -> Standing | None:
        """What stands there of a head's Service; None where heads are not mirrored."""
        if not self.spec.head.mirrored:
            return None
        if self.unread:
            return Standing(None, (), known=False)
        slices = [self.slices.get(key) for key in slice_keys(service)]
        return Standing(self.services.get(service), [found for found in slices if found])

    def _table(self) -> list[Row]:
        # By cluster as well: were one API server registered under two names, each would see only what it made.
        ours = {"labelSelector": f"{names.MANAGER_LABEL}={self._manager_id},{names.CLUSTER_LABEL}={self.name}"}
        # A missing right to mirrors is in the way of new workers only: what runs there must not count as out of sight for it.
        mirrors = [
            Row(resources.SERVICES, self.services, selectors=ours, spared=_is_refusal),
            Row(resources.ENDPOINT_SLICES, self.slices, selectors=ours, spared=_is_refusal),
        ]
        return [
            *(mirrors if self.spec.head.mirrored else ()),
            Row(resources.WORKLOADS, self.workloads, selectors=ours),
            Row(resources.PODS, self.pods, selectors=ours, late=True),
            Row(resources.CLUSTER_QUEUES, self.cluster_queues),
            Row(resources.LOCAL_QUEUES, self.local_queues),
            Row(resources.COHORTS, self.cohorts),
            Row(resources.FLAVORS, self.flavors),
            Row(resources.NAMESPACES, self.namespaces),
            Row(resources.NODES, self._node_objects),
        ]

    def complete(self) -> None:
        super().complete()
        if not self.synced:  # who waits for it, and who listens, is told when it is
            self.seen.clear()
            self._told = self.why_silent, self.stranger, self.unclaimed

    def _followed(self, row: Row, error: Exception | None) -> None:
        before = self.unmirrored
        super()._followed(row, error)
        if self.unmirrored != before:
            log.info("worker cluster %s: %s", self.name, self.unmirrored or "heads can be mirrored there")
            self._tell.contact(self.name)

    def _note(self, source: Row | str, error: Exception | None) -> None:
        super()._note(source, error)
        if source in (PROBE, CONNECTION) and isinstance(error, Unreachable):
            self.identity.lost()
        if not self._troubles:
            self._seen_since = self._seen_since if self._silent_since is None else datetime.now(UTC)
            self._silent_since = None
        elif self._silent_since is None:  # the first loss counts, not the latest
            self._silent_since, self._seen_since = datetime.now(UTC), None
        if self._told != (now := (self.why_silent, self.stranger, self.unclaimed)):
            self._told = now
            if not self.why_silent:
                self.seen.set()
            log.info("worker cluster %s %s", self.name, self.why_silent or "is seen")
            self._tell.contact(self.name)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status == 403


def _sentence(error: Exception, name: str, spec: WorkerCluster) -> str:
    if isinstance(error, ApiError) and error.status == 401:
        renew = f"run {membership.renewal(name)}" if spec.source.kube_config else "renew the Secret"
        return f"it does not accept the kubeconfig's token or certificate, which may have ended; {renew}"
    if isinstance(error, ApiError) and error.status == 403:
        bind = "" if spec.source.kube_config else " and bind its ClusterRoles to that account"
        return f"the kubeconfig's account lacks a right ({error.message}); apply kustomize/overlays/worker there{bind}"
    return str(error)
