"""Whether a worker pod owns its template slot, so that its remote pod may be created there without a write to the pod.

The pod's template lists its group's slots as planned at admission, and KubeRay numbers the pods. So a pod names its
slot from the start, and a new leader reads the same cluster from the pod. The pod owns the slot unless one of the
following is true. If one is, the pod counts as unplaced, for its gang as well, and dispatch.py writes a slot to it.

- The share was given up, or the slot is not planned: a template keeps the first plan.
- Another pod holds the slot, and keeps it once written. KubeRay reuses a number when the manager pod is gone, but the
  remote pod takes longer to end. Also, two pods may have one number, and a user may write anything into a template.
- Its cluster is being drained.
- Its cluster is unreachable, and no remote pod can have been created there. Then the worker may go elsewhere at once.

A written slot shows that its cluster was reachable just before; a template slot does not. So in an unreachable cluster
a pod keeps a template slot only if its remote pod may have been sent. This process knows what it sent. An earlier
leader sent remote pods only for pods that existed when this process began to lead, by our stores or by the pod's age.

In a reachable cluster, a pod keeps its planned slot while a create request is unanswered. The request is repeated; then
the remote pod exists or is denied.

Numbers and lists: docs/upstream.md, "The number of a worker".
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
    remote_pod_created: bool  # observed, or created by this process
    reachable: bool  # the slot's cluster
    maybe_sent: bool  # an unknown remote pod may exist there
    create_unanswered: bool  # our create request may have succeeded
    slot_shared: bool  # another pod or remote pod holds the slot, or is about to
    draining_clusters: Collection[str]


def must_check_slot(pod: Raw) -> bool:
    """Whether `owns_slot` must decide; a dispatched pod owns its slot, and an ending pod needs no remote pod."""
    return has_template_slot(pod) and not (is_dispatched(pod) or is_deleting(pod) or has_ended(pod))


def owns_slot(placement: Placement, pod: Raw, facts: TemplateSlotFacts) -> bool:
    """Whether a pod that `must_check_slot` owns its slot."""
    if facts.remote_pod_created:
        return True
    if not facts.reachable:
        return facts.maybe_sent
    is_open = not facts.slot_shared and slot_cluster(pod) not in facts.draining_clusters
    return (is_open or facts.create_unanswered) and is_planned_slot(placement, pod, slot_of(pod))


def may_have_been_sent(pod: Raw, *, sent: bool, leads_since: datetime | None) -> bool:
    """Whether a remote pod is known to be `sent`, or may have been, because the manager pod is older than our lead."""
    created = parse_time(meta(pod).get("creationTimestamp"))
    return sent or leads_since is None or created is None or created < leads_since
