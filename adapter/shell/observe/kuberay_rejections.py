"""Reads whether KubeRay rejects a job: from the status of a RayJob, or from the events about its RayCluster."""

from adapter import names
from adapter.admission import kuberay_validation
from adapter.admission.kuberay_validation import KubeRayRejection
from adapter.objects import kuberay_events
from adapter.objects.kuberay_events import VALIDATION_FAILED
from adapter.objects.rayjob import JobObject
from adapter.objects.unstructured import Raw, controller_uid, key_of, printable, uid_of
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Job
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.transient_state import TransientState


class KubeRayRejections:
    def __init__(self, manager: ManagerCache, transient: TransientState) -> None:
        self._manager, self._transient = manager, transient

    def rejection_of(self, job: Job, *, is_placed: bool) -> KubeRayRejection | None:
        """KubeRay's rejection of a job, or of a RayJob's RayCluster; `is_placed`: our check is Ready."""
        if job.kind not in names.RAY_KINDS:
            return None
        known = self._manager.job_object(job)
        if known.uid != job.uid:
            return None
        if known.status.deployment_status == VALIDATION_FAILED:
            message = printable(known.status.message, kuberay_events.MAX_MESSAGE)
            return KubeRayRejection(known.status.reason or VALIDATION_FAILED, message, is_final=True)
        ray_cluster = self._ray_cluster_of(job, known)
        return self._rejection_by_event(ray_cluster, is_placed=is_placed) if ray_cluster else None

    def has_changed(self, job: Job | None) -> bool:
        """Whether a waiting RayCluster began or ceased to be rejected since the last call."""
        if job is None or job.kind != "RayCluster":
            return False
        return self._transient.note_rejected(job.uid, is_rejected=self.rejection_of(job, is_placed=False) is not None)

    def _ray_cluster_of(self, job: Job, known: JobObject) -> Raw | None:
        """The job's RayCluster while it has no head: one whose head lives was accepted, and keeps its pods."""
        name = known.status.ray_cluster if job.kind == "RayJob" else job.name
        raw = self._manager.ray_clusters.get((job.namespace, name))
        if raw is None or job.uid not in (uid_of(raw), controller_uid(raw)) or self._has_head(raw):
            return None
        return raw

    def _has_head(self, ray_cluster: Raw) -> bool:
        heads = self._manager.heads.by_index("/".join(key_of(ray_cluster)))
        return any(controller_uid(head) == uid_of(ray_cluster) and not is_deleting(head) for head in heads)

    def _rejection_by_event(self, ray_cluster: Raw, *, is_placed: bool) -> KubeRayRejection | None:
        uid = uid_of(ray_cluster)
        event = kuberay_events.newest_rejection(self._manager.kuberay_events_of(ray_cluster))
        if event is None:
            return None
        revision = kuberay_events.read_revision(ray_cluster)
        note, now = self._transient.note_validation(uid, revision, event)
        if not kuberay_validation.is_rejected(revision, event, note, now, is_placed=is_placed):
            return None
        return KubeRayRejection(event.reason, event.message, is_final=False)
