"""What happens next to a gang: facts and the time in, actions out.

Theory of operation. A gang is one manager's Workload. While that Workload holds quota, one Placement stands for the
attempt, and its spec says in one write what is wanted in the worker clusters: a round with its shares. A share that
stands in a worker cluster and is not of that round is a leftover and goes, before anything new is asked for. So the
worker clusters converge to what the manager's objects say, and a crash between any two writes loses nothing: the next
look finds the same state and takes the same step.

    no placement -> plan -> reserving -> placed -> ended
                      ^        |  not admitted in time
                      |   withdrawing (leftovers go)     placed -> a share is lost -> plan for its workers
                      +--------+----> waiting (nothing reserved; plans again when room changes)

The clauses stand in order, most terminal first; the first that applies decides:

     1. its Workload or its job is gone: the shares go                           lifecycle.py, cleanup.py (their pods first)
     2. it is finished: the shares go, the Placement stays as a record           lifecycle.py
     3. it holds no quota, or is not ours: nothing may stand for it              lifecycle.py, requeue.py (back into the queue)
        (of an elastic job, of which one Workload follows another: elastic.py says what stays, and what is answered at once)
     4. leftovers of earlier attempts and rounds go before anything new          lifecycle.py
     5. Kueue has yet to act on what we said                                     lifecycle.py
     6. it can never work: refused, with the reason                              lifecycle.py
     7. nothing of it is to run elsewhere: let it go                             lifecycle.py
     8. it cannot be planned now: it waits, and holds nothing                    lifecycle.py, requeue.py (gives way)
     9. there is no round, or the last one is withdrawn: plan                    lifecycle.py
    10. nothing fitted: look again when room changes, and give way               lifecycle.py, requeue.py (gives way)
    11. shares of the round that do not stand are asked for                      reserve.py
    12. it runs: workers that lost their place are planned anew                  running.py, drain_order.py (who leaves), start_timeout.py,
                                                                                 scale_up.py (who comes by itself)
    13. the round is not admitted in time: withdrawn as a whole                  reserve.py

Before a plan is made, and before a share is asked for, its clusters are asked what a copy would be there (dry_run.py).
How long each thing is waited for is in timeouts.py. This file neither plans (planning/planner.py) nor words the sentences that
people read (messages.py).
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from adapter import names
from adapter.actions import Action, Forget, LookAgain, Plan, Record, SetCheck, say
from adapter.gang import cleanup, dry_run, elastic, messages, requeue, reserve, running
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import ABSENT_AGAIN, RESYNC, excluded
from adapter.objects.placement import Placement, placement_name
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Job, Workload


def decide(gang: Gang, now: datetime) -> list[Action]:
    """Say what to do next for a gang: actions on one cluster in their order, those on different ones side by side."""
    return dry_run.first(gang, _decide(gang, now))


def _decide(gang: Gang, now: datetime) -> list[Action]:
    work, leftovers = gang.workload, cleanup.unwanted(gang)
    going = cleanup.release(gang, leftovers)
    # 1. The Workload is gone, or its job is: its Placement goes with it by garbage collection, the shares are ours to remove.
    #    The job's own deletion counts, for the garbage collector may take seconds to come to its Workload.
    if work is None or work.deleting or gang.job_gone:
        return going
    current = gang.current
    # 2. Finished: the reservations go, the Placement stays as the record of where the workers were.
    if work.finished:
        return going + _end(gang, now)
    if work.replaced:  # the slice in its place is about to be heard of
        return [LookAgain(RESYNC)]
    # 3. Evicted, deactivated, not reserved, or not ours any more: nothing may stand for it. What we took out of the queue
    #    ourselves goes back. But Kueue lets run what it admitted, whatever becomes of its queue's checks, and so do we.
    if work.holds_quota and not gang.check and current and current.placed_round:
        return []
    if not work.holds_quota or not gang.check:
        return going + _unheld(gang, work, now) + requeue.rejoin(work, now)
    # 4. Leftovers of earlier attempts and rounds go first; what cannot be seen now is removed when it can, what a cluster will
    #    not have removed holds up nobody, and workers that still end do so for a moment only.
    going = [
        *(Forget(p) for p in gang.placements if p not in (current, gang.chain)),
        *_kept(gang, work.job, leftovers),
        *going,
    ]
    if not gang.runs and (left := cleanup.hold_up(gang, work, leftovers, now)):
        return going + _awaited(gang, work, leftovers) + [LookAgain(left)]
    if still := cleanup.told(gang, leftovers):
        going += say(work.job, "StillEnding", still)
    # What a running gang lost elsewhere need not wait until the last leftover is gone.
    wanted = replace(gang, reservations=tuple(r for r in gang.reservations if r not in leftovers))
    return going + _advance(wanted, work, current, now)


def _advance(gang: Gang, work: Workload, current: Placement | None, now: datetime) -> list[Action]:
    state = work.checks[gang.check].state
    # 5. Kueue has yet to act on what we said: another word now would take it back.
    if state in (names.CHECK_RETRY, names.CHECK_REJECTED):
        return [LookAgain(RESYNC)]
    if gang.unsuspended and (going_on := elastic.go_on(gang, work, current)):
        return going_on
    ready = state == names.CHECK_READY
    if not ready and (held_up := _held_up(gang, work, current, now)):
        return held_up
    return _reserve(gang, work, current, ready, now)


def _held_up(gang: Gang, work: Workload, current: Placement | None, now: datetime) -> list[Action]:
    """What keeps a gang from being planned at all, empty when nothing does."""
    # 6. What can never work is refused before any quota is held remotely.
    if gang.refusal:
        text = gang.refusal
        return [
            *say(work.job, "Refused", text, warning=True),
            messages.check(gang, work, names.CHECK_REJECTED, text),
        ]
    # 7. Nothing of it is to run elsewhere: it is not for us to hold it up.
    if not gang.remote_podsets:
        text, updates = "No worker of this job is to run elsewhere.", reserve.locks(gang, placement_name(work))
        return [SetCheck(work, gang.check, names.CHECK_READY, text, updates)]
    # 8. What cannot be planned waits, with the reason on the Workload and on the job, and holds nothing meanwhile.
    stuck = gang.problem or gang.absent
    if stuck and current and current.shares and not current.withdrawing:
        return [Record(current, messages.withdrawing(current, {}, stuck, now, now))]
    if gang.problem:
        said = say(work.job, "CannotDispatch", gang.problem, warning=True)
        return [*said, *messages.pending(gang, work, gang.problem), LookAgain(RESYNC)]
    return _without(gang, work, now) if gang.absent else []


def _without(gang: Gang, work: Workload, now: datetime) -> list[Action]:
    """An object that its workers need is not there: unlike a problem of the queue, it is this gang's alone, so it gives way."""
    if given := requeue.give_way(gang, work, gang.absent, now):
        return given
    said = say(work.job, "CannotDispatch", gang.absent, warning=True)
    return [*said, *messages.pending(gang, work, gang.absent), LookAgain(ABSENT_AGAIN)]


def _reserve(gang: Gang, work: Workload, current: Placement | None, ready: bool, now: datetime) -> list[Action]:
    if ready and not gang.remote_podsets and not (work.elastic and current):
        return []
    # 9. No round yet, or the last one is withdrawn: plan.
    if current is None or (current.withdrawing and not ready):
        if ready and work.elastic and not work.checks[gang.check].updates:
            return []  # it ran before it was ours
        kept = () if ready and work.elastic else None  # of one that runs, whatever fits is better than none
        return [Plan(work, current or gang.chain, excluded(current, now, gang.start_timeout), kept)]
    if not ready and current.job and current.wanted_workers != sum(gang.wanted.values()):  # it was scaled in the queue
        return elastic.resized(gang, work, current, now)
    # 10. Nothing fitted: look again when something changed, and give way to those who queue behind.
    if not current.shares and not ready:
        return requeue.wait(gang, work, current, now)
    if ready:
        return running.decide(gang, work, current, now)
    return reserve.ask(gang, work, current, current.shares, ready, now)


def _unheld(gang: Gang, work: Workload, now: datetime) -> list[Action]:
    """Let no Placement stand for it; that of an elastic job keeps its name and its rounds."""
    actions: list[Action] = []
    for place in gang.placements:
        actions += elastic.vacate(work, place, now) if place.job else [Forget(place)]
    return actions


def _kept(gang: Gang, job: Job | None, leftovers: Iterable[Reservation]) -> list[Action]:
    """Say of what a cluster will not have removed that it holds quota there for nothing."""
    texts = [
        f"Worker cluster {r.cluster} refuses to have Workload {r.name} of this job deleted, which holds quota there for nothing: "
        f"{gang.unreleased[r.uid]}"
        for r in leftovers
        if r.uid in gang.unreleased
    ]
    return [said for text in texts for said in say(job, "NotReleased", text, warning=True)]


def _awaited(gang: Gang, work: Workload, leftovers: Iterable[Reservation]) -> list[Action]:
    """Say on the check what is waited for, unless Kueue has yet to act on what it says."""
    text = cleanup.told(gang, leftovers)
    return messages.pending(gang, work, text) if text and work.checks[gang.check].state == names.CHECK_PENDING else []


def _end(gang: Gang, now: datetime) -> list[Action]:
    actions: list[Action] = []
    for place in gang.placements:
        still = cleanup.told(gang, (found for found in gang.reservations if found.placement == place.name))
        actions += messages.record(place, messages.ended(place, now, still))
    return actions
