"""Why can a gang's workers not be made in any worker cluster: never, or not before somebody makes what they refer to?

It brings together the job, its Workload, its policy, and what `sources` has read of its Secrets and ConfigMaps, none of which
it reads itself; the sentences are admission's. Who is refused, and how, is for gang/lifecycle.py.
"""

from adapter import names
from adapter.admission import job_validation
from adapter.admission.policy import ResolvedPolicy
from adapter.objects.rayjob import UNKNOWN_JOB, JobObject
from adapter.objects.workload import Workload
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.source_objects import SourceObjects


class JobProblems:
    """Says why jobs cannot run remotely."""

    def __init__(self, manager: ManagerCache, policies: PolicyObserver, sources: SourceObjects) -> None:
        self._manager, self._policies, self._sources = manager, policies, sources

    def rejection_reason(self, workload: Workload, check: str, chosen: ResolvedPolicy | None) -> str:
        """Why a job can never run remotely, empty when it can."""
        known = workload.job and workload.job.kind in names.RAY_KINDS
        job = self._manager.job_object(workload.job) if workload.job and known else UNKNOWN_JOB
        if found := self.rejection_of_job(job, workload, check, chosen):
            return found
        return job_validation.sources_rejection(
            workload, self._sources.uncopyable_reason(workload, self._policies.remote_podsets(workload, check))
        )

    def rejection_of_job(
        self, job: JobObject, workload: Workload, check: str, chosen: ResolvedPolicy | None, *, submitted: bool = True
    ) -> str:
        """The same for a Workload whose RayJob or RayCluster is `job`."""
        podsets, clusters = self._policies.remote_podsets(workload, check), self._policies.clusters_of(chosen)
        # A policy is read anew when a WorkerCluster changes, so these are not among the facts: each Workload would keep those of its
        # last look, of every cluster.
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
        """What keeps the workers of such a job from being made beside that, a sentence each."""
        podsets, clusters = self._policies.remote_podsets(workload, check), self._policies.clusters_of(chosen)
        return job_validation.further_problems(workload, job, podsets, chosen, clusters)

    def missing_objects(self, workload: Workload, check: str) -> str:
        """Which Secret or ConfigMap its workers need and the manager does not have, empty when it has all."""
        return job_validation.missing_sources_message(
            workload, self._sources.missing_objects(workload, self._policies.remote_podsets(workload, check))
        )
