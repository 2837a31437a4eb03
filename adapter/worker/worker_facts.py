"""What does the fate of one worker pod depend on: the manager's pod, its copies, its share, and the head that it joins?

Read from the stores by shell/observe/worker_observer.py; dispatch.py, create_pod.py and report.py decide from it. Nothing here decides anything.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from adapter import names
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw, label, uid_of
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import Job
from adapter.rewrite import service_mirror, zone
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.worker.cluster_loss import Silence


@dataclass(frozen=True, slots=True)
class Worker:
    """Everything that the fate of one worker pod depends on."""

    pod: Raw | None
    remotes: Mapping[str, Raw]  # cluster -> pod of that name with our manager label
    placement: Placement | None
    job: Job | None
    belongs: bool | None  # to the RayCluster that the Placement's Workload admitted; None: its RayCluster is not known
    head: HeadAddress  # of which no IP is known while it has none
    reservations: Mapping[ShareKey, Reservation]  # that of its slot, while it can be seen
    targets: Mapping[str, Target]  # for clusters that can be seen
    taken: Collection[Slot]  # slots held by other pods of the Placement, here or there; known where `may_get_slot`
    draining: Collection[str] = ()  # clusters that get no new pods, and whose pods move away
    silence: Silence | None = None  # of the cluster of the pod's slot; None while it can be seen
    made: bool = False  # whether this process made its copy, of which the manager may not be told yet
    sent: bool = True  # whether somebody may have sent its copy to a cluster that cannot be seen now
    unanswered: bool = False  # whether this process asked for its copy, and no answer says that it was made, or was not
    head_pod: Raw | None = None  # the head itself, None while it has no address
    # cluster that mirrors heads -> what it has of this one's mirror
    head_mirrors: Mapping[str, service_mirror.MirrorState] = field(default_factory=dict)
    pull_secrets: tuple[Raw, ...] = ()  # that the pod's template names, as written there
    job_gone: bool = False  # its job or Workload is deleted, or about to be: the shares it has go
    slotless: bool = False  # it came with a slot that is planned and not its own, and `pod` shows none
    busy: bool = False  # whether copies are being made, of whichever job
    restarts: bool = False  # its whole gang starts again when a share is lost, as its policy says

    def own(self, pod: Raw) -> Mapping[str, Raw]:
        """The copies that were made for this very pod, by cluster."""
        return {c: r for c, r in self.remotes.items() if label(r, names.POD_UID_LABEL) == uid_of(pod)}


def with_ray_labels(found: Reservation, flavor: Callable[[str], Raw | None]) -> Reservation:
    """A share with what Ray is told of the nodes that each role was given there; `flavor` finds a ResourceFlavor of its cluster."""
    told = {role: _ray_labels(map(flavor, flavors)) for role, flavors in found.flavors.items()}
    return replace(found, ray_labels={role: labels for role, labels in told.items() if labels})


def _ray_labels(flavors: Iterable[Raw | None]) -> dict[str, str]:
    node_labels = (((one or {}).get("spec") or {}).get("nodeLabels") or {} for one in flavors)
    return {key: value for labels in node_labels for key, value in zone.ray_labels_of_node(labels).items()}
