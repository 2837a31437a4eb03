"""Holds the claim to one worker cluster while this process leads, and fences writes to that cluster.

`admission.cluster_claim` has the rules. If the account lacks the right to the claim for a minute, the process goes on
without a claim and reports that: an upgrade of the manager must not stop its jobs. Without leader election nothing is
claimed, because no other process runs.
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

# The pause between attempts while the claim cannot be read or written; each attempt costs one read.
_RETRY_SECONDS = 2.0
# The pause between attempts until the cluster's identity is verified and recorded; the first write waits for this.
_IDENTITY_WAIT_SECONDS = 0.2

# Gets another holder's claim, or None, and whether the cluster has just become writable.
ClaimListener = Callable[[UnusableCluster | None, bool], None]


class Election(Protocol):
    leading: asyncio.Event

    def leadership(self) -> Leadership: ...


class ClaimHolder:
    def __init__(
        self,
        client: Client,
        manager_id: str,
        identity: ConnectionIdentity,
        election: Election,
        listener: ClaimListener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client`, not fenced by the claim, is used for the claim only: no renewal waits behind hanging writes."""
        # Why no claim can be held, a fragment.
        self.unclaimable_reason = ""
        # Why the claim cannot be read and writes stop, a fragment.
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
        self._written_lease: Raw | None = None  # as this process wrote it last
        self._last_logged = ""
        self._held_by_other = False
        self._was_writable = False  # without a break since the last notification

    def fence_reason(self) -> str:
        if self.unclaimable_reason or cluster_claim.may_write(self._claimant, self._clock()):
            return ""
        return (
            "it is not sent, because this process does not hold the claim to worker cluster "
            f"{self._manager_and_cluster[1]}"
        )

    async def run(self) -> None:
        """Hold the claim from the start of leadership."""
        await self._election.leading.wait()
        while True:
            pause = await self.acquire_or_renew()
            await asyncio.sleep(pause)

    async def acquire_or_renew(self) -> float:
        """Reconcile the claim; returns the seconds until the next time."""
        self._was_writable = self._was_writable and not self.fence_reason()
        if self._identity.fence_reason():
            self._claimant = cluster_claim.with_silence(self._claimant)
            return _IDENTITY_WAIT_SECONDS
        try:
            return await self._reconcile_claim()
        except ApiError as error:
            if error.status in (403, 404):
                return self._note_denied(error)
            self._claimant = cluster_claim.without_denial(self._claimant)
            self._log_once(logging.WARNING, f"is not renewed ({error})")
            self._note_busy(error)
        except Unreachable as outage:
            self._claimant = cluster_claim.with_silence(self._claimant)
            self._log_once(logging.WARNING, f"is not renewed ({outage})")
            if self.blocked_reason:  # unreachable, which is reported elsewhere
                self.blocked_reason = ""
                self._notify_listener(None)
        return _RETRY_SECONDS

    async def give_back(self) -> None:
        """Release the claim, after all writers have ended."""
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
            cluster_claim.without_denial(cluster_claim.without_claim(self._claimant)),
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
            if error.not_found:  # a 404 would count as a cluster that can hold no claim
                raise Unreachable("another client has deleted it meanwhile") from None
            raise

    def _record_holder(self, trouble: UnusableCluster | None) -> None:
        self.unclaimable_reason, self.blocked_reason, self._held_by_other = "", "", trouble is not None
        self._notify_listener(trouble)

    def _note_denied(self, error: ApiError) -> float:
        """Go on without a claim once the denials have lasted, unless another manager was observed to hold it.

        Before that the denial may be wrong: an API server that has just started briefly denies what it allows. Returns
        the seconds until the next attempt.
        """
        if self._held_by_other:
            self._log_once(logging.WARNING, f"is held by another one, as far as can be read ({error})")
            return cluster_claim.RENEW_SECONDS
        self._claimant = cluster_claim.with_denial(self._claimant, self._clock())
        if not cluster_claim.is_denied_for_good(self._claimant):
            self._log_once(logging.WARNING, f"is denied ({error})")
            self._note_blocked(
                str(error.status),
                f"and after {cluster_claim.ABANDONED_SECONDS} s writes go on without a claim; apply "
                "kustomize/overlays/worker there if the account has no right to Leases",
            )
            return _RETRY_SECONDS
        self.blocked_reason = ""
        self.unclaimable_reason = (
            f"no claim can be held there ({error.message or error.reason}), so a clone of this manager would not be "
            "kept away; apply kustomize/overlays/worker there, and bind its Role to the account if that is another one"
        )
        self._log_once(logging.WARNING, self.unclaimable_reason)
        self._notify_listener(None)
        return cluster_claim.RENEW_SECONDS

    def _note_busy(self, error: ApiError) -> None:
        if error.is_transient and not self._held_by_other:
            busy = ", too many requests," if error.status == 429 else ""
            self._note_blocked(f"{error.status}{busy}", "and if that lasts, see what keeps it busy")

    def _note_blocked(self, answer: str, outlook: str) -> None:
        """Report why nothing is written to a reachable cluster, unless another report does.

        The text depends on the status alone: if it differed each time, each report would count as a change.
        """
        if not self.fence_reason():
            return
        self.blocked_reason = (
            f"nothing is written there, because its API server answers {answer} when it is asked for the claim "
            f"(Lease {cluster_claim.lease_name(*self._manager_and_cluster)} in {names.SYSTEM_NAMESPACE}); "
            f"it is asked again every {_RETRY_SECONDS:.0f} s, {outlook}"
        )
        self._notify_listener(None)

    def _notify_listener(self, trouble: UnusableCluster | None) -> None:
        before, self._was_writable = self._was_writable, not self.fence_reason()
        self._listener(trouble, self._was_writable and not before)

    def _log_once(self, level: int, message: str) -> None:
        if message != self._last_logged:
            log.log(level, "claim to worker cluster %s: it %s", self._manager_and_cluster[1], message)
            self._last_logged = message
