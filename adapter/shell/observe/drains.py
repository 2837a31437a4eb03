"""The worker clusters that count as draining for a gang: the fleet's, and those that its own job moves away from.

A job names the latter in an annotation. It is read from the RayJob or RayCluster of the gang's Workload. KubeRay copies
the annotations of a RayService to the RayClusters that it creates.
"""

from adapter.objects import move_from
from adapter.objects.rayjob import UNKNOWN_JOB, JobObject
from adapter.objects.unstructured import key_of
from adapter.objects.workload import Job
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache


class DrainObserver:
    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet

    def fleet_draining(self) -> frozenset[str]:
        return self._fleet.draining()

    def clusters_of(self, job: Job | None, fleet_draining: frozenset[str] | None = None) -> frozenset[str]:
        """The clusters that workers of a job's gang must leave, and that take no new ones of it.

        `fleet_draining`: those of the fleet, for a caller that asks for thousands of jobs.
        """
        draining = self._fleet.draining() if fleet_draining is None else fleet_draining
        moved_from = self.moved_from(self._known_job(job))
        return draining | moved_from if moved_from else draining

    def moved_from(self, job: JobObject) -> frozenset[str]:
        """The clusters that only this job leaves, also one that is not connected now."""
        caches, objects = self._fleet.caches(), self._manager.worker_clusters
        return frozenset(name for name in job.move_from.clusters if name in caches or objects.by_name(name))

    def moved_from_by(self, job: Job | None) -> frozenset[str]:
        return self.moved_from(self._known_job(job))

    def ignored_part(self, job: Job | None) -> str:
        """What is ignored of the job's annotation, a fragment; mostly empty."""
        named = self._known_job(job).move_from
        if not (named.clusters or named.fault):
            return ""
        return move_from.ignored_part(named, {key_of(raw)[1] for raw in self._manager.worker_clusters})

    def _known_job(self, job: Job | None) -> JobObject:
        """The job's object; an unknown one if another job has its name now."""
        known = self._manager.job_object(job) if job else UNKNOWN_JOB
        return known if job and known.uid == job.uid else UNKNOWN_JOB
