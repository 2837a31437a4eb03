"""The facts that one worker pod's next actions depend on: its remote pods, its share and its head.

shell/observe/worker_observer.py reads them from the stores.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from adapter import names
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw, label, uid_of
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import Job
from adapter.rewrite import ray_node_env, service_mirror
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.worker.cluster_loss import ClusterLoss


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    job: Job | None
    owns_pod: bool | None  # its RayCluster is the one that the Workload admitted; None: not known
    deleted: bool  # the job or the Workload, or about to be; the shares are deleted next
    finished: bool  # the Workload; the shares are deleted next, but KubeRay may keep the RayCluster
    restarts_on_share_loss: bool
    pull_secrets: tuple[Raw, ...]  # as the template names them
    relay: str = ""  # the identity of its relayed network; empty: it has none
    relay_key: str = ""  # the fingerprint of the key that its head was started with
    relay_key_problem: str = ""  # why its head would refuse new workers, a fragment
    relay_image: str = ""  # of the sidecars in clusters that name none


@dataclass(frozen=True, slots=True)
class WorkerClusterFacts:
    reservations: Mapping[ShareKey, Reservation]  # of the slot's share, while reachable
    targets: Mapping[str, Target]  # of reachable clusters
    draining: Collection[str]
    loss: ClusterLoss | None  # of the slot's cluster
    reachable: bool  # the slot's cluster
    clocks: ClockOffsets  # of the slot's cluster


@dataclass(frozen=True, slots=True)
class SlotChoiceFacts:
    taken: Collection[Slot]  # by other pods; known only if the pod may take another slot
    lost_template_slot: bool  # another pod holds it, so `pod` is without it
    joined: Slot | None = None  # of another host of the pod's replica, beside which the pod belongs
    yields_block: bool = False  # another replica's host is in its block, and goes before
    withheld_for: timedelta | None = None  # how long it gets no slot, since its last share was given back


@dataclass(frozen=True, slots=True)
class CreationFacts:
    """What this process knows of create requests."""

    created: bool  # the remote pod was created; the manager pod may not show that yet
    may_exist_unobserved: bool  # the remote pod, created by any leader in a cluster that is unreachable now
    unanswered: bool  # the request may have created the pod
    creating_pods: bool  # remote pods of any job are being created


@dataclass(frozen=True, slots=True)
class HeadFacts:
    address: HeadAddress  # without an IP while the head has none
    pod: Raw | None  # None without an address
    mirrors: Mapping[str, service_mirror.MirrorState]  # cluster that mirrors heads -> what it has of this head


@dataclass(frozen=True, slots=True)
class Worker:
    pod: Raw | None  # manager pod
    remote_pods: Mapping[str, Raw]  # cluster -> pod of that name with our manager label
    placement: Placement | None
    owner: OwnerFacts
    clusters: WorkerClusterFacts
    slots: SlotChoiceFacts
    creation: CreationFacts
    head: HeadFacts

    def own_remote_pods(self, pod: Raw) -> Mapping[str, Raw]:
        """The remote pods created for this very manager pod, by cluster."""
        return {c: r for c, r in self.remote_pods.items() if label(r, names.POD_UID_LABEL) == uid_of(pod)}


def with_ray_labels(reservation: Reservation, find_flavor: Callable[[str], Raw | None]) -> Reservation:
    """Add the Ray node labels of each role's flavors."""
    labels = {role: _labels_of_flavors(map(find_flavor, flavors)) for role, flavors in reservation.flavors.items()}
    return replace(reservation, ray_labels={role: own for role, own in labels.items() if own})


def _labels_of_flavors(flavors: Iterable[Raw | None]) -> dict[str, str]:
    node_labels = (((flavor or {}).get("spec") or {}).get("nodeLabels") or {} for flavor in flavors)
    return {key: value for labels in node_labels for key, value in ray_node_env.ray_labels_of_node(labels).items()}
