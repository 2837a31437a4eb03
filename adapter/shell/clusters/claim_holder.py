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
from adapter.admission.cluster_claim import Claimant, ClaimWrite, Leadership
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.identity import ConnectionIdentity
from adapter.shell.kube.client import ApiError, Client, Unreachable, UnusableCluster
from adapter.shell.kube.resources import LEASES

log = logging.getLogger(__name__)

# While it cannot be asked for, or was refused: a look costs a read.
_RETRY_SECONDS = 2.0
# Until the cluster has shown who it is, and that is on record: nobody is asked, and the first write waits for this.
_IDENTITY_WAIT_SECONDS = 0.2

# Somebody else holds it, or nobody does (None); and whether that cluster may be written to from now on, after it might not.
ClaimListener = Callable[[UnusableCluster | None, bool], None]


class Election(Protocol):
    """What a claim must know of this process's part in the election."""

    leading: asyncio.Event  # it leads; it never does so again afterwards

    def leadership(self) -> Leadership:
        """Its place among those who lead."""
        ...


class ClaimHolder:
    """This process's claim to one worker cluster."""

    def __init__(
        self,
        client: Client,
        manager_id: str,
        identity: ConnectionIdentity,
        election: Election,
        listener: ClaimListener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client`: for the claim alone, so that no renewal waits behind writes that hang, and not fenced by this."""
        self.unclaimable_reason = ""  # why there is none although it would be needed, a part of a sentence
        self.blocked_reason = (
            ""  # why it cannot be asked for now, so that nothing is written there, a part of a sentence
        )
        self.client, self._identity, self._election, self._listener, self._clock = (
            client,
            identity,
            election,
            listener,
            clock,
        )
        self._manager_and_cluster = manager_id, identity.known.name
        self._lease_path = LEASES.path(names.SYSTEM_NAMESPACE, cluster_claim.lease_name(*self._manager_and_cluster))
        self._claimant = Claimant()
        self._written_lease: Raw | None = None  # as it was when this process put it last
        self._last_logged = ""
        self._held_by_other = False  # somebody else held it when it was last seen
        self._was_writable = False  # it has been held, or done without, ever since it was last told so

    def fence_reason(self) -> str:
        """Why nothing may be written there now, empty when it may."""
        if self.unclaimable_reason or cluster_claim.may_write(self._claimant, self._clock()):
            return ""
        return f"it is not sent, because this process does not hold the claim to worker cluster {self._manager_and_cluster[1]}"

    async def run(self) -> None:
        """Hold the claim from when this process leads, until cancelled."""
        await self._election.leading.wait()
        while True:
            pause = await self.acquire_or_renew()
            await asyncio.sleep(pause)

    async def acquire_or_renew(self) -> float:
        """Look at the claim once and do what follows; returns the seconds until the next look."""
        self._was_writable = self._was_writable and not self.fence_reason()
        if self._identity.fence_reason():
            return _IDENTITY_WAIT_SECONDS
        try:
            return await self._reconcile_claim()
        except ApiError as error:
            if error.status in (403, 404):
                self._go_unclaimed(error)
                return cluster_claim.RENEW_SECONDS
            self._log_once(logging.WARNING, f"is not renewed ({error})")
            self._note_blocked(error)
        except Unreachable as silence:
            self._log_once(logging.WARNING, f"is not renewed ({silence})")
            if self.blocked_reason:  # it answers no more
                self.blocked_reason = ""
                self._notify_listener(None)
        return _RETRY_SECONDS

    async def give_back(self) -> None:
        """Let the next one claim it at once, if this process holds it and the cluster answers; everything that writes there must have ended."""
        mine, self._written_lease, self._claimant = (
            self._written_lease,
            None,
            cluster_claim.without_claim(self._claimant),
        )
        if mine is None:
            return
        try:
            await self.client.merge_patch(self._lease_path, cluster_claim.release_patch(mine, datetime.now(UTC)))
        except (ApiError, Unreachable) as trouble:
            self._log_once(logging.WARNING, f"is not given back ({trouble}): it stands there until it has run out")
        else:
            self._log_once(logging.INFO, "is given back")

    async def _reconcile_claim(self) -> float:
        found = await self.client.find(self._lease_path)
        self._claimant = cluster_claim.with_observation(self._claimant, found, self._clock())
        taken_from = self._identity.known.claim_taken_from
        move = cluster_claim.decide(
            self._claimant,
            self._election.leadership(),
            self._manager_and_cluster,
            found,
            taken_from,
            self._clock(),
            datetime.now(UTC),
        )
        if isinstance(move, ClaimWrite):
            await self._write_claim(move)
            return cluster_claim.requeue_delay(self._claimant, self._clock())
        held, self._claimant = (
            cluster_claim.may_write(self._claimant, self._clock()),
            cluster_claim.without_claim(self._claimant),
        )
        self._written_lease = None
        self._log_once(
            logging.ERROR if held else logging.WARNING, f"is held by {move.holder}; nothing is written there"
        )
        self._record_holder(UnusableCluster(names.ConditionReason.CLAIM_CONFLICT, move.message))
        return cluster_claim.RENEW_SECONDS / 2

    async def _write_claim(self, move: ClaimWrite) -> None:
        sent = self._clock()
        self._claimant = cluster_claim.with_request(self._claimant, move, sent)
        if move.create:
            self._written_lease = await self.client.create(LEASES.path(names.SYSTEM_NAMESPACE), move.body)
        else:
            self._written_lease = await self._renew_claim(move.body)
        self._was_writable = (
            self._was_writable and not self.fence_reason()
        )  # the one before may have run out while this was asked for
        self._claimant = cluster_claim.with_grant(self._claimant, sent)
        self._log_once(logging.INFO, "is held by this process")
        self._record_holder(None)

    async def _renew_claim(self, body: Raw) -> Raw:
        try:
            return await self.client.merge_patch(self._lease_path, body)
        except ApiError as error:
            if error.not_found:  # else it would pass for a cluster in which there can be none
                raise Unreachable("somebody has deleted it meanwhile") from None
            raise

    def _record_holder(self, trouble: UnusableCluster | None) -> None:
        self.unclaimable_reason, self.blocked_reason, self._held_by_other = "", "", trouble is not None
        self._notify_listener(trouble)

    def _go_unclaimed(self, error: ApiError) -> None:
        """Go on without: nobody else can be kept away, and nobody is known to be there. Who saw somebody there has no such right: an
        API server that has just started refuses for a moment what it allows."""
        if self._held_by_other:
            self._log_once(logging.WARNING, f"is held by another one, as far as can be read ({error})")
            return
        self.blocked_reason = ""
        self.unclaimable_reason = (
            f"no claim can be held there ({error.message or error.reason}), so a clone of this manager would not be kept away; apply "
            "kustomize/overlays/worker there, and bind its Role to the account if that is another one"
        )
        self._log_once(logging.WARNING, self.unclaimable_reason)
        self._notify_listener(None)

    def _note_blocked(self, error: ApiError) -> None:
        """Say why nothing is written there although it is seen, where that is not said already. By the status alone: a message that is
        another one each time would be news each time."""
        if not error.is_transient or self._held_by_other or not self.fence_reason():
            return
        busy = ", too many requests," if error.status == 429 else ""
        self.blocked_reason = (
            f"nothing is written there, because its API server answers {error.status}{busy} when it is asked for the claim (Lease "
            f"{cluster_claim.lease_name(*self._manager_and_cluster)} in {names.SYSTEM_NAMESPACE}); it is asked again every {_RETRY_SECONDS:.0f} s, and if that "
            "lasts, see what keeps it busy"
        )
        self._notify_listener(None)

    def _notify_listener(self, trouble: UnusableCluster | None) -> None:
        before, self._was_writable = self._was_writable, not self.fence_reason()
        self._listener(trouble, self._was_writable and not before)

    def _log_once(self, level: int, message: str) -> None:
        if message != self._last_logged:
            log.log(level, "claim to worker cluster %s: it %s", self._manager_and_cluster[1], message)
            self._last_logged = message
