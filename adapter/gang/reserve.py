"""What happens next to a round whose shares are asked for: it is admitted as a whole, or given up as a whole?

A round is the first of a gang, or holds the workers that a running gang lost. What it asks for was planned before
(planning/planner.py), and for how long it is waited for is said in timeouts.py. Shares of earlier rounds
are not looked at: they stand.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, LookAgain, Record, Reserve, SetCheck, say
from adapter.gang import dry_run, messages
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import RETRY, answering, begun, excluded_for, patience
from adapter.objects import worker_pod
from adapter.objects.placement import Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

ASKED_LAST = "it is asked when all others are admitted, because others must be preempted for it"


def ask(
    gang: Gang, work: Workload, current: Placement, shares: Sequence[Share], ready: bool, now: datetime
) -> list[Action]:
    """Say what to do next for the shares of a round; `ready` when the gang runs already."""
    # 11. Shares that do not stand are asked for (again: a share that vanished is replaced on the same plan). Those that
    #     take quota back from others come last, when all others are admitted: a round that is given up before has then
    #     cost nobody a running pod.
    standing = gang.standing(current, shares)
    found = blocked(gang, standing)
    may_preempt = all(share.preempts for share in found)
    absent = (share for share, one in standing.items() if one is None and (may_preempt or not share.preempts))
    missing = reserve(gang, work, current, absent, ready)
    if not found:
        return _commit(gang, work, current, ready, now)
    return _while_blocked(gang, work, current, found, standing, missing, ready, now)


def reserve(gang: Gang, work: Workload, current: Placement, shares: Iterable[Share], ready: bool) -> list[Action]:
    """Ask for those of the shares that may be asked for now."""
    return [
        _reserve(gang, work, current, share, ready)
        for share in shares
        if share.cluster in gang.targets and _is_of(work, share) and not dry_run.refusal(gang, share)
    ]


def _is_of(work: Workload, share: Share) -> bool:
    """Whether a share is of the Workload's own groups: who edits a Placement by hand may write any. It is given up in time then."""
    return {group.name for group in share.groups} <= {podset.name for podset in work.podsets}


def _reserve(gang: Gang, work: Workload, current: Placement, share: Share, ready: bool) -> Reserve:
    templates = {podset.name: podset.template for podset in work.podsets}
    tried = {group.name: gang.tried.get((share.cluster, group.name)) for group in share.groups}
    return Reserve(
        placement=current,
        share=share,
        target=replace(gang.targets[share.cluster], share=current.name_of_share(share), round=current.round_of(share)),
        groups=tuple((group.name, group.count, templates[group.name]) for group in share.groups),
        priority=work.priority,
        starts=not ready,
        held={name: found.reserved_template for name, found in tried.items() if found and found.reserved_template},
    )


def _while_blocked(
    gang: Gang,
    work: Workload,
    current: Placement,
    found: Mapping[Share, str],
    standing: Mapping[Share, Reservation | None],
    missing: Sequence[Action],
    ready: bool,
    now: datetime,
) -> list[Action]:
    # 13. Not admitted in time: everything of this round is withdrawn, and the next one does without the blockers.
    waits = patience(gang, current, standing, answering(gang, current))
    deadline = begun(current, gang.first_seen, now) + waits
    if now >= deadline:
        body = _withdrawn(current, found, waits, now)
        pending = [] if ready else messages.pending(gang, work, str(body["reason"]))
        return [Record(current, body), *pending, *say(work.job, "Withdrawn", str(body["reason"]))]
    body = messages.reserving(current, found, now)
    pending = [] if ready else messages.pending(gang, work, str(body["reason"]))
    again = min(deadline - now, RETRY) if missing else deadline - now
    return [*missing, *messages.record(current, body), *pending, LookAgain(again)]


def _commit(gang: Gang, work: Workload, current: Placement, ready: bool, now: datetime) -> list[Action]:
    """Every share of the round is admitted: let Kueue admit the whole gang, if it has not yet."""
    body = messages.placed(current, now)
    actions: list[Action] = list(messages.record(current, body))
    if not ready:
        actions += say(work.job, "StopsAsAWhole", gang.caution, warning=True) if gang.caution else []
        updates = locks(gang, current.name, current)
        shares = sorted(gang.reservations, key=lambda one: (one.cluster, one.name))
        actions.append(SetCheck(work, gang.check, names.CHECK_READY, str(body["reason"]), updates, tuple(shares)))
    again = ready and (bool(current.lost_reason) or current.job is None)  # else an elastic job has grown
    return actions + say(work.job, "Replaced" if again else "Placed", str(body["reason"]))


def locks(gang: Gang, placement: str, placed: Placement | None = None) -> tuple[dict[str, object], ...]:
    """What keeps the pods of each worker group out of the manager, also of one that has none yet: somebody may scale its
    RayCluster by hand. And where they are to go, of a gang that is placed.

    Not of an elastic job: Kueue leaves in its templates what stands there, and does not start a slice whose check says otherwise.
    """
    listed = placed if placed and placed.job is None else None
    return tuple(_update(name, placement, listed) for name in (*gang.remote_podsets, *gang.idle_podsets))


def _update(podset: str, placement: str, placed: Placement | None) -> dict[str, object]:
    slots = worker_pod.list_slots(placed, podset) if placed else ""
    return {
        "name": podset,
        "labels": {names.PLACEMENT_LABEL: placement},
        **({"annotations": {names.SLOTS_ANNOTATION: slots}} if slots else {}),
        "nodeSelector": {names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE},
    }


def _withdrawn(current: Placement, found: Mapping[Share, str], waited: timedelta, now: datetime) -> dict[str, object]:
    late = f"Not admitted within {waited.total_seconds():.0f}s"
    asked = messages.by_cluster({share: why for share, why in found.items() if why != ASKED_LAST})
    return messages.withdrawing(current, asked, late, now + excluded_for(current), now)


def blocked(gang: Gang, standing: Mapping[Share, Reservation | None]) -> dict[Share, str]:
    """Say of each share that is not admitted why; empty while its Kueue has not answered."""
    told: dict[Share, str] = {}
    for share, found in standing.items():
        if share.cluster in gang.silent:
            told[share] = gang.silent[share.cluster]
        elif found is None:
            unasked = ASKED_LAST if share.preempts and len(standing) > 1 and not share.single_worker else ""
            told[share] = dry_run.refusal(gang, share) or gang.refused.get(share.cluster, unasked)
        elif found.deleting or not found.admitted:
            told[share] = why_not(found)
    return told


def why_not(found: Reservation) -> str:
    """Why a share that stands is not admitted."""
    if found.deleting:
        return "it is being deleted there"
    if found.eviction_message:
        return f"its workers were stopped there: {found.eviction_message}"
    return found.message if found.reserved_at is None else "an admission check there is pending"
