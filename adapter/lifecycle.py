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

The clauses stand in order, most terminal first; the first that applies decides. This file neither plans (planner.py)
nor words the sentences of a plan (explain.py).
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import explain, names, running
from adapter.actions import (
    Action,
    DeletePod,
    Forget,
    LookAgain,
    Plan,
    Record,
    Rejoin,
    Release,
    Reserve,
    Say,
    SetCheck,
    Yield,
)
from adapter.facts import Exclusion, Placement, Reservation, Share, Workload
from adapter.gang import Gang

# A cluster that did not admit in time is asked again after this long, twice as long after each round that was given up, up
# to EXCLUDED_FOR: long enough for another one to be tried first, short enough that a Kueue which was merely slow, or being
# restarted, is not held against it.
EXCLUDED_FIRST = timedelta(seconds=15)
EXCLUDED_FOR = timedelta(seconds=60)
# How long a gang without room keeps the manager's quota although others queue behind it.
YIELD_AFTER = timedelta(seconds=10)
# How long it stays out of the queue. Kueue looks again at those behind at most a second after quota came free
# (requeueBatchPeriod of pkg/cache/queue), and may be busy. A check's Retry would not do: without a delay the quota comes
# straight back to whoever gave it up, and with one it is kept for the whole delay (lab.md 5.11).
AWAY = timedelta(seconds=5)
# How often a wait is doubled at most. Of those 10 s to 2 min 40 s: a gang that yielded often still gives way three times in
# ten minutes. Longer than any timeout that is not meant to be very long, and than EXCLUDED_FOR.
DOUBLINGS = 4
# A safety net under the watches, not the way in which changes are noticed.
RESYNC = timedelta(seconds=30)
ASKED_LAST = "it is asked when all others are admitted, because others must be preempted for it"
# A cluster whose Kueue says no is not waited for: the next one is decided on within five seconds of the plan. Not at once,
# since a Workload that has just gone may still be counted for a second. One that says nothing (its queue may stand still
# behind another Workload, or it may be down) has as long, and twice as long after each round that was given up: it may also
# be busy, and a gang shall not go round for ever among clusters that would all admit it a little later.
SPILL_AFTER = timedelta(seconds=4)
# A plan that comes out as before writes nothing, and so wakes nobody: whoever asked for it looks again by himself. By then
# a write, if there was one, has come back by its watch.
SOON = timedelta(seconds=1)
# Nobody tells us that a Secret or ConfigMap was created: we may read them by name, and neither list nor watch.
ABSENT_AGAIN = timedelta(seconds=5)
RETRY = timedelta(seconds=2)  # after which a share that was refused is asked for again, within its deadline


def decide(gang: Gang, now: datetime) -> list[Action]:
    """Say what to do next for a gang: actions on one cluster in their order, those on different ones side by side."""
    work = gang.workload
    # 1. The Workload is gone, or its job is: its Placement goes with it by garbage collection, the shares are ours to remove.
    #    The job's own deletion counts, for the garbage collector may take seconds to come to its Workload.
    if work is None or work.deleted or gang.job_gone:
        return _release(gang.reservations)
    current = next((p for p in gang.placements if work.attempt and p.attempt == work.attempt), None)
    # 2. Finished: the reservations go, the Placement stays as the record of where the workers were.
    if work.finished:
        return _release(gang.reservations) + _end(gang.placements, now)
    # 3. Evicted, deactivated, not reserved, or not ours any more: nothing may stand for it. What we took out of the queue
    #    ourselves goes back.
    if not work.holds_quota or not gang.check:
        return _release(gang.reservations) + [Forget(p) for p in gang.placements] + _rejoin(work, now)
    # 4. Leftovers of earlier attempts and rounds go first; what cannot be seen now is removed when it can.
    leftovers = [r for r in gang.reservations if not _wanted(r, current)]
    stale: list[Action] = [Forget(p) for p in gang.placements if p is not current]
    runs = work.checks[gang.check].state == names.CHECK_READY
    if leftovers and not runs:
        return stale + _release(leftovers) + [LookAgain(RESYNC)]
    # What a running gang lost elsewhere need not wait until the last leftover is gone.
    wanted = replace(gang, reservations=tuple(r for r in gang.reservations if r not in leftovers))
    return stale + _release(leftovers) + _advance(wanted, work, current, now)


def _advance(gang: Gang, work: Workload, current: Placement | None, now: datetime) -> list[Action]:
    state = work.checks[gang.check].state
    # 5. Kueue has yet to act on what we said: another word now would take it back.
    if state in (names.CHECK_RETRY, names.CHECK_REJECTED):
        return [LookAgain(RESYNC)]
    ready = state == names.CHECK_READY
    if not ready and (held_up := _held_up(gang, work, current, now)):
        return held_up
    return _reserve(gang, work, current, ready, now)


def _held_up(gang: Gang, work: Workload, current: Placement | None, now: datetime) -> list[Action]:
    """What keeps a gang from being planned at all, empty when nothing does."""
    # 6. What can never work is refused before any quota is held remotely.
    if gang.refusal:
        text = gang.refusal
        return [*_say(work, "Refused", text, warning=True), _check(gang, work, names.CHECK_REJECTED, text)]
    # 7. Nothing of it is to run elsewhere: it is not for us to hold it up.
    if not gang.remote_podsets:
        return [_check(gang, work, names.CHECK_READY, "No worker of this job is to run elsewhere.")]
    # 8. What cannot be planned waits, with the reason on the Workload and on the job, and holds nothing meanwhile.
    stuck = gang.problem or gang.absent
    if stuck and current and current.shares and not current.withdrawing:
        return [Record(current, explain.withdrawing(current, {}, stuck, now, now))]
    if gang.problem:
        said = _say(work, "CannotDispatch", gang.problem, warning=True)
        return [*said, *_pending(gang, work, gang.problem), LookAgain(RESYNC)]
    return _without(gang, work, now) if gang.absent else []


def _without(gang: Gang, work: Workload, now: datetime) -> list[Action]:
    """An object that its workers need is not there: unlike a problem of the queue, it is this gang's alone, so it gives way."""
    if given := _give_way(gang, work, gang.absent, now):
        return given
    said = _say(work, "CannotDispatch", gang.absent, warning=True)
    return [*said, *_pending(gang, work, gang.absent), LookAgain(ABSENT_AGAIN)]


def _give_way(gang: Gang, work: Workload, reason: str, now: datetime) -> list[Action]:
    if not gang.others_wait or now < _gives_way_at(work, now):
        return []
    text = f"Gave the manager's quota to those who queue behind, and queued again. {reason}"
    return [*_say(work, "Yielded", text), Yield(work)]


def _gives_way_at(work: Workload, now: datetime) -> datetime:
    return (work.reserved_at or now) + _doubled(YIELD_AFTER, work.yields)


def _reserve(gang: Gang, work: Workload, current: Placement | None, ready: bool, now: datetime) -> list[Action]:
    if ready and not gang.remote_podsets:
        return []
    # 9. No round yet, or the last one is withdrawn: plan.
    if current is None or (current.withdrawing and not ready):
        return [Plan(work, current, excluded(current, now))]
    # 10. Nothing fitted: look again when something changed, and give way to those who queue behind.
    if not current.shares and not ready:
        return _wait(gang, work, current, now)
    return _run(gang, work, current, now) if ready else _ask(gang, work, current, current.shares, ready, now)


def _ask(
    gang: Gang, work: Workload, current: Placement, shares: Sequence[Share], ready: bool, now: datetime
) -> list[Action]:
    # 11. Shares that do not stand are asked for (again: a share that vanished is replaced on the same plan). Those that
    #     take quota back from others come last, when all others are admitted: a round that is given up before has then
    #     cost nobody a running pod.
    standing = {r.cluster: r for r in gang.reservations if r.round == current.round}
    blocked = _blocked(gang, shares, standing)
    may_preempt = all(share.preempts or share.cluster not in blocked for share in shares)
    missing: list[Action] = [
        Reserve(work, current, share)
        for share in shares
        if share.cluster not in standing and share.cluster not in gang.silent and (may_preempt or not share.preempts)
    ]
    if not blocked:
        return _commit(gang, work, current, ready, now)
    return _while_blocked(gang, work, current, blocked, standing, missing, ready, now)


def _run(gang: Gang, work: Workload, current: Placement, now: datetime) -> list[Action]:
    # 12. The job runs: workers that lost their place are planned anew, and nothing else is touched.
    seen = current if current.placed_round else replace(current, placed_round=current.round)
    gone = running.lost(gang, seen)
    refused, why = running.refused(gang, seen, gone), running.why(gone)
    told = _say(work, "ShareLost", why, warning=True) if why else []
    # A cluster that refuses the pods would do so again: the plan knows to leave it out, a new attempt would not.
    if set(gone) - set(refused) and gang.on_share_lost == "Restart":
        text = f"{why} The whole job starts again, as its policy's onShareLost says."
        return [*told, _check(gang, work, names.CHECK_RETRY, text)]
    left = [share for share in running.held(seen) if share not in gone]
    spared = running.spare(gang, seen, left)
    kept = tuple(share for share in left if share not in spared)
    again = now + excluded_for(current)
    live = (*excluded(current, now), *(Exclusion(share.cluster, again, gone[share]) for share in refused))
    if gone or spared or current.withdrawing:
        return [*told, Plan(work, current, live, kept, why, len(refused)), LookAgain(SOON)]
    if asked := running.asked(seen):
        return _ask(gang, work, current, asked, True, now)
    moved = [DeletePod(cluster, copy, f"worker cluster {cluster} is being drained") for cluster, copy in gang.movers]
    missing = running.missing(gang, seen)
    if missing and _may_fit(gang, current, live, now):
        return [Plan(work, current, live, kept), LookAgain(SOON)]
    recorded = _record(current, running.status(gang, seen, now))
    ends = [*(one.until for one in live), *([gang.settles] if gang.settles else [])] if missing else []
    waits = missing or running.blocked(gang, seen)
    return [*moved, *recorded, *([LookAgain(min([RESYNC, *(end - now for end in ends)]))] if waits else [])]


def _while_blocked(
    gang: Gang,
    work: Workload,
    current: Placement,
    blocked: Mapping[str, str],
    standing: Mapping[str, Reservation],
    missing: Sequence[Action],
    ready: bool,
    now: datetime,
) -> list[Action]:
    # 13. Not admitted in time: everything of this round is withdrawn, and the next one does without the blockers.
    patience = _patience(gang, current, standing)
    deadline = (current.planned_at or now) + patience
    if now >= deadline:
        status = _withdrawn(current, blocked, patience, now)
        pending = [] if ready else _pending(gang, work, str(status["reason"]))
        return [Record(current, status), *pending, *_say(work, "Withdrawn", str(status["reason"]))]
    status = explain.reserving(current, blocked, now)
    pending = [] if ready else _pending(gang, work, str(status["reason"]))
    again = min(deadline - now, RETRY) if missing else deadline - now
    return [*missing, *_record(current, status), *pending, LookAgain(again)]


def _rejoin(work: Workload, now: datetime) -> list[Action]:
    if work.active or work.yielded_at is None:
        return []
    left = work.yielded_at + AWAY - now
    return [LookAgain(left)] if left > timedelta(0) else [Rejoin(work)]


def _wanted(reservation: Reservation, current: Placement | None) -> bool:
    return (
        current is not None
        and reservation.placement == current.name
        and not reservation.over
        # Kueue clears the reservation of an evicted group when it sees its pods inactive, and does not look again when the
        # last one is gone (kueue:pkg/controller/jobframework/reconciler.go): who preempted it would wait for ever. A new
        # share waits behind. One that ran is given up with its reason, by the next plan.
        and not (reservation.stranded and reservation.round > current.placed_round)
        and (reservation.cluster, reservation.round) in {(s.cluster, current.round_of(s)) for s in current.live}
    )


def _release(reservations: tuple[Reservation, ...] | list[Reservation]) -> list[Action]:
    return [Release(r) for r in reservations if not r.deleting]


def _end(placements: tuple[Placement, ...], now: datetime) -> list[Action]:
    actions: list[Action] = []
    for placement in placements:
        actions += _record(placement, explain.ended(placement, now))
    return actions


def _blocked(gang: Gang, shares: Sequence[Share], standing: Mapping[str, Reservation]) -> dict[str, str]:
    """Say, for each cluster whose share is not admitted, why; empty while its Kueue has not answered."""
    blocked: dict[str, str] = {}
    for share in shares:
        found = standing.get(share.cluster)
        if share.cluster in gang.silent:
            blocked[share.cluster] = gang.silent[share.cluster]
        elif found is None:
            unasked = ASKED_LAST if share.preempts and len(shares) > 1 else ""
            blocked[share.cluster] = gang.refused.get(share.cluster, unasked)
        elif found.deleting or not found.admitted:
            blocked[share.cluster] = running.why_not(found)
    return blocked


def _patience(gang: Gang, current: Placement, standing: Mapping[str, Reservation]) -> timedelta:
    """How long a round may take: shares that preempt, once they are asked for, have as long again as the others had.

    A round is given up before they are asked for when the others take too long: asked for at the last moment, they would
    preempt somebody for a round that is then given up.
    """
    if any(share.preempts and share.cluster in standing for share in current.shares):
        return gang.timeout * 2  # whatever Kueue says first: its victims' quota is yet to come free
    waiting = [found for found in standing.values() if not found.admitted]
    if any(found.refused for found in waiting):
        return min(SPILL_AFTER, gang.timeout)
    if any(found.unanswered for found in waiting):
        return min(_doubled(SPILL_AFTER, current.given_up), gang.timeout)
    return gang.timeout


def excluded_for(current: Placement) -> timedelta:
    """How long a cluster that did not admit is not asked again: from EXCLUDED_FIRST to EXCLUDED_FOR, and up to a quarter longer.

    By the gang: those that failed together shall not all come back in the same second.
    """
    longer = 1 + zlib.crc32(f"{current.uid}/{current.round}".encode()) % 26 / 100
    return min(_doubled(EXCLUDED_FIRST, current.given_up), EXCLUDED_FOR) * longer


def _doubled(first: timedelta, times: int) -> timedelta:
    """A wait that is twice as long each time."""
    return first * (1 << min(times, DOUBLINGS))


def _commit(gang: Gang, work: Workload, current: Placement, ready: bool, now: datetime) -> list[Action]:
    """Every share of the round is admitted: let Kueue admit the whole gang, if it has not yet."""
    status = explain.placed(current, now)
    actions: list[Action] = list(_record(current, status))
    if not ready:
        updates = tuple(_update(name, current.name) for name in gang.remote_podsets)
        actions.append(SetCheck(work, gang.check, names.CHECK_READY, str(status["reason"]), updates, gang.reservations))
    return actions + _say(work, "Placed" if not ready else "Replaced", str(status["reason"]))


def _update(podset: str, placement: str) -> dict[str, object]:
    return {
        "name": podset,
        "labels": {names.PLACEMENT_LABEL: placement},
        "nodeSelector": {names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE},
    }


def _withdrawn(current: Placement, blocked: Mapping[str, str], patience: timedelta, now: datetime) -> dict[str, object]:
    late = f"Not admitted within {patience.total_seconds():.0f}s"
    asked = {cluster: why for cluster, why in blocked.items() if why != ASKED_LAST}
    return explain.withdrawing(current, asked, late, now + excluded_for(current), now)


def _wait(gang: Gang, work: Workload, current: Placement, now: datetime) -> list[Action]:
    live = excluded(current, now)
    if _may_fit(gang, current, live, now):
        return [Plan(work, current, live), LookAgain(SOON)]
    reason = current.explanation
    if given := _give_way(gang, work, reason, now):
        return given
    turns = [now + RESYNC, *(one.until for one in live)]
    turns += [_gives_way_at(work, now)] if gang.others_wait else []
    turns += [gang.settles] if gang.settles else []
    status = explain.waiting(current, now)
    return [
        *_record(current, status),
        *_pending(gang, work, reason),
        *_say(work, "Waiting", reason),
        LookAgain(min(turns) - now),
    ]


def _may_fit(gang: Gang, current: Placement, live: Sequence[Exclusion], now: datetime) -> bool:
    """Whether a plan that found no room may find some now."""
    settled = gang.settles is not None and now >= gang.settles
    return gang.room_changed or settled or len(live) < len(current.excluded)


def excluded(current: Placement | None, now: datetime) -> tuple[Exclusion, ...]:
    """The clusters that are not asked now: those of earlier rounds and those that made the last one fail."""
    listed = (*current.excluded, *current.blocked) if current else ()
    return tuple({e.cluster: e for e in listed if e.until > now}.values())


def _pending(gang: Gang, work: Workload, message: str) -> list[Action]:
    entry = work.checks[gang.check]
    if entry.state == names.CHECK_PENDING and entry.message == message:
        return []
    return [_check(gang, work, names.CHECK_PENDING, message)]


def _check(gang: Gang, work: Workload, state: str, message: str) -> SetCheck:
    return SetCheck(work, gang.check, state, message)


def _record(placement: Placement, status: Mapping[str, object]) -> list[Action]:
    return [] if all(placement.status.get(k) == v for k, v in status.items()) else [Record(placement, status)]


def _say(work: Workload, reason: str, message: str, *, warning: bool = False) -> list[Action]:
    return [Say(work.job, reason, message, warning)] if work.job else []
