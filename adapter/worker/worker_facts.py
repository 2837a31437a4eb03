"""The facts that one worker pod's next actions depend on: its remote pods, its share and its head.

shell/observe/worker_observer.py reads them from the stores; dispatch.py, create_pod.py and report.py decide on them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from adapter import names
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw, label, uid_of
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import Job
from adapter.rewrite import service_mirror, zone
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.worker.cluster_loss import ClusterLoss


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """The job that the pod belongs to. Read by dispatch.py and create_pod.py."""

    job: Job | None
    owns_pod: bool | None  # the pod's RayCluster is the one that the Workload admitted; None: it is not known
    deleted: bool  # the job or its Workload is deleted, or about to be: its shares are deleted too
    restarts_on_share_loss: bool  # the policy restarts the whole gang when a share is lost
    pull_secrets: tuple[Raw, ...]  # that the pod's template names, as written there


@dataclass(frozen=True, slots=True)
class WorkerClusterFacts:
    """The clusters that the pod may run in. Read by dispatch.py and create_pod.py."""

    reservations: Mapping[ShareKey, Reservation]  # of its slot's share, while reachable
    targets: Mapping[str, Target]  # of reachable clusters
    draining: Collection[str]  # clusters that get no new pods, and that pods are to leave
    loss: ClusterLoss | None  # of the cluster of the pod's slot; None while it is reachable


@dataclass(frozen=True, slots=True)
class SlotChoiceFacts:
    """Which slots the pod may take. Read by dispatch.py."""

    taken: Collection[Slot]  # slots that other pods of the Placement hold; known only if the pod may take another one
    lost_template_slot: bool  # its template slot is planned, but another pod holds it; `pod` shows no slot


@dataclass(frozen=True, slots=True)
class CreationFacts:
    """What this process knows of create requests. Read by dispatch.py."""

    created: bool  # it created the remote pod; the manager pod may not show that yet
    may_exist_unobserved: bool  # somebody may have created the remote pod in a cluster that is unreachable now
    unanswered: bool  # it sent the create request, and no answer says whether the pod was created
    creating_pods: bool  # remote pods are being created, of whichever job


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """The head that the worker joins. Read by dispatch.py and create_pod.py."""

    address: HeadAddress  # without an IP while the head has none
    pod: Raw | None  # None while it has no address
    mirrors: Mapping[str, service_mirror.MirrorState]  # clusters that mirror heads -> what they have of this one


@dataclass(frozen=True, slots=True)
class Worker:
    """All facts about one worker pod."""

    pod: Raw | None  # the manager pod
    remote_pods: Mapping[str, Raw]  # cluster -> pod of that name with our manager label
    placement: Placement | None
    owner: OwnerFacts
    clusters: WorkerClusterFacts
    slots: SlotChoiceFacts
    creation: CreationFacts
    head: HeadFacts

    def own_remote_pods(self, pod: Raw) -> Mapping[str, Raw]:
        """The remote pods that were created for this very manager pod, by cluster."""
        return {c: r for c, r in self.remote_pods.items() if label(r, names.POD_UID_LABEL) == uid_of(pod)}


def with_ray_labels(reservation: Reservation, find_flavor: Callable[[str], Raw | None]) -> Reservation:
    """Add the Ray node labels of the flavors of each role; `find_flavor` returns a ResourceFlavor of the cluster."""
    labels = {role: _labels_of_flavors(map(find_flavor, flavors)) for role, flavors in reservation.flavors.items()}
    return replace(reservation, ray_labels={role: own for role, own in labels.items() if own})


def _labels_of_flavors(flavors: Iterable[Raw | None]) -> dict[str, str]:
    node_labels = (((flavor or {}).get("spec") or {}).get("nodeLabels") or {} for flavor in flavors)
    return {key: value for labels in node_labels for key, value in zone.ray_labels_of_node(labels).items()}
