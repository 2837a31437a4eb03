"""Is the slot that a worker pod came with its own: may its copy be made there, with nothing written before?

The pod's template lists the slots of its group as they were planned when the job was admitted, and KubeRay numbers the pods, so each has a
record of its slot before anybody could make its copy: whoever decides next, also after a crash, reads the same cluster in it. The
slot counts as long as nothing speaks against it. Else the pod is one without a slot, to its gang as well, and gets one by a write (dispatch.py):

- Its share was given up since, or is another one: a template keeps what was planned first.
- Somebody else holds it, and keeps it where it was written for him. KubeRay gives a number again when its pod is gone, and a copy takes
  longer to go; two pods may have one number; a user may write what he likes into a template, for his own job.
- Its cluster is being drained.
- Its cluster cannot be seen, and nobody can have made the copy there: then the worker may go elsewhere at once.

In a cluster that cannot be seen a copy may stand that was never reported. A slot that was written says that the cluster was seen just
before; one that a pod came with says nothing, so there it counts who may have sent a copy: this process, which knows, or one that led
before it, which can have done so only for a pod that was there when this one began to lead, by our stores or by its age.

In a cluster that can be seen a copy may come to stand, too, where this process asked for it and got no answer. There the slot is kept as
long as it is planned: the copy is asked for again, and then it is there, or refused.

Where numbers and lists come from: docs/upstream.md, "The number of a worker".
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from adapter.objects.placement import Placement
from adapter.objects.unstructured import Raw, meta, moment
from adapter.objects.worker_pod import dispatched, ended, is_preassigned, is_slot, leaving, slot_cluster, slot_of


@dataclass(frozen=True, slots=True)
class Ground:
    """What there is to be known of the slot that a pod came with."""

    copied: bool  # its copy stands there, or this process made it
    seen: bool  # its cluster can be seen
    sent: bool  # somebody may have made a copy there of which nothing is known
    unanswered: bool  # this process asked for one, and no answer says whether it was made
    shared: bool  # another pod or copy holds the slot, or is about to
    draining: Collection[str]  # clusters that get no new pods


def in_doubt(pod: Raw) -> bool:
    """Whether it is to be asked at all: the copy of a pod that says more of itself was seen, or is not to be made."""
    return is_preassigned(pod) and not (dispatched(pod) or leaving(pod) or ended(pod))


def is_own(placement: Placement, pod: Raw, ground: Ground) -> bool:
    """Whether a pod that is in doubt has the slot that it came with."""
    if ground.copied:
        return True
    if not ground.seen:
        return ground.sent
    open_ = not ground.shared and slot_cluster(pod) not in ground.draining
    return (open_ or ground.unanswered) and is_slot(placement, pod, slot_of(pod))


def may_be_sent(pod: Raw, *, sent: bool, leads_since: datetime | None) -> bool:
    """Whether somebody may have sent a pod's copy to its cluster: that is known (`sent`), or the pod is older than this process's lead."""
    made = moment(meta(pod).get("creationTimestamp"))
    return sent or leads_since is None or made is None or made < leads_since
