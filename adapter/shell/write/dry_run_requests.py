"""How is a worker cluster asked what a copy would be there: a create that stops before its last step, within a time?

Whatever comes of it is noted, also that nothing came: a webhook that hangs holds up the gangs that it is to be asked for, for
this long and no longer, and nobody else. Nothing is decided here; what the answer says is read in rewrite/dry_run_pod.py.
"""

import asyncio
from collections import defaultdict

from adapter.actions import TryCopy
from adapter.objects.unstructured import key_of
from adapter.rewrite import dry_run_pod
from adapter.rewrite.dry_run_pod import Tried
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.dry_run_answers import Trials

# From taking a place in the line to the answer. Webhooks answer in milliseconds, and no gang shall wait noticeably longer for one that
# does not: Kubernetes itself would wait for ten seconds.
SECONDS = 2.0
# In flight to one cluster: a small part of what a client sends in parallel, so that those who make pods get their turn beside.
AT_ONCE = 4


class Trier:
    """Asks, and remembers what was said."""

    def __init__(self, fleet: Fleet, trials: Trials) -> None:
        self._fleet, self._trials = fleet, trials
        self._lines: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))  # by cluster

    async def ask(self, action: TryCopy) -> None:
        """Have a cluster say what it makes of a copy, unless it has just said so of another job's."""
        cluster, pair = action.target.cluster, (action.target.cluster, action.podset.name)
        client = self._fleet.connected(cluster).client
        under = self._trials.under(cluster, action.work.namespace)
        tried = Tried(unknown=f"no answer within {SECONDS:.0f}s")
        try:
            async with asyncio.timeout(SECONDS), self._lines[cluster]:
                if self._trials.known(action.work, [pair]):
                    return
                namespace, _ = key_of(action.body)
                under = self._trials.under(cluster, namespace)  # before: what changes meanwhile may be unheard of there
                pod = await client.try_to_create(resources.PODS.path(namespace), action.body)
                tried = dry_run_pod.taken(pod, action.podset.template, action.target)
        except ApiError as error:
            tried = dry_run_pod.untaken(key_of(action.body)[1], error.status, error.message)
        except Unreachable as error:
            tried = Tried(unknown=str(error))
        except TimeoutError:
            pass
        self._trials.note(cluster, action.work, action.podset, tried, under)
