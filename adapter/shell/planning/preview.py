"""What would be planned for a job that is not submitted yet? Answered from the live stores, by the code of real plans.

Nothing is written, and nothing is remembered: the next real plan is the same whether or not somebody asked. Only what a
plan depends on is looked at; whether the manager's own Kueue has quota for the job is not.
"""

import logging
import traceback
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.admission.policy import ResolvedPolicy
from adapter.objects import rayjob
from adapter.objects.queues import ClusterQueue
from adapter.objects.rayjob import InvalidJob, JobManifest
from adapter.objects.unstructured import UNREADABLE, Raw, key_of, printable
from adapter.objects.workload import Workload, parse_workload
from adapter.planning import plan_document
from adapter.planning.plan_document import PlanJson
from adapter.quota import tree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.planning.plans import GangPlanner

log = logging.getLogger(__name__)


class Preview:
    """Answers for jobs that their users hold in their hands."""

    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        policies: PolicyObserver,
        job_problems: JobProblems,
        planner: GangPlanner,
    ) -> None:
        self._manager, self._fleet, self._policies, self._job_problems, self._planner = (
            manager,
            fleet,
            policies,
            job_problems,
            planner,
        )

    async def preview_plan(self, raw: object, namespace: str, now: datetime) -> PlanJson:
        """The plan for a RayJob or RayCluster as of now; raises Unusable with a sentence when there is none to make."""
        asked = rayjob.parse(raw, namespace)
        try:
            return await self._preview_job(asked, now)
        except (*UNREADABLE, RecursionError) as error:
            if isinstance(error, InvalidJob):
                raise
            # No API server has checked the pod templates, and the planner's readers take them for checked. Should it be a
            # fault of ours instead, the place tells; the error's text may quote the job, which is nobody else's business.
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            log.warning("%s cannot be read: %s in %s:%d", asked, type(error).__name__, frame.f_code.co_filename, line)
            raise InvalidJob(
                f"{asked}: a pod template in it cannot be read ({type(error).__name__}); "
                "`kubectl apply --dry-run=server` says what is wrong with it."
            ) from None

    async def _preview_job(self, job: JobManifest, now: datetime) -> PlanJson:
        queue, cluster_queue = self._queue_of(job)
        priority = rayjob.observed_priority(job.priority_class, self._manager.workloads)
        checks, flavors = cluster_queue.checks, cluster_queue.flavors
        work = parse_workload(rayjob.build_workload(job, queue, checks, flavors, priority or 0, now))
        check = self._policies.check_of(work)
        if not check:
            raise InvalidJob(
                f"{job}: ClusterQueue {cluster_queue.name} of LocalQueue {queue} has no AdmissionCheck of "
                f"{names.CONTROLLER_NAME}, so its jobs run in the manager cluster; name a queue that has one."
            )
        about = _document_head(job, queue, cluster_queue, check, self._policies.policy_name(check))
        chosen, problem = self._policies.policy_of(check)
        if why := self._rejection_reason(job, work, check, chosen):
            return plan_document.rejected_document(
                about, why, self._job_problems.other_problems(job.job, work, check, chosen)
            )
        why = problem or self._stop_reason(job, work, queue)
        if why or chosen is None:
            return plan_document.rejected_document(about, why)
        if not self._policies.remote_podsets(work, check):
            return plan_document.no_workers_document(about)
        made = await self._planned_document(about, work, check, chosen, now)
        return {**made, "priority": work.priority, "notes": _plan_notes(job, cluster_queue, priority)}

    async def _planned_document(
        self, head: Raw, workload: Workload, check: str, chosen: ResolvedPolicy, now: datetime
    ) -> PlanJson:
        found = await self._planner.plan_gang(workload, check, chosen, (), now)
        prices = {name: member.spec.price_per_hour for name, member in self._fleet.caches().items()}
        return plan_document.planned_document(
            head, found.request, found.candidates, found.plan, prices, extra_sentence=found.hold_note
        )

    def _rejection_reason(self, job: JobManifest, workload: Workload, check: str, chosen: ResolvedPolicy | None) -> str:
        """Why the job itself can never run remotely."""
        return self._job_problems.rejection_of_job(job.job, workload, check, chosen, submitted=False)

    def _queue_of(self, job: JobManifest) -> tuple[str, ClusterQueue]:
        """The LocalQueue that the job would wait in, and the manager's ClusterQueue behind it."""
        name = job.queue or names.DEFAULT_QUEUE
        if found := self._manager.local_queues.get((job.namespace, name)):
            cluster_queue = self._manager.cluster_queue_of((job.namespace, name))
            if not cluster_queue.name:
                target = tree.local_queue_target(found)[0]
                raise InvalidJob(
                    f"{job}: LocalQueue {name} leads to ClusterQueue {target}, which does not exist; name another queue."
                )
            return name, cluster_queue
        if not job.queue:
            raise InvalidJob(
                f"{job}: metadata.labels has no {names.QUEUE_LABEL}; name a LocalQueue of namespace {job.namespace}."
            )
        there = sorted(key_of(queue)[1] for queue in self._manager.local_queues if key_of(queue)[0] == job.namespace)
        have = f"it has {', '.join(there)}" if there else "it has none"
        raise InvalidJob(
            f"{job}: namespace {job.namespace} has no LocalQueue {printable(name)}, {have}; name one in metadata.labels "
            f"{names.QUEUE_LABEL}."
        )

    def _stop_reason(self, job: JobManifest, workload: Workload, queue: str) -> str:
        """What stops every job of the queue now, empty when nothing does."""
        why = tree.local_queue_target(self._manager.local_queues.get((job.namespace, queue)) or {})[1]
        stopped = f"In the manager cluster, {why}." if why else ""
        return (
            self._policies.rival_checks_problem(workload) or self._policies.gate_problem(datetime.now(UTC)) or stopped
        )


def _document_head(
    job: JobManifest, queue: str, cluster_queue: ClusterQueue, check: str, policy: str
) -> dict[str, Any]:
    return {
        "job": {"kind": job.kind, "namespace": job.namespace, "name": job.name},
        "queue": queue,
        "managerClusterQueue": cluster_queue.name,
        "check": check,
        "policy": policy,
    }


def _plan_notes(job: JobManifest, cluster_queue: ClusterQueue, priority: int | None) -> list[str]:
    """What the plan does not know of, a sentence each."""
    notes = []
    if pending := cluster_queue.pending:
        noun = "job waits" if pending == 1 else "jobs wait"
        notes.append(f"{pending} {noun} for the manager's own quota in ClusterQueue {cluster_queue.name}.")
    if job.priority_class and priority is None:
        notes.append(
            f"No job of WorkloadPriorityClass {printable(job.priority_class)} is known yet, so its priority is taken for 0."
        )
    return notes
