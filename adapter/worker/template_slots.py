"""Whether a worker pod owns its template slot, so that its remote pod may be created there without a write to the pod.

The pod's template lists the slots of its group as they were planned when the job was admitted, and KubeRay numbers the
pods. So each pod names its slot before its remote pod can be created, and a new leader, also after a crash, reads the
same cluster in it. A pod owns the slot unless one of these is true. Then it counts as a pod without a slot, for its
gang as well, and gets one by a write (dispatch.py).

- The share was given up, or the slot is not planned: a template keeps the first plan.
- Another pod holds the slot, and keeps it when it is written there. KubeRay reuses a number when its pod is gone, and
  the remote pod takes longer to go. Two pods may have one number. A user may write anything into a template.
- Its cluster is being drained.
- Its cluster is unreachable, and no remote pod can have been created there. Then the worker may go elsewhere at once.

An unreachable cluster may have a remote pod that was never reported. A written slot shows that the cluster was
reachable just before; a template slot does not. There it counts who may have sent a remote pod. This process knows what
it sent. An earlier leader can have sent one only for a pod that existed when this process began to lead, by our stores
or by the pod's age.

A reachable cluster may get a remote pod, too, when this process sent a create request that was not answered. There the
pod keeps its slot as long as it is planned: the create request is repeated, and then the remote pod exists or is
denied.

Where numbers and lists come from: docs/upstream.md, "The number of a worker".
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from adapter.objects.placement import Placement
from adapter.objects.unstructured import Raw, meta, parse_time
from adapter.objects.worker_pod import (
    has_ended,
    has_template_slot,
    is_deleting,
    is_dispatched,
    is_planned_slot,
    slot_cluster,
    slot_of,
)


@dataclass(frozen=True, slots=True)
class TemplateSlotFacts:
    """What decides whether a pod owns its template slot."""

    remote_pod_created: bool  # its remote pod is observed, or this process created it
    reachable: bool  # the cluster of the slot
    maybe_sent: bool  # a remote pod may exist there that is not known
    create_unanswered: bool  # this process sent a create request, and no answer says whether it succeeded
    slot_shared: bool  # another pod or remote pod holds the slot, or is about to
    draining_clusters: Collection[str]  # clusters that get no new pods


def must_check_slot(pod: Raw) -> bool:
    """Whether a pod may not own its slot. A dispatched pod owns it, and a pod that is deleted or has ended needs no
    remote pod."""
    return has_template_slot(pod) and not (is_dispatched(pod) or is_deleting(pod) or has_ended(pod))


def owns_slot(placement: Placement, pod: Raw, facts: TemplateSlotFacts) -> bool:
    """Whether a pod whose slot must be checked owns it."""
    if facts.remote_pod_created:
        return True
    if not facts.reachable:
        return facts.maybe_sent
    is_open = not facts.slot_shared and slot_cluster(pod) not in facts.draining_clusters
    return (is_open or facts.create_unanswered) and is_planned_slot(placement, pod, slot_of(pod))


def may_have_been_sent(pod: Raw, *, sent: bool, leads_since: datetime | None) -> bool:
    """Whether a remote pod may have been sent to the pod's cluster: it is known (`sent`), or the pod is older than this
    process's lead."""
    created = parse_time(meta(pod).get("creationTimestamp"))
    return sent or leads_since is None or created is None or created < leads_since
