"""Why can a gang's workers not be made in any worker cluster: never, or not before somebody makes what they refer to?

It brings together the job, its Workload, its policy, and what `sources` has read of its Secrets and ConfigMaps, none of which
it reads itself; the sentences are admission's. Who is refused, and how, is for gang/lifecycle.py.
"""

from adapter import names
from adapter.admission import job_validation
from adapter.admission.policy import Chosen
from adapter.objects.rayjob import UNKNOWN_JOB, JobObject
from adapter.objects.workload import Workload
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.source_objects import Sources


class Refusals:
    """Says why jobs cannot run remotely."""

    def __init__(self, manager: Manager, policies: Policies, sources: Sources) -> None:
        self._manager, self._policies, self._sources = manager, policies, sources

    def refusal(self, work: Workload, check: str, chosen: Chosen | None) -> str:
        """Why a job can never run remotely, empty when it can."""
        known = work.job and work.job.kind in names.RAY_KINDS
        job = self._manager.job(work.job) if work.job and known else UNKNOWN_JOB
        if found := self.refusal_of(job, work, check, chosen):
            return found
        return job_validation.of_sources(work, self._sources.refusal(work, self._policies.remote_podsets(work, check)))

    def refusal_of(self, job: JobObject, work: Workload, check: str, chosen: Chosen | None) -> str:
        """The same for a Workload whose RayJob or RayCluster is `job`, whether or not it is submitted."""
        podsets, clusters = self._policies.remote_podsets(work, check), self._policies.clusters(chosen)
        # A policy is read anew when a WorkerCluster changes, so these are not among the facts: each Workload would keep those of its
        # last look, of every cluster.
        facts = (job, work, chosen, *podsets)
        return self._manager.beside(work).of(
            (Refusals, check),
            facts,
            lambda: job_validation.of_workload(work, job, check, podsets, chosen, clusters),
        )

    def others(self, job: JobObject, work: Workload, check: str, chosen: Chosen | None) -> list[str]:
        """What keeps the workers of such a job from being made beside that, a sentence each."""
        podsets, clusters = self._policies.remote_podsets(work, check), self._policies.clusters(chosen)
        return job_validation.others(work, job, podsets, chosen, clusters)

    def absent(self, work: Workload, check: str) -> str:
        """Which Secret or ConfigMap its workers need and the manager does not have, empty when it has all."""
        return job_validation.not_yet(work, self._sources.absent(work, self._policies.remote_podsets(work, check)))
