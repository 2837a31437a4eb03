"""Sends dry runs and records every result, also a timeout. rewrite/dry_run_pod.py parses the answer.

Namespaces take turns in each cluster, so that one tenant's dry runs, which may hang, delay no other's for long.
"""

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack

from adapter.actions import DryRunPod
from adapter.objects.unstructured import key_of
from adapter.rewrite import dry_run_pod
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.http.fair_queue import FairQueue
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.dry_run_answers import DryRunAnswers

# The timeout of a dry run. Webhooks answer in milliseconds; no gang should wait noticeably longer for a webhook that
# hangs, for which Kubernetes waits ten seconds.
DRY_RUN_SECONDS = 2.0
# How long a dry run waits for its turn until its gang is decided on again. Such a wait says nothing of the pod.
TURN_SECONDS = 10.0
# In one cluster; this number leaves most of a client's parallel requests for pod creation.
DRY_RUNS_AT_ONCE = 4


class DryRunner:
    def __init__(self, fleet: Fleet, dry_run_answers: DryRunAnswers) -> None:
        self._fleet, self._dry_run_answers = fleet, dry_run_answers
        self._queues: defaultdict[str, FairQueue] = defaultdict(lambda: FairQueue(DRY_RUNS_AT_ONCE))  # by cluster

    async def dry_run(self, action: DryRunPod) -> None:
        """Dry-run a remote pod in its namespace's turn; without a turn, nothing is recorded."""
        cluster = action.target.cluster
        self._fleet.connected_cache(cluster)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await stack.enter_async_context(self._queues[cluster].turn(action.workload.namespace))
            except TimeoutError:
                return
            await self._ask(action)

    async def _ask(self, action: DryRunPod) -> None:
        """Dry-run the pod, unless the cluster has just answered for an equal pod of another job."""
        cluster, (namespace, _) = action.target.cluster, key_of(action.body)
        if self._dry_run_answers.known_answers(action.workload, [(cluster, action.podset.name)]):
            return
        # Read before the request: a change during the request may not be in the answer.
        circumstances = self._dry_run_answers.circumstances(cluster, namespace)
        try:
            cache = self._fleet.connected_cache(cluster)
            if cache.spec.pods != action.target.pods:
                return  # edited since the body was made, so the answer would count for other names
            async with asyncio.timeout(DRY_RUN_SECONDS):
                pod = await cache.client.dry_run_create(resources.PODS.path(namespace), action.body)
            result = dry_run_pod.parse_response(pod, action.podset.template, action.target)
        except ApiError as error:
            result = dry_run_pod.parse_error(action.body, error.status, error.message)
        except Unreachable as error:
            result = DryRunResult(unknown_reason=str(error))
        except TimeoutError:
            result = DryRunResult(unknown_reason=f"no answer within {DRY_RUN_SECONDS:.0f}s")
        self._dry_run_answers.add_answer(cluster, action.workload, action.podset, result, circumstances)
