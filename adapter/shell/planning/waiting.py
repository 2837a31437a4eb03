"""Who waits for room before a given gang, and by which policy is each of them going to be planned?

What their turn means is for turn.py and the planner to say.
"""

from collections.abc import Iterable
from datetime import datetime

from adapter import names
from adapter.admission.policy import Chosen
from adapter.gang.deadlines import excluded
from adapter.objects.placement import placement
from adapter.objects.raw import is_true
from adapter.objects.workload import Workload, workload
from adapter.planning import ordering
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager import Home
from adapter.shell.observe.gangs import Observer
from adapter.shell.observe.memory import BACK_WITHIN, Memory


class Waiters:
    """The gangs that are to be planned, as the stores and the memory show them."""

    def __init__(self, home: Home, fleet: Fleet, observer: Observer, memory: Memory) -> None:
        self._home, self._fleet, self._observer, self._memory = home, fleet, observer, memory

    def before(self, me: Workload, now: datetime) -> list[tuple[ordering.Waiting, Chosen]]:
        """The others whose turn comes first, in their order, each with its clusters; those that nothing can be planned for
        take nothing from anybody."""
        return [(one, theirs) for one in ordering.before(me, self._waiting(now)) if (theirs := self._policy_of(one))]

    def _policy_of(self, one: ordering.Waiting) -> Chosen | None:
        """How a waiting gang is going to be planned; None when it is not, so that it takes nothing from anybody."""
        check = self._observer.policies.check_of(one.work)
        chosen, problem = self._observer.policies.policy(check)
        stuck = (
            not chosen
            or problem
            or self._observer.policies.rivals(one.work)
            or self._observer.refusals.absent(one.work, check)
        )
        return None if stuck or self._observer.refusals.refusal(one.work, check, chosen) else chosen

    def _waiting(self, now: datetime) -> list[ordering.Waiting]:
        """The gangs that hold the manager's quota and have no share, or are giving back those that they had; and who was one
        of them a moment ago."""
        placed = {(place.workload_uid, place.attempt): place for place in map(placement, self._home.placements)}
        found = []
        for raw in self._home.workloads:
            if not is_true(raw, names.QUOTA_RESERVED) or is_true(raw, names.FINISHED):
                continue
            work = workload(raw)
            check = self._observer.policies.check_of(work)
            if not check or not work.holds_quota or work.checks[check].state != names.CHECK_PENDING:
                continue
            if self._observer.leaving(work):
                continue
            current = placed.get((work.uid, work.attempt))
            if current is None or current.withdrawing or not current.shares:
                of = current.uid if current and not current.withdrawing else ""
                looked = self._memory.looked(of, self._fleet.room_version, now)
                found.append(ordering.Waiting(work, looked, excluded(current, now)))
        return [*found, *self._aside(now)]

    def _aside(self, now: datetime) -> Iterable[ordering.Waiting]:
        """The gangs that stepped aside just now: they take nothing, but keep what they gathered.

        As they were then. Their Workloads do not show the flavors any more, nor a check that is limited to some of them,
        nor, once they are back in the queue, that they had left it.
        """
        for work, since in self._memory.aside.values():
            raw = self._home.workloads.get(work.key)
            current = workload(raw) if raw else None
            if current is None or current.uid != work.uid or current.deleted:
                continue
            back = current.holds_quota and self._observer.policies.check_of(current)
            if not back and now < since + BACK_WITHIN:
                yield ordering.Waiting(work, looked=True, until=since + BACK_WITHIN)
