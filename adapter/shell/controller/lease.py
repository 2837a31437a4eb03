"""Who of the replicas leads? Campaigns for the Lease, renews it, and answers before each write whether it may be sent.

What a leader's process does once it may write no more is to end: a fresh start is the simplest state that is surely right.
The clock is monotonic, goes on while the process is stopped, and is read anew each time (a loop may remember its own from
before), so that whatever a process does first when it runs again, it is no write.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from adapter import leader_election, names
from adapter.admission.cluster_claim import Leadership
from adapter.leader_election import Candidate, Put, StepDown, Wait
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import LEASES
from adapter.shell.kube.store import version

log = logging.getLogger(__name__)

_COLLECTION = LEASES.path(names.SYSTEM_NAMESPACE)
_PATH = LEASES.path(names.SYSTEM_NAMESPACE, names.LEASE)
_WHICH = f"Lease {names.LEASE} in {names.SYSTEM_NAMESPACE}"


class Lost(Exception):
    """Another process may lead, so this one must end; the text says why."""


class Lease:
    """This process's claim to lead."""

    def __init__(self, client: Client, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`client`: for the Lease alone, so that no renewal waits behind writes that hang, and not fenced by this."""
        self.held = asyncio.Event()
        self.near = asyncio.Event()  # it is held, or may be soon
        self._client, self._now = client, clock
        self._me = Candidate(name)
        self._told = ""  # what was logged last: an attempt every two seconds is no news
        self._leadership = Leadership(name)

    def may_write(self) -> bool:
        """Whether a write may be sent now, by this process's own clock."""
        return leader_election.may_write(self._me, self._now())

    def leadership(self) -> Leadership:
        """This process among those who lead: who was before it, and how far the Lease was then and is now."""
        return self._leadership

    async def run(self) -> None:
        """Campaign, then lead, until cancelled; raises Lost."""
        while True:
            pause = await self._attempt()
            await asyncio.sleep(pause)

    async def give_back(self) -> None:
        """Let the next one lead at once, if this process holds the Lease; everything that writes must have ended."""
        self._me = leader_election.resigned(self._me)
        try:
            async with asyncio.timeout(leader_election.REQUEST_SECONDS):
                patch = leader_election.giving_back(self._me, await self._client.find(_PATH), datetime.now(UTC))
                if patch:
                    await self._client.merge(_PATH, patch)
                    log.info("%s is given back", _WHICH)
        except (ApiError, Unreachable, TimeoutError) as trouble:
            log.warning("%s is not given back (%s): the next leader waits until it has run out", _WHICH, _why(trouble))

    async def _attempt(self) -> float:
        """Look at the Lease once and do what follows; returns the seconds until the next look."""
        move: Wait | StepDown
        try:
            async with asyncio.timeout(leader_election.patience(self._me, self._now())):
                move = await self._look()
        except (ApiError, Unreachable, TimeoutError) as trouble:
            self._tell(logging.WARNING, f"cannot be read or written ({_why(trouble)})")
            move = leader_election.missed(self._me, self._now(), _why(trouble))
        if isinstance(move, StepDown):
            raise Lost(f"{_WHICH}: {move.why}")
        return move.seconds

    async def _look(self) -> Wait | StepDown:
        if late := leader_election.overdue(self._me, self._now()):
            return late
        lease = await self._client.find(_PATH)
        self._me = leader_election.saw(self._me, lease, self._now())
        self._heed(lease)
        if leader_election.near(self._me, lease, self._now()):
            self.near.set()
        move = leader_election.decide(self._me, lease, self._now(), datetime.now(UTC))
        if isinstance(move, Put):
            await self._put(move)
            return Wait(leader_election.RETRY_SECONDS)
        if isinstance(move, Wait):
            self._tell(logging.INFO, f"is held by {move.holder or 'nobody'}; standing by")
        return move

    async def _put(self, move: Put) -> None:
        sent = self._now()
        kept = await (
            self._client.create(_COLLECTION, move.body) if move.create else self._client.merge(_PATH, move.body)
        )
        self._me = leader_election.granted(self._me, sent)
        self._leadership = replace(self._leadership, version=version(kept))
        self._tell(logging.INFO, f"is held by this process, {self._me.name}", f" (before: {move.follows or 'nobody'})")
        self.held.set()

    def _heed(self, lease: Raw | None) -> None:
        """Remember who leads before this process does, as of the newest version that tells of it: a Lease that comes back from a backup
        tells of less."""
        before, known = leader_election.leader(lease), self._leadership
        if lease is not None and before not in ("", self._me.name):
            until = max(version(lease), known.until if before == known.before else 0)
            self._leadership = replace(known, before=before, until=until)

    def _tell(self, level: int, what: str, more: str = "") -> None:
        if what != self._told:
            log.log(level, "%s %s%s", _WHICH, what, more)
            self._told = what


def _why(trouble: BaseException) -> str:
    return str(trouble) or "no answer in time"
