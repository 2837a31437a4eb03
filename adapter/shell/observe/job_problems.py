"""States why a gang's workers cannot be created anywhere, either for good or until an object exists.

`admission` writes the sentences; gang/lifecycle.py decides which jobs are rejected.
"""

from adapter import names
from adapter.admission import job_validation
from adapter.admission.policy import ResolvedPolicy
from adapter.objects.rayjob import UNKNOWN_JOB, JobObject
from adapter.objects.workload import Workload
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.kuberay_rejections import KubeRayRejections
from adapter.shell.observe.source_objects import SourceObjects


class JobProblems:
    def __init__(
        self,
        manager: ManagerCache,
        policies: PolicyObserver,
        sources: SourceObjects,
        kuberay_rejections: KubeRayRejections,
    ) -> None:
        self._manager, self._policies, self._sources = manager, policies, sources
        self._kuberay_rejections = kuberay_rejections

    def rejection_reason(self, workload: Workload, check: str, chosen: ResolvedPolicy | None) -> str:
        """Why a job can never run remotely, or empty."""
        is_ray_kind = workload.job and workload.job.kind in names.RAY_KINDS
        job = self._manager.job_object(workload.job) if workload.job and is_ray_kind else UNKNOWN_JOB
        if reason := self.rejection_of_job(job, workload, check, chosen):
            return reason
        return job_validation.job_rejection(
            workload, self._sources.uncopyable_reason(workload, self._policies.remote_podsets(workload, check))
        )

    def rejection_of_job(
        self, job: JobObject, workload: Workload, check: str, chosen: ResolvedPolicy | None, *, submitted: bool = True
    ) -> str:
        podsets, clusters = self._policies.remote_podsets(workload, check), self._policies.clusters_of(chosen)
        # A changed WorkerCluster gives a new policy object, so clusters need not be among the facts. If they were,
        # every memo would keep all their objects.
        facts = (job, workload, chosen, *podsets)
        return self._manager.memo_of(workload).get_or_find(
            (JobProblems, check, submitted),
            facts,
            lambda: job_validation.workload_rejection(
                workload, job, check, podsets, chosen, clusters, submitted=submitted
            ),
        )

    def other_problems(
        self, job: JobObject, workload: Workload, check: str, chosen: ResolvedPolicy | None
    ) -> list[str]:
        podsets, clusters = self._policies.remote_podsets(workload, check), self._policies.clusters_of(chosen)
        return job_validation.further_problems(workload, job, podsets, chosen, clusters)

    def portability_warnings(
        self, job: JobObject, workload: Workload, check: str, chosen: ResolvedPolicy | None
    ) -> list[str]:
        """Fragments on what its workers refer to that only the manager has."""
        podsets, clusters = self._policies.remote_podsets(workload, check), self._policies.clusters_of(chosen)
        return self._manager.memo_of(workload).get_or_find(
            (job_validation.portability_warnings, check),
            (job, workload, chosen, *podsets),
            lambda: job_validation.portability_warnings(workload, job, podsets, clusters),
        )

    def portability_message(self, workload: Workload, check: str, chosen: ResolvedPolicy | None) -> str:
        job = self._manager.job_object(workload.job) if workload.job else UNKNOWN_JOB
        return job_validation.portability_message(workload, self.portability_warnings(job, workload, check, chosen))

    def kuberay_rejection(self, workload: Workload, check: str) -> str:
        """KubeRay's reason why it does not run the job, or empty."""
        is_placed = workload.checks[check].state == names.CHECK_READY
        rejection = workload.job and self._kuberay_rejections.rejection_of(workload.job, is_placed=is_placed)
        return job_validation.kuberay_message(workload, rejection) if rejection else ""

    def has_rejection_changed(self, workload: Workload) -> bool:
        """Whether KubeRay began or ceased to reject a waiting job since the last call."""
        return self._kuberay_rejections.has_changed(workload.job)

    def missing_objects(self, workload: Workload, check: str) -> str:
        return job_validation.missing_sources_message(
            workload, self._sources.missing_objects(workload, self._policies.remote_podsets(workload, check))
        )
