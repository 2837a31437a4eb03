"""`rayspan drain`: set spec.draining of a WorkerCluster, and print the progress.

The controller moves the workers, so the verb may be stopped and started again at any time.
"""

import argparse
import asyncio

from adapter import names
from adapter.cli import common, cordon
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.cli.remaining_watch import RemainingWatch
from adapter.cli.terminal import print_line, print_note
from adapter.diagnosis.job_document import Document
from adapter.gang.drain_order import RemainingJob, drain_document, remaining_jobs, remaining_workers_text
from adapter.objects.unstructured import Key, Raw, condition, meta, uid_of
from adapter.shell.kube.client import Client
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import PLACEMENTS, PODS, WORKER_CLUSTERS

POLLS_BEFORE_HINT = 3  # a running controller observes the drain in less than one poll

_DRAIN_NOT_OBSERVED = (
    f"the controller has not observed the drain yet: see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`"
)


def main(args: argparse.Namespace) -> int:
    """Start the drain, watch it, and return the exit code."""
    name = args.cluster
    code = cordon.run_reporting_errors(name, _start_drain(args))
    if code != EXIT_OK or args.wait == "false":
        return code
    try:
        return cordon.run_reporting_errors(name, _watch_drain(args))
    except KeyboardInterrupt:
        return print_error(f"Stopped watching. {_resume_hint(name)}", EXIT_ERROR)


async def _start_drain(args: argparse.Namespace) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        patch = cordon.patch_spec(client, args.cluster, {"draining": True})
        changed = await common.await_with_hint(patch, "Waiting for the manager cluster ...")
    finally:
        await client.close()
    if args.output == "text":
        print_line(f"workercluster/{args.cluster} {'' if changed else 'already '}draining")
    return EXIT_OK


async def _watch_drain(args: argparse.Namespace) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    watch = DrainWatch(client, args.cluster, as_json=args.output == "json")
    try:
        async with asyncio.timeout(args.timeout.total_seconds() or None):
            return await watch.run()
    except TimeoutError:
        return print_error(
            f"The timeout has passed, and {watch.remaining_message}. {_resume_hint(args.cluster)}", EXIT_ERROR
        )
    finally:
        await client.close()


class DrainWatch(RemainingWatch):
    """Watches the remaining workers of a worker cluster."""

    def __init__(self, client: Client, name: str, *, as_json: bool = False) -> None:
        """`as_json`: print one JSON document a line."""
        super().__init__(client, as_json=as_json)
        self._name = name
        self._cluster: Raw = {}
        self._unobserved_polls = 0  # polls of an empty cluster before the controller observed the drain

    @property
    def remaining_message(self) -> str:
        """The remaining workers, as a clause."""
        return f"it still has {remaining_workers_text(self._remaining)}" if self._remaining else _DRAIN_NOT_OBSERVED

    def _document(self, now: dict[Key, RemainingJob]) -> Document:
        return drain_document(self._name, now)

    async def _read_remaining(self) -> dict[Key, RemainingJob]:
        self._cluster = await self._client.get(WORKER_CLUSTERS.path(name=self._name))
        # A pod with a template slot gets its cluster label with the first status of its remote pod.
        # The two lists are read in this order, so that the pod is in one of them.
        unplaced, _ = await list_all(
            self._client, PODS.path(), labelSelector=f"{names.PLACEMENT_LABEL},!{names.CLUSTER_LABEL}"
        )
        assigned, _ = await list_all(self._client, PODS.path(), labelSelector=f"{names.CLUSTER_LABEL}={self._name}")
        placements, _ = await list_all(self._client, PLACEMENTS.path())
        pods = {uid_of(pod): pod for pod in [*unplaced, *assigned]}.values()
        return remaining_jobs({self._name}, pods, placements)

    def _exit_code(self) -> int | None:
        if not (self._cluster.get("spec") or {}).get("draining"):
            sentence = f"Another client stopped the drain of {self._name}"
            return print_error(f"{sentence}, and it still has {remaining_workers_text(self._remaining)}.", EXIT_ERROR)
        if self._remaining:
            return None
        # Until the controller observes the drain, a plan of a moment ago may still assign workers to this cluster.
        observed = condition(self._cluster, names.CONNECTED).get("observedGeneration")
        if observed == meta(self._cluster).get("generation"):
            if not self._as_json:
                print_line(f"workercluster/{self._name} drained")
            return EXIT_OK
        self._unobserved_polls += 1
        if self._unobserved_polls == POLLS_BEFORE_HINT:
            print_note(f"No workers are left, but {_DRAIN_NOT_OBSERVED} ...")
        return None


def _resume_hint(name: str) -> str:
    return (
        f"{name} continues to drain; `kubectl rayspan drain {name}` watches again, and `kubectl "
        f"rayspan uncordon {name}` stops it."
    )
