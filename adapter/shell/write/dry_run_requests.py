"""How is a worker cluster asked what a copy would be there: a create that stops before its last step, within a time?

Whatever comes of it is noted, also that nothing came: a webhook that hangs holds up the gangs that it is to be asked for, for
this long and no longer, and nobody else. Nothing is decided here; what the answer says is read in rewrite/dry_run_pod.py.
"""

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

# From taking a place in the line to the answer. Webhooks answer in milliseconds, and no gang shall wait noticeably longer for one that
# does not: Kubernetes itself would wait for ten seconds.
DRY_RUN_SECONDS = 2.0
# In flight to one cluster: a small part of what a client sends in parallel, so that those who make pods get their turn beside.
DRY_RUNS_AT_ONCE = 4


class DryRunner:
    """Asks, and remembers what was said."""

    def __init__(self, fleet: Fleet, dry_run_answers: DryRunAnswers) -> None:
        self._fleet, self._dry_run_answers = fleet, dry_run_answers
        self._semaphores: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(DRY_RUNS_AT_ONCE)
        )  # by cluster

    async def dry_run(self, action: DryRunPod) -> None:
        """Have a cluster say what it makes of a copy, unless it has just said so of another job's."""
        cluster, pair = action.target.cluster, (action.target.cluster, action.podset.name)
        client = self._fleet.connected_cache(cluster).client
        under = self._dry_run_answers.circumstances(cluster, action.workload.namespace)
        tried = DryRunResult(unknown_reason=f"no answer within {DRY_RUN_SECONDS:.0f}s")
        try:
            async with asyncio.timeout(DRY_RUN_SECONDS), self._semaphores[cluster]:
                if self._dry_run_answers.known_answers(action.workload, [pair]):
                    return
                namespace, _ = key_of(action.body)
                under = self._dry_run_answers.circumstances(
                    cluster, namespace
                )  # before: what changes meanwhile may be unheard of there
                pod = await client.dry_run_create(resources.PODS.path(namespace), action.body)
                tried = dry_run_pod.parse_response(pod, action.podset.template, action.target)
        except ApiError as error:
            tried = dry_run_pod.parse_error(key_of(action.body)[1], error.status, error.message)
        except Unreachable as error:
            tried = DryRunResult(unknown_reason=str(error))
        except TimeoutError:
            pass
        self._dry_run_answers.add_answer(cluster, action.workload, action.podset, tried, under)
