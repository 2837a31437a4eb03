"""Writes conditions and events on WorkerClusters, DispatchPolicies and AdmissionChecks, for their admins."""

import logging
from datetime import timedelta

from adapter import membership, names
from adapter.admission import condition_patches
from adapter.admission.condition_patches import STEADY_AFTER
from adapter.objects.shipped_policy import EFFECTIVE_AFTER
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.objects.workload import Job
from adapter.preflight.reachability import cut_off_reason
from adapter.shell import metrics
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import LoginReader
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError
from adapter.shell.kube.reflector import RESTORED
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.relay_observer import RelayObserver
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.write.events import REPEATED_SECONDS, EventRecorder

log = logging.getLogger(__name__)


class ConditionWriter:
    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        logins: LoginReader,
        policies: PolicyObserver,
        reservations: ReservationObserver,
        recorder: EventRecorder,
        relay: RelayObserver,
    ) -> None:
        self._manager, self._fleet, self._logins = manager, fleet, logins
        self._policies, self._reservations, self._recorder = policies, reservations, recorder
        self._relay = relay
        self._status_unsupported = False  # True once a rejected status write has been logged

    async def engage_cluster(self, name: str) -> None:
        store = self._manager.worker_clusters
        await self._fleet.reconcile(name, store.by_name(name), self._logins, store)

    async def reconcile_cluster(self, name: str) -> float | None:
        """Engage or disengage a worker cluster, and write the result onto its object.

        Returns the seconds until a requeue, if the cluster was lost and is not steady yet: then the loss may be over.
        """
        await self.engage_cluster(name)
        raw = self._manager.worker_clusters.by_name(name)
        if raw is None:
            metrics.unregister_cluster(name)
            return None
        problem = self._fleet.problems.get(name, "")
        unreachable = self._fleet.unreachable_reasons().get(name)
        if unreachable and unreachable.code is names.ReasonCode.CLUSTER_SYNCING:
            return None  # starting is not a failure
        problem = problem or (f"worker cluster {name} {unreachable.text}." if unreachable else "")
        member = self._fleet.caches().get(name)
        default_reason = (member and member.unusable_reason) or names.ConditionReason.UNREACHABLE
        reason = names.ConditionReason.BAD_CONFIGURATION if name in self._fleet.problems else default_reason
        metrics.register_cluster(name)
        metrics.CONNECTED.labels(name).set(0 if problem else 1)
        is_steady, workers = bool(member and member.is_steady), self._reservations.workers_in(name)
        # While the cluster is unreachable the count must not fall: the shares of gangs that left or ended still have to
        # be deleted there.
        if problem:
            workers = max(workers, int((raw.get("status") or {}).get("workers") or 0))
        limitation = (
            f"No new workers go there: {member.unmirrored_reason}."
            if member and member.unmirrored_reason and not problem
            else ""
        )
        uid = member.identity.uid if member and not problem else ""
        unclaimed = member.unclaimed_reason if member and not problem else ""
        now, currency = self._manager.clock.now(), self._relay.currency_in(name)
        patch = condition_patches.cluster_status(
            raw,
            problem,
            reason,
            is_steady,
            workers,
            now,
            lack=limitation,
            uid=uid,
            unclaimed=unclaimed,
            expiring=membership.expiry_notice(name, self._manager.token_expiry(raw), now),
            unguarded=bool(member and member.is_unclaimable),
            cut_off=cut_off_reason(raw),
            currency=currency,
        )
        if patch:
            path = resources.WORKER_CLUSTERS.path(name=name, sub="status")
            self._manager.worker_clusters.put(await self._manager.client.merge_patch(path, patch))
        about = _object_reference(raw, names.API_VERSION, names.WORKER_CLUSTER_KIND)
        if (
            member
            and member.restored_at
            and member.clock.now() - member.restored_at < timedelta(seconds=REPEATED_SECONDS)
        ):
            await self._recorder.record_event(
                about, names.EventReason.RESTORED, f"Worker cluster {name}: {RESTORED}.", warning=True
            )
        if problem or limitation:
            await self._recorder.record_event(
                about,
                names.ConditionReason.HEADS_NOT_MIRRORED if limitation else reason,
                problem or limitation,
                warning=True,
            )
        elif unclaimed:
            await self._recorder.record_event(
                about, names.ConditionReason.NOT_CLAIMED, f"Worker cluster {name}: {unclaimed}.", warning=True
            )
        if currency and not currency.is_current:
            await self._recorder.record_event(about, currency.reason, currency.event_message, warning=True)
        lost_since = (raw.get("status") or {}).get("lostSince")
        return STEADY_AFTER.total_seconds() if lost_since and not problem and not is_steady else None

    async def reconcile_check(self, name: str) -> float | None:
        """Write whether an AdmissionCheck can be served; return the seconds until a requeue."""
        raw = self._manager.checks.by_name(name)
        if raw is None or not self._manager.check(name).is_ours:
            return None
        policies, now = self._policies, self._manager.clock.now()
        gate_problem = policies.gate_problem(now)
        patch = condition_patches.check_condition(
            raw,
            policies.admin_objects(),
            gate_problem,
            policies.layout_problems(name),
            now,
            record_problem=policies.record_problem(),
            outdated=policies.outdated_text(),
        )
        if patch:
            await self._write_check(raw, patch)
        return EFFECTIVE_AFTER.total_seconds() if gate_problem else None

    async def _write_check(self, raw: Raw, patch: Raw) -> None:
        name = key_of(raw)[1]
        path = resources.ADMISSION_CHECKS.path(name=name, sub="status")
        self._manager.checks.put(await self._manager.client.merge_patch(path, patch))
        entry = patch["status"]["conditions"][-1]
        if entry["reason"] != names.ConditionReason.READY:
            about = _object_reference(raw, names.KUEUE_API_VERSION, "AdmissionCheck")
            await self._recorder.record_event(about, entry["reason"], entry["message"], warning=True)

    async def reconcile_policy(self, name: str) -> None:
        raw = self._manager.policies.by_name(name)
        patch = (
            condition_patches.policy_status(raw, self._policies.admin_objects(), self._manager.clock.now())
            if raw
            else None
        )
        if raw is None or patch is None:
            return
        try:
            path = resources.DISPATCH_POLICIES.path(name=name, sub="status")
            self._manager.policies.put(await self._manager.client.merge_patch(path, patch))
        except ApiError as error:
            self._note_status_rejected(raw, error)
            return
        self._status_unsupported = False
        entry = patch["status"]["conditions"][-1]
        if entry["status"] != "True":
            about = _object_reference(raw, names.API_VERSION, names.DISPATCH_POLICY_KIND)
            await self._recorder.record_event(about, entry["reason"], entry["message"], warning=True)

    def _note_status_rejected(self, raw: Raw, error: ApiError) -> None:
        """Log once that the manager's CRD or RBAC is of an earlier version, and so the status cannot be written.

        Jobs are dispatched all the same. A policy that was just deleted gives the same error, and is not logged.
        """
        if error.status not in (403, 404):
            raise error
        if not self._status_unsupported and uid_of(self._manager.policies.by_name(key_of(raw)[1]) or {}) == uid_of(raw):
            log.warning(
                "%s %s: its condition %s cannot be written (%s); apply the CRDs and rights of this version, "
                "kustomize/overlays/manager.",
                names.DISPATCH_POLICY_KIND,
                key_of(raw)[1],
                names.READY,
                error,
            )
            self._status_unsupported = True


def _object_reference(raw: Raw, api_version: str, kind: str) -> Job:
    namespace, name = key_of(raw)
    return Job(api_version, kind, namespace, name, uid_of(raw))
