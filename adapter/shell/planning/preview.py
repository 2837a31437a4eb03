"""What would be planned for a job that is not submitted yet? Answered from the live stores, by the code of real plans.

Nothing is written, and nothing is remembered: the next real plan is the same whether or not somebody asked. Only what a
plan depends on is looked at; whether the manager's own Kueue has quota for the job is not.
"""

import logging
import traceback
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.admission.job_validation import AGAIN
from adapter.admission.policy import Chosen
from adapter.objects import rayjob
from adapter.objects.queues import ClusterQueue
from adapter.objects.rayjob import Asked, Unusable
from adapter.objects.unstructured import UNREADABLE, Raw, key_of, quoted
from adapter.objects.workload import Workload, workload
from adapter.planning import plan_document
from adapter.planning.plan_document import Answer
from adapter.quota import tree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.job_problems import Refusals
from adapter.shell.planning.plans import Planning

log = logging.getLogger(__name__)


class Preview:
    """Answers for jobs that their users hold in their hands."""

    def __init__(
        self, manager: Manager, fleet: Fleet, policies: Policies, refusals: Refusals, planning: Planning
    ) -> None:
        self._manager, self._fleet, self._policies, self._refusals, self._planning = (
            manager,
            fleet,
            policies,
            refusals,
            planning,
        )

    async def answer(self, raw: object, namespace: str, now: datetime) -> Answer:
        """The plan for a RayJob or RayCluster as of now; raises Unusable with a sentence when there is none to make."""
        asked = rayjob.read(raw, namespace)
        try:
            return await self._answer(asked, now)
        except (*UNREADABLE, RecursionError) as error:
            if isinstance(error, Unusable):
                raise
            # No API server has checked the pod templates, and the planner's readers take them for checked. Should it be a
            # fault of ours instead, the place tells; the error's text may quote the job, which is nobody else's business.
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            log.warning("%s cannot be read: %s in %s:%d", asked, type(error).__name__, frame.f_code.co_filename, line)
            raise Unusable(
                f"{asked}: a pod template in it cannot be read ({type(error).__name__}); "
                "`kubectl apply --dry-run=server` says what is wrong with it."
            ) from None

    async def _answer(self, asked: Asked, now: datetime) -> Answer:
        queue, cluster_queue = self._queue(asked)
        priority = rayjob.known_priority(asked.priority_class, self._manager.workloads)
        checks, flavors = cluster_queue.checks, cluster_queue.flavors
        work = workload(rayjob.workload(asked, queue, checks, flavors, priority or 0, now))
        check = self._policies.check_of(work)
        if not check:
            raise Unusable(
                f"{asked}: ClusterQueue {cluster_queue.name} of LocalQueue {queue} has no AdmissionCheck of "
                f"{names.CONTROLLER_NAME}, so its jobs run in the manager cluster; name a queue that has one."
            )
        about = _about(asked, queue, cluster_queue, check, self._policies.policy_name(check))
        chosen, problem = self._policies.policy(check)
        if why := self._refusal(asked, work, check, chosen):
            return plan_document.refused(about, why, self._refusals.others(asked.job, work, check, chosen))
        why = problem or self._stopped(asked, work, queue)
        if why or chosen is None:
            return plan_document.refused(about, why)
        if not self._policies.remote_podsets(work, check):
            return plan_document.local(about)
        made = await self._planned(about, work, check, chosen, now)
        return {**made, "priority": work.priority, "notes": _notes(asked, cluster_queue, priority)}

    async def _planned(self, about: Raw, work: Workload, check: str, chosen: Chosen, now: datetime) -> Answer:
        found = await self._planning.plan(work, check, chosen, (), now)
        prices = {name: member.spec.price_per_hour for name, member in self._fleet.members().items()}
        return plan_document.planned(about, found.request, found.fleet, found.plan, prices, more=found.more)

    def _refusal(self, asked: Asked, work: Workload, check: str, chosen: Chosen | None) -> str:
        """Why the job itself can never run remotely; it is not submitted, so nobody need delete it."""
        return self._refusals.refusal_of(asked.job, work, check, chosen).removesuffix(AGAIN).rstrip()

    def _queue(self, asked: Asked) -> tuple[str, ClusterQueue]:
        """The LocalQueue that the job would wait in, and the manager's ClusterQueue behind it."""
        name = asked.queue or names.DEFAULT_QUEUE
        if found := self._manager.local_queues.get((asked.namespace, name)):
            cluster_queue = self._manager.cluster_queue((asked.namespace, name))
            if not cluster_queue.name:
                target = tree.leads_to(found)[0]
                raise Unusable(
                    f"{asked}: LocalQueue {name} leads to ClusterQueue {target}, which does not exist; name another queue."
                )
            return name, cluster_queue
        if not asked.queue:
            raise Unusable(
                f"{asked}: metadata.labels has no {names.QUEUE_LABEL}; name a LocalQueue of namespace {asked.namespace}."
            )
        there = sorted(key_of(queue)[1] for queue in self._manager.local_queues if key_of(queue)[0] == asked.namespace)
        have = f"it has {', '.join(there)}" if there else "it has none"
        raise Unusable(
            f"{asked}: namespace {asked.namespace} has no LocalQueue {quoted(name)}, {have}; name one in metadata.labels "
            f"{names.QUEUE_LABEL}."
        )

    def _stopped(self, asked: Asked, work: Workload, queue: str) -> str:
        """What stops every job of the queue now, empty when nothing does."""
        why = tree.leads_to(self._manager.local_queues.get((asked.namespace, queue)) or {})[1]
        stopped = f"In the manager cluster, {why}." if why else ""
        return self._policies.rivals(work) or self._policies.gate_problem(datetime.now(UTC)) or stopped


def _about(asked: Asked, queue: str, cluster_queue: ClusterQueue, check: str, policy: str) -> dict[str, Any]:
    return {
        "job": {"kind": asked.kind, "namespace": asked.namespace, "name": asked.name},
        "queue": queue,
        "managerClusterQueue": cluster_queue.name,
        "check": check,
        "policy": policy,
    }


def _notes(asked: Asked, cluster_queue: ClusterQueue, priority: int | None) -> list[str]:
    """What the plan does not know of, a sentence each."""
    notes = []
    if pending := cluster_queue.pending:
        noun = "job waits" if pending == 1 else "jobs wait"
        notes.append(f"{pending} {noun} for the manager's own quota in ClusterQueue {cluster_queue.name}.")
    if asked.priority_class and priority is None:
        notes.append(
            f"No job of WorkloadPriorityClass {quoted(asked.priority_class)} is known yet, so its priority is taken for 0."
        )
    return notes
