"""Holds the claim to one worker cluster while this process leads, and fences each write to that cluster.

The content of the claim, and the rules for taking it, are in `admission.cluster_claim`. An account may lack the right
to it, as one from before there were claims. Then the process goes on without a claim and reports that: an upgrade of
the manager must not stop its jobs. A process without leader election claims nothing: it is started so only where no
other one runs.
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

# While the claim cannot be read, or its API server denied it; each attempt costs one read.
_RETRY_SECONDS = 2.0
# Until the cluster's identity is verified and recorded. No request is sent before, and the first write waits for this.
_IDENTITY_WAIT_SECONDS = 0.2

# Another manager holds the claim (None: none does); and whether the cluster has just become writable.
ClaimListener = Callable[[UnusableCluster | None, bool], None]


class Election(Protocol):
    """The part of leader election that a claim needs."""

    leading: asyncio.Event  # this process leads; it is set once at most

    def leadership(self) -> Leadership:
        """This leader and its predecessor."""
        ...


class ClaimHolder:
    """Holds this process's claim to one worker cluster."""

    def __init__(
        self,
        client: Client,
        manager_id: str,
        identity: ConnectionIdentity,
        election: Election,
        listener: ClaimListener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client` serves the claim alone and is not fenced by it, so that no renewal waits behind writes that hang."""
        # Why no claim can be held although one is needed, a fragment.
        self.unclaimable_reason = ""
        # Why the claim cannot be read now, so that nothing is written to the cluster, a fragment.
        self.blocked_reason = ""
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
        self._written_lease: Raw | None = None  # the Lease as this process wrote it last
        self._last_logged = ""
        self._held_by_other = False  # as of the last read
        self._was_writable = False  # writable without a break since the last notification

    def fence_reason(self) -> str:
        """Why nothing may be written to the cluster now, empty when it may."""
        if self.unclaimable_reason or cluster_claim.may_write(self._claimant, self._clock()):
            return ""
        return (
            "it is not sent, because this process does not hold the claim to worker cluster "
            f"{self._manager_and_cluster[1]}"
        )

    async def run(self) -> None:
        """Hold the claim from when this process leads, until cancelled."""
        await self._election.leading.wait()
        while True:
            pause = await self.acquire_or_renew()
            await asyncio.sleep(pause)

    async def acquire_or_renew(self) -> float:
        """Reconcile the claim once; returns the seconds until the next time."""
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
        except Unreachable as outage:
            self._log_once(logging.WARNING, f"is not renewed ({outage})")
            if self.blocked_reason:  # unreachable now, which is reported elsewhere
                self.blocked_reason = ""
                self._notify_listener(None)
        return _RETRY_SECONDS

    async def give_back(self) -> None:
        """Release the claim if this process holds it and the cluster answers. All writers to the cluster must have
        ended."""
        lease, self._written_lease, self._claimant = (
            self._written_lease,
            None,
            cluster_claim.without_claim(self._claimant),
        )
        if lease is None:
            return
        try:
            await self.client.merge_patch(self._lease_path, cluster_claim.release_patch(lease, datetime.now(UTC)))
        except (ApiError, Unreachable) as trouble:
            self._log_once(logging.WARNING, f"is not given back ({trouble}): it stands there until it has run out")
        else:
            self._log_once(logging.INFO, "is given back")

    async def _reconcile_claim(self) -> float:
        lease = await self.client.find(self._lease_path)
        self._claimant = cluster_claim.with_observation(self._claimant, lease, self._clock())
        taken_from = self._identity.known.claim_taken_from
        move = cluster_claim.decide(
            self._claimant,
            self._election.leadership(),
            self._manager_and_cluster,
            lease,
            taken_from,
            self._clock(),
            datetime.now(UTC),
        )
        if isinstance(move, ClaimWrite):
            await self._write_claim(move)
            return cluster_claim.requeue_delay(self._claimant, self._clock())
        was_held, self._claimant = (
            cluster_claim.may_write(self._claimant, self._clock()),
            cluster_claim.without_claim(self._claimant),
        )
        self._written_lease = None
        self._log_once(
            logging.ERROR if was_held else logging.WARNING, f"is held by {move.holder}; nothing is written there"
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
        # The previous claim may have expired during the request.
        self._was_writable = self._was_writable and not self.fence_reason()
        self._claimant = cluster_claim.with_grant(self._claimant, sent)
        self._log_once(logging.INFO, "is held by this process")
        self._record_holder(None)

    async def _renew_claim(self, body: Raw) -> Raw:
        try:
            return await self.client.merge_patch(self._lease_path, body)
        except ApiError as error:
            if error.not_found:  # a 404 would otherwise be taken for a cluster that can hold no claim
                raise Unreachable("somebody has deleted it meanwhile") from None
            raise

    def _record_holder(self, trouble: UnusableCluster | None) -> None:
        self.unclaimable_reason, self.blocked_reason, self._held_by_other = "", "", trouble is not None
        self._notify_listener(trouble)

    def _go_unclaimed(self, error: ApiError) -> None:
        """Go on without a claim, unless another manager was seen to hold it.

        Without a claim no other manager can be kept away, and none is known. After another one was seen the process
        does not go on: an API server that has just started briefly denies what it allows.
        """
        if self._held_by_other:
            self._log_once(logging.WARNING, f"is held by another one, as far as can be read ({error})")
            return
        self.blocked_reason = ""
        self.unclaimable_reason = (
            f"no claim can be held there ({error.message or error.reason}), so a clone of this manager would not be "
            "kept away; apply kustomize/overlays/worker there, and bind its Role to the account if that is another one"
        )
        self._log_once(logging.WARNING, self.unclaimable_reason)
        self._notify_listener(None)

    def _note_blocked(self, error: ApiError) -> None:
        """Report why nothing is written to a reachable cluster, where no other report says so.

        The text depends on the status alone: a message that differs each time would be a change each time.
        """
        if not error.is_transient or self._held_by_other or not self.fence_reason():
            return
        busy = ", too many requests," if error.status == 429 else ""
        self.blocked_reason = (
            f"nothing is written there, because its API server answers {error.status}{busy} when it is asked for the "
            f"claim (Lease {cluster_claim.lease_name(*self._manager_and_cluster)} in {names.SYSTEM_NAMESPACE}); "
            f"it is asked again every {_RETRY_SECONDS:.0f} s, and if that "
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
