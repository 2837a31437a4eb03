"""What is different for a gang whose job may grow and shrink while it runs?

Kueue lets an elastic job run on while one Workload follows another (docs/upstream.md, "Elastic jobs"): the new one holds quota for
all of its workers and asks our check anew, and the old one is finished. So what runs is never asked again whether it may. The check
is answered at once, the Placement is pointed to the new Workload, and what it lacks is planned beside what stands (running.py), as
much as fits, worker by worker (scale_up.py). The first start, and every start after an eviction, is that of any other gang: all or
nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter import names
from adapter.actions import Action, LookAgain, Plan, Record, Repoint, SetCheck, say
from adapter.gang import messages, reserve
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import SOON, excluded
from adapter.objects.placement import MAX_SHARES, Placement, Share, placement_name
from adapter.objects.rayjob import JobObject
from adapter.objects.unstructured import Raw, is_condition_true, label
from adapter.objects.workload import Workload

GOES_ON = "The job runs on; workers that have no place yet are placed as room comes."
NOT_OURS = "The job runs already, and none of its workers was placed elsewhere: they all run in the manager cluster until it is started anew."


def go_on(gang: Gang, work: Workload, current: Placement | None) -> list[Action]:
    """Let a job that runs go on with the slice that it has now, and its Placement stand for that; empty when all of it is so."""
    actions: list[Action] = _repointed(gang, work, current) if current else []
    if work.checks[gang.check].state != names.CHECK_PENDING:
        return actions
    ours = current is not None or _dispatched(gang, work)
    # The same on every slice: what Kueue gives pods that come later is read from the last one.
    updates = reserve.locks(gang, placement_name(work)) if ours else ()
    text = GOES_ON if ours else NOT_OURS
    done = SetCheck(work, gang.check, names.CHECK_READY, text, updates)
    return [*actions, *_told(gang, work), done, LookAgain(SOON)]


def _repointed(gang: Gang, work: Workload, current: Placement) -> list[Action]:
    wanted = sum(gang.wanted.values())
    if (current.attempt, current.wanted_workers) == (work.attempt, wanted):
        return []
    return [Repoint(current, work, wanted)]


def _dispatched(gang: Gang, work: Workload) -> bool:
    """Whether its worker groups were given to us when it started."""
    groups = (*gang.remote_podsets, *gang.idle_podsets)
    return _marked(work, (one.template for one in work.podsets if one.name in groups))


def _marked(work: Workload, templates: Iterable[Raw]) -> bool:
    """Whether what our check added when the job started stands in one of these templates since."""
    own = placement_name(work)
    return any(label(template, names.PLACEMENT_LABEL) == own for template in templates)


def started(work: Workload, covered: Iterable[str], job: JobObject, slices: Iterable[Raw]) -> bool:
    """Whether a job that runs was let run by Kueue: what our check added stands in its templates since, in one write with
    spec.suspend, or one of its `slices` is admitted. Anybody may set spec.suspend to false, and Kueue leaves an elastic job so
    (kueue:pkg/controller/jobframework/reconciler.go)."""
    own = set(covered)
    templates = [podset.template for podset in work.podsets if podset.name in own]
    templates += [group.template for group in job.cluster.groups]
    return _marked(work, templates) or any(is_condition_true(one, names.ADMITTED) for one in slices)


def _told(gang: Gang, work: Workload) -> list[Action]:
    """What would keep a job from starting keeps none from running on; it is said."""
    if why := gang.refusal or gang.problem or gang.absent:
        text = f"The job runs on, but new workers may not start elsewhere: {why}"
        return say(work.job, "CannotDispatch", text, warning=True)
    return []


def vacate(work: Workload, place: Placement, now: datetime) -> list[Action]:
    """Give up all that an elastic job's Placement wants, with the manager's quota; its name and its rounds are for the next attempt."""
    if place.shares:
        return [Repoint(place, work, place.wanted_workers, vacant=True)]
    return messages.record(place, messages.vacant(place, now))


def resized(gang: Gang, work: Workload, current: Placement, now: datetime) -> list[Action]:
    """Plan one anew that wants fewer workers than it was planned for before it ever ran: Kueue changes its Workload in place then."""
    if current.shares:
        why = f"The job wants {sum(gang.wanted.values())} workers now, and not {current.wanted_workers}"
        return [Record(current, messages.withdrawing(current, {}, why, now, now))]
    return [Plan(work, current, excluded(current, now, gang.start_timeout)), LookAgain(SOON)]


def told(gang: Gang, current: Placement, lacking: Mapping[str, int]) -> str:
    """How many workers of one that runs have a place, and what the others wait for, `lacking` by worker group."""
    wanted, where, missing = sum(gang.wanted.values()), messages.where(current), sum(lacking.values())
    if not missing:
        return f"All workers have a place: {where}." if where else "No worker of this job is to run elsewhere now."
    have = f"{wanted - missing} of {wanted} workers have a place{where and f': {where}'}"
    groups = ", ".join(f"{count} {name}" for name, count in lacking.items() if count)
    others = f"the others ({groups})" if len(gang.wanted) > 1 else "the others"
    if full(current):
        return f"{have}; {others} wait until a share is empty, for a job has {MAX_SHARES} shares at most."
    return f"{have}; {others} wait for room, and run when it comes. {current.explanation}"


def full(current: Placement) -> bool:
    """Whether an elastic job has as many shares as a Placement takes."""
    return current.job is not None and len(current.shares) >= MAX_SHARES


def lacking(gang: Gang, places: Mapping[str, int]) -> dict[str, int]:
    """How many workers of each group have no place, by how many places it has: one group's are of no use to another."""
    return {group: max(wanted - places.get(group, 0), 0) for group, wanted in gang.wanted.items()}


def spare(gang: Gang, empty: Iterable[Share], places: Mapping[str, int]) -> tuple[Share, ...]:
    """Those of the shares that no worker is on without which each group has places enough, the latest first; they hold quota
    for nobody."""
    left, more = Counter(places), list[Share]()
    for share in reversed(list(empty)):
        own = {group.name: group.count for group in share.groups}
        if all(left[name] - count >= gang.wanted.get(name, 0) for name, count in own.items()):
            more.append(share)
            left.subtract(own)
    return tuple(more)
