"""Plans an unsubmitted job from the live stores, by the code of real plans, and records nothing.

It does not check whether the manager's own Kueue has quota for the job.
"""

import logging
import traceback
from datetime import datetime
from typing import Any

from adapter import names
from adapter.admission.policy import ResolvedPolicy
from adapter.objects import job_manifest, move_from
from adapter.objects.job_manifest import InvalidJob, JobManifest
from adapter.objects.queues import ClusterQueue
from adapter.objects.unstructured import UNREADABLE, Raw, key_of, printable
from adapter.objects.workload import Workload, parse_workload
from adapter.planning import plan_document
from adapter.planning.plan_document import PlanJson
from adapter.planning.plan_request import filter_reason
from adapter.planning.rounds import PlanResult
from adapter.quota import tree
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.job_problems import JobProblems
from adapter.shell.planning.plans import GangPlanner

log = logging.getLogger(__name__)


class Preview:
    def __init__(
        self,
        manager: ManagerCache,
        policies: PolicyObserver,
        job_problems: JobProblems,
        planner: GangPlanner,
    ) -> None:
        self._manager, self._policies, self._job_problems, self._planner = (
            manager,
            policies,
            job_problems,
            planner,
        )

    async def preview_plan(
        self, raw: object, namespace: str, now: datetime | None = None, *, of_service: bool = False
    ) -> PlanJson:
        """The plan for a RayJob or RayCluster, as of now by default; raises InvalidJob with a sentence.

        `of_service`: it is the RayCluster of a RayService, which the sentences name.
        """
        job = job_manifest.parse(raw, namespace, of_service=of_service)
        try:
            return await self._preview_job(job, now or self._manager.clock.now())
        except (*UNREADABLE, RecursionError) as error:
            if isinstance(error, InvalidJob):
                raise
            # The readers assume pod templates that an API server has validated, but none has validated these. In case
            # of a bug of ours, the log shows the place; it omits the error's text, which may quote the private job.
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            log.warning("%s cannot be read: %s in %s:%d", job, type(error).__name__, frame.f_code.co_filename, line)
            raise InvalidJob(
                f"{job}: a pod template in it cannot be read ({type(error).__name__}); "
                "`kubectl apply --dry-run=server` reports what is wrong with it."
            ) from None

    async def _preview_job(self, job: JobManifest, now: datetime) -> PlanJson:
        if incomplete := self._manager.namespace_shares.reason(job.namespace):
            raise InvalidJob(
                f"{job}: in the manager cluster, namespace {job.namespace} {incomplete.text}. Until then no job of "
                "it is placed."
            )
        queue, cluster_queue = self._queue_of(job)
        priority = job_manifest.observed_priority(job.priority_class, self._manager.workloads)
        checks, flavors = cluster_queue.checks, cluster_queue.flavors
        workload = parse_workload(job_manifest.build_workload(job, queue, checks, flavors, priority or 0, now))
        check = self._policies.check_of(workload)
        if not check:
            raise InvalidJob(
                f"{job}: ClusterQueue {cluster_queue.name} of LocalQueue {queue} has no AdmissionCheck of "
                f"{names.CONTROLLER_NAME}, so its jobs run in the manager cluster; name a queue that has one."
            )
        head = _document_head(job, queue, cluster_queue, check, self._policies.policy_name(check))
        policy, problem = self._policies.policy_of(check)
        if reason := self._rejection_reason(job, workload, check, policy):
            return plan_document.rejected_document(
                head, reason, self._job_problems.other_problems(job.job, workload, check, policy)
            )
        reason = problem or self._stop_reason(job, workload, queue)
        if reason or policy is None:
            return plan_document.rejected_document(head, reason)
        if not self._policies.remote_podsets(workload, check):
            return plan_document.no_workers_document(head)
        result = await self._planner.plan_gang(workload, check, policy, (), now, unsubmitted=job.job)
        warnings = self._job_problems.portability_warnings(job.job, workload, check, policy)
        notes = [
            *_plan_notes(job, cluster_queue, priority),
            *_relay_notes(result),
            *_price_notes(result),
            *(f"{job}: {text}." for text in (*warnings, *filter(None, [self._ignored_part(job)]))),
        ]
        return {**self._plan_document(head, result), "priority": workload.priority, "notes": notes}

    def _ignored_part(self, job: JobManifest) -> str:
        """What is ignored of the clusters that the job names to leave, a fragment."""
        worker_clusters = {key_of(raw)[1] for raw in self._manager.worker_clusters}
        return move_from.ignored_part(job.job.move_from, worker_clusters)

    def _plan_document(self, head: Raw, result: PlanResult) -> PlanJson:
        return plan_document.planned_document(
            head, result.request, result.candidates, result.plan, extra_sentence=result.hold_note
        )

    def _rejection_reason(self, job: JobManifest, workload: Workload, check: str, chosen: ResolvedPolicy | None) -> str:
        return self._job_problems.rejection_of_job(job.job, workload, check, chosen, submitted=False)

    def _queue_of(self, job: JobManifest) -> tuple[str, ClusterQueue]:
        name = job.queue or names.DEFAULT_QUEUE
        if local_queue := self._manager.local_queues.get((job.namespace, name)):
            cluster_queue = self._manager.cluster_queue_of((job.namespace, name))
            if not cluster_queue.name:
                target = tree.local_queue_target(local_queue)[0]
                raise InvalidJob(
                    f"{job}: LocalQueue {name} leads to ClusterQueue {target}, which does not exist; "
                    "name another queue."
                )
            return name, cluster_queue
        if not job.queue:
            raise InvalidJob(
                f"{job}: metadata.labels has no {names.QUEUE_LABEL}; name a LocalQueue of namespace {job.namespace}."
            )
        queue_names = sorted(
            key_of(queue)[1] for queue in self._manager.local_queues if key_of(queue)[0] == job.namespace
        )
        queues_text = f"it has {', '.join(queue_names)}" if queue_names else "it has none"
        raise InvalidJob(
            f"{job}: namespace {job.namespace} has no LocalQueue {printable(name)}, {queues_text}; "
            f"name one in metadata.labels {names.QUEUE_LABEL}."
        )

    def _stop_reason(self, job: JobManifest, workload: Workload, queue: str) -> str:
        reason = tree.local_queue_target(self._manager.local_queues.get((job.namespace, queue)) or {})[1]
        stopped = f"In the manager cluster, {reason}." if reason else ""
        return self._policies.dispatch_problem(workload, self._manager.clock.now()) or stopped


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


def _relay_notes(result: PlanResult) -> list[str]:
    """What does not work between the workers of a plan. In a relayed network, those of flat clusters use it, too."""
    if not result.request.relayed or len({share.cluster for share in result.plan.shares}) < 2:
        return []
    return [
        "The policy has a cluster with the network mode Relay. Workers of different clusters reach each other through "
        "the relay, which carries Ray's own connections only: a program whose workers open others (torch.distributed, "
        "NCCL, Gloo) needs a policy with gang: SameCluster."
    ]


def _price_notes(result: PlanResult) -> list[str]:
    """Which clusters are asked last because they have no price."""
    if result.request.strategy != "Cheapest":
        return []
    usable = [candidate for candidate in result.candidates if not filter_reason(result.request, candidate)]
    unpriced = [candidate.name for candidate in usable if not candidate.prices]
    if not unpriced:
        return []
    if len(unpriced) == len(usable):
        return ["No cluster has spec.pricePerHour in its WorkerCluster, so the policy's order decides."]
    return [f"Asked last, without spec.pricePerHour in the WorkerCluster: {', '.join(unpriced)}."]


def _plan_notes(job: JobManifest, cluster_queue: ClusterQueue, priority: int | None) -> list[str]:
    notes = []
    if pending := cluster_queue.pending:
        noun = "job waits" if pending == 1 else "jobs wait"
        notes.append(f"{pending} {noun} for the manager's own quota in ClusterQueue {cluster_queue.name}.")
    if job.priority_class and priority is None:
        notes.append(
            f"No job of WorkloadPriorityClass {printable(job.priority_class)} is known yet, "
            "so its priority is taken for 0."
        )
    return notes
