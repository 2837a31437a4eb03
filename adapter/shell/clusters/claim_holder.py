"""Is one worker cluster this process's to write to? Holds the claim there while this process leads, and answers before each write.

What the claim says, and who may take it, is `admission.cluster_claim`'s. Where the account has no right to it, as one that was made before
there were claims, work goes on without one and says so: an upgrade of the manager must not stop what its jobs do. A process that
takes part in no election claims nothing: whoever starts it so says that nobody else runs.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from adapter import names
from adapter.admission import cluster_claim
from adapter.admission.cluster_claim import Claimant, Leadership, Put
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.identity import Identity
from adapter.shell.kube.client import ApiError, Client, Unreachable, Unusable
from adapter.shell.kube.resources import LEASES

log = logging.getLogger(__name__)

# While it cannot be asked for, or was refused: a look costs a read.
_RETRY_SECONDS = 2.0
# Until the cluster has shown who it is, and that is on record: nobody is asked, and the first write waits for this.
_SOON_SECONDS = 0.2

# Somebody else holds it, or nobody does (None); and whether that cluster may be written to from now on, after it might not.
Tell = Callable[[Unusable | None, bool], None]


class Election(Protocol):
    """What a claim must know of this process's part in the election."""

    held: asyncio.Event  # it leads; it never does so again afterwards

    def leadership(self) -> Leadership:
        """Its place among those who lead."""
        ...


class Claim:
    """This process's claim to one worker cluster."""

    def __init__(
        self,
        client: Client,
        manager_id: str,
        identity: Identity,
        election: Election,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client`: for the claim alone, so that no renewal waits behind writes that hang, and not fenced by this."""
        self.lack = ""  # why there is none although it would be needed, a part of a sentence
        self.hindrance = ""  # why it cannot be asked for now, so that nothing is written there, a part of a sentence
        self.client, self._identity, self._election, self._tell, self._now = client, identity, election, tell, clock
        self._which = manager_id, identity.known.name
        self._path = LEASES.path(names.SYSTEM_NAMESPACE, cluster_claim.name(*self._which))
        self._me = Claimant()
        self._mine: Raw | None = None  # as it was when this process put it last
        self._said = ""
        self._others = False  # somebody else held it when it was last seen
        self._open = False  # it has been held, or done without, ever since it was last told so

    def fence(self) -> str:
        """Why nothing may be written there now, empty when it may."""
        if self.lack or cluster_claim.may_write(self._me, self._now()):
            return ""
        return f"it is not sent, because this process does not hold the claim to worker cluster {self._which[1]}"

    async def run(self) -> None:
        """Hold the claim from when this process leads, until cancelled."""
        await self._election.held.wait()
        while True:
            pause = await self.attempt()
            await asyncio.sleep(pause)

    async def attempt(self) -> float:
        """Look at the claim once and do what follows; returns the seconds until the next look."""
        self._open = self._open and not self.fence()
        if self._identity.fence():
            return _SOON_SECONDS
        try:
            return await self._look()
        except ApiError as error:
            if error.status in (403, 404):
                self._without(error)
                return cluster_claim.RENEW_SECONDS
            self._log(logging.WARNING, f"is not renewed ({error})")
            self._hindered(error)
        except Unreachable as silence:
            self._log(logging.WARNING, f"is not renewed ({silence})")
            if self.hindrance:  # it answers no more
                self.hindrance = ""
                self._told(None)
        return _RETRY_SECONDS

    async def give_back(self) -> None:
        """Let the next one claim it at once, if this process holds it and the cluster answers; everything that writes there must have ended."""
        mine, self._mine, self._me = self._mine, None, cluster_claim.lost(self._me)
        if mine is None:
            return
        try:
            await self.client.merge(self._path, cluster_claim.giving_back(mine, datetime.now(UTC)))
        except (ApiError, Unreachable) as trouble:
            self._log(logging.WARNING, f"is not given back ({trouble}): it stands there until it has run out")
        else:
            self._log(logging.INFO, "is given back")

    async def _look(self) -> float:
        found = await self.client.find(self._path)
        self._me = cluster_claim.saw(self._me, found, self._now())
        taken_from = self._identity.known.taken_from
        move = cluster_claim.decide(
            self._me, self._election.leadership(), self._which, found, taken_from, self._now(), datetime.now(UTC)
        )
        if isinstance(move, Put):
            await self._put(move)
            return cluster_claim.next_look(self._me, self._now())
        held, self._me = cluster_claim.may_write(self._me, self._now()), cluster_claim.lost(self._me)
        self._mine = None
        self._log(logging.ERROR if held else logging.WARNING, f"is held by {move.holder}; nothing is written there")
        self._with(Unusable(names.HELD_BY_ANOTHER, move.why))
        return cluster_claim.RENEW_SECONDS / 2

    async def _put(self, move: Put) -> None:
        sent = self._now()
        self._me = cluster_claim.asked(self._me, move, sent)
        if move.create:
            self._mine = await self.client.create(LEASES.path(names.SYSTEM_NAMESPACE), move.body)
        else:
            self._mine = await self._renew(move.body)
        self._open = self._open and not self.fence()  # the one before may have run out while this was asked for
        self._me = cluster_claim.granted(self._me, sent)
        self._log(logging.INFO, "is held by this process")
        self._with(None)

    async def _renew(self, body: Raw) -> Raw:
        try:
            return await self.client.merge(self._path, body)
        except ApiError as error:
            if error.missing:  # else it would pass for a cluster in which there can be none
                raise Unreachable("somebody has deleted it meanwhile") from None
            raise

    def _with(self, trouble: Unusable | None) -> None:
        self.lack, self.hindrance, self._others = "", "", trouble is not None
        self._told(trouble)

    def _without(self, error: ApiError) -> None:
        """Go on without: nobody else can be kept away, and nobody is known to be there. Who saw somebody there has no such right: an
        API server that has just started refuses for a moment what it allows."""
        if self._others:
            self._log(logging.WARNING, f"is held by another one, as far as can be read ({error})")
            return
        self.hindrance = ""
        self.lack = (
            f"no claim can be held there ({error.message or error.reason}), so a clone of this manager would not be kept away; apply "
            "kustomize/overlays/worker there, and bind its Role to the account if that is another one"
        )
        self._log(logging.WARNING, self.lack)
        self._told(None)

    def _hindered(self, error: ApiError) -> None:
        """Say why nothing is written there although it is seen, where that is not said already. By the status alone: a message that is
        another one each time would be news each time."""
        if not error.passing or self._others or not self.fence():
            return
        busy = ", too many requests," if error.status == 429 else ""
        self.hindrance = (
            f"nothing is written there, because its API server answers {error.status}{busy} when it is asked for the claim (Lease "
            f"{cluster_claim.name(*self._which)} in {names.SYSTEM_NAMESPACE}); it is asked again every {_RETRY_SECONDS:.0f} s, and if that "
            "lasts, see what keeps it busy"
        )
        self._told(None)

    def _told(self, trouble: Unusable | None) -> None:
        before, self._open = self._open, not self.fence()
        self._tell(trouble, self._open and not before)

    def _log(self, level: int, what: str) -> None:
        if what != self._said:
            log.log(level, "claim to worker cluster %s: it %s", self._which[1], what)
            self._said = what
