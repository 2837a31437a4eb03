"""Do the books agree: what the Placements promise, what the worker clusters reserve, what the manager's Workloads say? Pure.

What `never` says may not be so for an instant; all else may be so for a while after a fault.
"""

from collections import Counter
from collections.abc import Iterator

from adapter import names
from adapter.objects.placement import Placement, placement
from adapter.objects.podrequests import as_text, quantity
from adapter.objects.raw import is_true, uid_of
from adapter.objects.workload import workload
from hack.trials import books
from hack.trials.chaos.finding import LEDGER, RECORD, Finding
from hack.trials.chaos.look import Member, Sight

MILLICORES = 1000  # what each worker asks for


def never(sight: Sight) -> list[Finding]:
    """All that must not be so for an instant: no queue beyond its quota, by what Workloads hold or by pods that run."""
    found = []
    for name, member in sight.members.items():
        if not member.queue:  # of an earlier run, and just gone
            continue
        queue = books.queue(member.queue)
        said = books.beyond([queue], books.reserved(member.workloads))
        said += books.pods_beyond([queue], books.in_use(member.pods))
        found += [Finding(LEDGER, f"in {name} {one}") for one in said]
    return found


def ledgers(sight: Sight) -> Iterator[Finding]:
    """What each ClusterQueue shows as reserved, and what its Workloads hold, is what the Placements promise."""
    for name, member in sight.members.items():
        promised = MILLICORES * sum(s.workers for p in standing(sight) for s in p.shares if s.cluster == name)
        shown = _shown(member)
        held = sum(sum(cells.values()) for cells in books.reserved(member.workloads).values())
        for who, amount in (("its ClusterQueue shows", shown), ("its Workloads hold", held)):
            if amount != promised:
                said = f"{as_text(promised, 'cpu')} cpu are promised in {name}, and {who} {as_text(amount, 'cpu')}"
                yield Finding(LEDGER, said)


def records(sight: Sight) -> Iterator[Finding]:
    """Each gang has one Workload that is admitted, and that has one Placement for as many workers, which says Placed."""
    workloads = [work for work in map(workload, sight.workloads) if not work.finished]
    jobs = Counter(work.job.name for work in workloads if work.job)
    admitted = {uid_of(raw) for raw in sight.workloads if is_true(raw, names.ADMITTED)}
    for name in sight.wanted:
        if jobs[name] != 1:
            yield Finding(RECORD, f"gang {name} has {jobs[name]} Workloads instead of one")
    for work in workloads:
        if work.uid not in admitted or not work.holds_quota:
            yield Finding(RECORD, f"Workload {work.name} is not admitted")
        mine = [place for place in standing(sight) if place.workload_uid == work.uid]
        if len(mine) != 1:
            yield Finding(RECORD, f"Workload {work.name} has {len(mine)} Placements instead of one")
            continue
        state, workers = mine[0].status.get("state"), sum(share.workers for share in mine[0].shares)
        if state != names.PLACED:
            yield Finding(RECORD, f"Placement {mine[0].name} says {state}: {mine[0].status.get('reason')}")
        wanted = sight.wanted.get(work.job.name if work.job else "")
        if wanted is not None and workers != wanted:
            yield Finding(RECORD, f"Placement {mine[0].name} is for {workers} workers, and the gang has {wanted}")
        if mine[0].attempt != work.attempt:
            yield Finding(RECORD, f"Placement {mine[0].name} is of another attempt than its Workload's")


def standing(sight: Sight) -> list[Placement]:
    """Those that still stand for something; one that has ended is a record of what was."""
    found = map(placement, sight.placements)
    return [place for place in found if place.status.get("state") != names.ENDED]


def _shown(member: Member) -> int:
    rows = (
        row
        for flavor in (member.queue.get("status") or {}).get("flavorsReservation") or ()
        for row in flavor.get("resources") or ()
    )
    return sum(quantity(row.get("total") or "0", row["name"]) for row in rows)
