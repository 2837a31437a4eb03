"""Leader election: campaigns for the Lease, renews it, and fences each write.

A leader that may write no more ends its process: a fresh start is the simplest state that is surely right. The clock
also advances while the process is suspended, and is read again before each write, so a process that resumes too late
never writes.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from adapter import leader_election, names
from adapter.admission.cluster_claim import Leadership
from adapter.leader_election import LeaseCandidate, LeaseWrite, StepDown, Wait
from adapter.objects.unstructured import Raw, version_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import LEASES

log = logging.getLogger(__name__)

_LEASES_PATH = LEASES.path(names.SYSTEM_NAMESPACE)
_LEASE_PATH = LEASES.path(names.SYSTEM_NAMESPACE, names.LEASE)
_LEASE_TITLE = f"Lease {names.LEASE} in {names.SYSTEM_NAMESPACE}"


class LeadershipLost(Exception):
    """Another process may lead, so this one must end."""


class LeaderElector:
    def __init__(self, client: Client, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`client`, not fenced by the Lease, is used for the Lease only: no renewal waits behind hanging writes."""
        self.leading = asyncio.Event()
        self.may_lead_soon = asyncio.Event()  # or already holds the Lease
        self._client, self._clock = client, clock
        self._candidate = LeaseCandidate(name)
        self._last_logged = ""  # an attempt every two seconds is logged only when its result changes
        self._leadership = Leadership(name)

    def may_write(self) -> bool:
        """Whether a write may be sent now, by this process's own clock."""
        return leader_election.may_write(self._candidate, self._clock())

    def leadership(self) -> Leadership:
        """This leader and its predecessor, with the Lease's version for each."""
        return self._leadership

    async def run(self) -> None:
        """Campaign, then lead; raises LeadershipLost."""
        while True:
            pause = await self._acquire_or_renew()
            await asyncio.sleep(pause)

    async def give_back(self) -> None:
        """Release the Lease, after all writers have ended, so that the next leader starts at once."""
        self._candidate = leader_election.without_lead(self._candidate)
        try:
            async with asyncio.timeout(leader_election.REQUEST_TIMEOUT_SECONDS):
                patch = leader_election.release_patch(
                    self._candidate, await self._client.find(_LEASE_PATH), datetime.now(UTC)
                )
                if patch:
                    await self._client.merge_patch(_LEASE_PATH, patch)
                    log.info("%s is given back", _LEASE_TITLE)
        except (ApiError, Unreachable, TimeoutError) as trouble:
            log.warning(
                "%s is not given back (%s): the next leader waits until it has run out",
                _LEASE_TITLE,
                _error_text(trouble),
            )

    async def _acquire_or_renew(self) -> float:
        move: Wait | StepDown
        try:
            async with asyncio.timeout(leader_election.request_timeout(self._candidate, self._clock())):
                move = await self._reconcile_lease()
        except (ApiError, Unreachable, TimeoutError) as trouble:
            self._log_once(logging.WARNING, f"cannot be read or written ({_error_text(trouble)})")
            move = leader_election.decide_after_error(self._candidate, self._clock(), _error_text(trouble))
        if isinstance(move, StepDown):
            raise LeadershipLost(f"{_LEASE_TITLE}: {move.reason}")
        return move.seconds

    async def _reconcile_lease(self) -> Wait | StepDown:
        if step_down := leader_election.step_down_if_overdue(self._candidate, self._clock()):
            return step_down
        lease = await self._client.find(_LEASE_PATH)
        self._candidate = leader_election.with_observation(self._candidate, lease, self._clock())
        self._note_predecessor(lease)
        if leader_election.may_lead_soon(self._candidate, lease, self._clock()):
            self.may_lead_soon.set()
        move = leader_election.decide(self._candidate, lease, self._clock(), datetime.now(UTC))
        if isinstance(move, LeaseWrite):
            await self._write_lease(move)
            return Wait(leader_election.RETRY_PERIOD_SECONDS)
        if isinstance(move, Wait):
            self._log_once(logging.INFO, f"is held by {move.holder or 'nobody'}; standing by")
        return move

    async def _write_lease(self, move: LeaseWrite) -> None:
        sent = self._clock()
        lease = await (
            self._client.create(_LEASES_PATH, move.body)
            if move.create
            else self._client.merge_patch(_LEASE_PATH, move.body)
        )
        self._candidate = leader_election.with_renewal(self._candidate, sent)
        self._leadership = replace(self._leadership, version=version_of(lease))
        self._log_once(
            logging.INFO,
            f"is held by this process, {self._candidate.name}",
            f" (before: {move.previous_holder or 'nobody'})",
        )
        self.leading.set()

    def _note_predecessor(self, lease: Raw | None) -> None:
        """Record the newest version of the Lease that named the predecessor.

        It is the maximum, because a Lease restored from a backup may have an older version.
        """
        holder, leadership = leader_election.lease_holder(lease), self._leadership
        if lease is not None and holder not in ("", self._candidate.name):
            until = max(version_of(lease), leadership.predecessor_version if holder == leadership.predecessor else 0)
            self._leadership = replace(leadership, predecessor=holder, predecessor_version=until)

    def _log_once(self, level: int, message: str, details: str = "") -> None:
        if message != self._last_logged:
            log.log(level, "%s %s%s", _LEASE_TITLE, message, details)
            self._last_logged = message


def _error_text(trouble: BaseException) -> str:
    return str(trouble) or "no answer in time"
