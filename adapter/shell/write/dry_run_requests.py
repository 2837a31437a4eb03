"""Sends dry runs and records every result, also a timeout. rewrite/dry_run_pod.py parses the answer."""

import asyncio
from collections import defaultdict

from adapter.actions import DryRunPod
from adapter.objects.unstructured import key_of
from adapter.rewrite import dry_run_pod
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.dry_run_answers import DryRunAnswers

# The timeout of a dry run, with the wait in the queue. Webhooks answer in milliseconds; no gang should wait noticeably
# longer for a webhook that hangs, for which Kubernetes waits ten seconds.
DRY_RUN_SECONDS = 2.0
# In one cluster; this number leaves most of a client's parallel requests for pod creation.
DRY_RUNS_AT_ONCE = 4


class DryRunner:
    def __init__(self, fleet: Fleet, dry_run_answers: DryRunAnswers) -> None:
        self._fleet, self._dry_run_answers = fleet, dry_run_answers
        self._semaphores: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(DRY_RUNS_AT_ONCE)
        )  # by cluster

    async def dry_run(self, action: DryRunPod) -> None:
        """Dry-run a remote pod, unless the cluster has just answered for an equal pod of another job."""
        cluster, pair = action.target.cluster, (action.target.cluster, action.podset.name)
        client = self._fleet.connected_cache(cluster).client
        circumstances = self._dry_run_answers.circumstances(cluster, action.workload.namespace)
        result = DryRunResult(unknown_reason=f"no answer within {DRY_RUN_SECONDS:.0f}s")
        try:
            async with asyncio.timeout(DRY_RUN_SECONDS), self._semaphores[cluster]:
                if self._dry_run_answers.known_answers(action.workload, [pair]):
                    return
                if self._fleet.connected_cache(cluster).spec.pods != action.target.pods:
                    return  # edited since the body was made, so the answer would count for other names
                namespace, _ = key_of(action.body)
                # Read before the request: a change during the request may not be in the answer.
                circumstances = self._dry_run_answers.circumstances(cluster, namespace)
                pod = await client.dry_run_create(resources.PODS.path(namespace), action.body)
                result = dry_run_pod.parse_response(pod, action.podset.template, action.target)
        except ApiError as error:
            result = dry_run_pod.parse_error(action.body, error.status, error.message)
        except Unreachable as error:
            result = DryRunResult(unknown_reason=str(error))
        except TimeoutError:
            pass
        self._dry_run_answers.add_answer(cluster, action.workload, action.podset, result, circumstances)
