"""`rayspan drain`: move the workers out of a worker cluster, and show how far that is.

It sets spec.draining and then only watches: the controller moves the workers, whether anybody watches or not. So it may be
stopped and started again at any time. Exit code 0: the cluster is empty (or is not waited for); 2: the command line is wrong;
1: anything else.
"""

import argparse
import asyncio
import json
import sys

from adapter import names
from adapter.cli import common, cordon
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.gang.drain_order import RemainingJob, change_lines, drain_document, remaining_jobs, remaining_workers_text
from adapter.objects.unstructured import Key, Raw, condition, meta, uid_of
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import PLACEMENTS, PODS, WORKER_CLUSTERS

# Between two looks at four small lists. A worker takes ten times as long to leave, and a person sees no delay.
PAUSE_SECONDS = 1.0
POLLS_BEFORE_HINT = 3  # the controller needs less than one when it runs

_DRAIN_NOT_OBSERVED = f"the controller has not seen the drain yet: see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`"


def main(args: argparse.Namespace) -> int:
    """Start the drain, watch it, and return the exit code; trouble is one sentence on the standard error."""
    name = args.cluster
    code = cordon.run_reporting_errors(name, _start_drain(args))
    if code != EXIT_OK or args.wait == "false":
        return code
    try:
        return cordon.run_reporting_errors(name, _watch_drain(args))
    except KeyboardInterrupt:
        return print_error(f"No longer watching. {_resume_hint(name)}", EXIT_ERROR)


async def _start_drain(args: argparse.Namespace) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        doing = cordon.patch_spec(client, args.cluster, {"draining": True})
        new = await common.await_with_hint(doing, "Waiting for the manager cluster ...")
    finally:
        await client.close()
    if args.output == "text":
        print(f"workercluster/{args.cluster} {'' if new else 'already '}draining", flush=True)
    return EXIT_OK


async def _watch_drain(args: argparse.Namespace) -> int:
    client = await Client.for_user(args.kubeconfig, args.context)
    watch = DrainWatch(client, args.cluster, as_json=args.output == "json")
    try:
        async with asyncio.timeout(args.timeout.total_seconds() or None):
            return await watch.run()
    except TimeoutError:
        return print_error(f"The time is up, and {watch.remaining_message}. {_resume_hint(args.cluster)}", EXIT_ERROR)
    finally:
        await client.close()


class DrainWatch:
    """Looks at what is left in a worker cluster, and tells each change once."""

    def __init__(self, client: Client, name: str, *, as_json: bool = False) -> None:
        """`programs`: what is printed is for them, a document a line."""
        self._client, self._name, self._as_json = client, name, as_json
        self._last_line = ""
        self._remaining: dict[Key, RemainingJob] = {}
        self._unreachable = False
        self._unobserved_polls = 0  # looks in which nothing was left, but the controller did not know yet

    @property
    def remaining_message(self) -> str:
        """What is left, as a part of a sentence."""
        return f"it still has {remaining_workers_text(self._remaining)}" if self._remaining else _DRAIN_NOT_OBSERVED

    async def run(self) -> int:
        """Look again and again until there is an exit code."""
        while True:
            code = await self._poll_once()
            if code is not None:
                return code
            await asyncio.sleep(PAUSE_SECONDS)

    async def _poll_once(self) -> int | None:
        try:
            cluster, pods, placements = await self._read_objects()
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                raise
            self._report_unreachable(error)
            return None
        self._unreachable = False
        now = remaining_jobs(self._name, pods, placements)
        self._print_changes(now)
        self._remaining = now
        return self._exit_code(cluster)

    def _print_changes(self, now: dict[Key, RemainingJob]) -> None:
        if not self._as_json:
            for line in change_lines(self._remaining, now):
                print(line, flush=True)
        elif (line := json.dumps(drain_document(self._name, now))) != self._last_line:
            print(line, flush=True)
            self._last_line = line

    async def _read_objects(self) -> tuple[Raw, list[Raw], list[Raw]]:
        cluster = await self._client.get(WORKER_CLUSTERS.path(name=self._name))
        # Where one is that came with its place is written in it with the first news of its copy, so it is found before or after that.
        new, _ = await list_all(
            self._client, PODS.path(), labelSelector=f"{names.PLACEMENT_LABEL},!{names.CLUSTER_LABEL}"
        )
        placed, _ = await list_all(self._client, PODS.path(), labelSelector=f"{names.CLUSTER_LABEL}={self._name}")
        placements, _ = await list_all(self._client, PLACEMENTS.path())
        return cluster, list({uid_of(pod): pod for pod in [*new, *placed]}.values()), placements

    def _report_unreachable(self, error: Exception) -> None:
        if not self._unreachable:
            print(f"The manager cluster cannot be asked: {error}; asking again ...", file=sys.stderr)
        self._unreachable = True

    def _exit_code(self, cluster: Raw) -> int | None:
        if not (cluster.get("spec") or {}).get("draining"):
            sentence = f"Somebody stopped the drain of {self._name}"
            return print_error(f"{sentence}, and it still has {remaining_workers_text(self._remaining)}.", EXIT_ERROR)
        if self._remaining:
            return None
        # Until the controller knows of the drain, a plan that it just made may still send workers here.
        if condition(cluster, names.CONNECTED).get("observedGeneration") == meta(cluster).get("generation"):
            if not self._as_json:
                print(f"workercluster/{self._name} drained", flush=True)
            return EXIT_OK
        self._unobserved_polls += 1
        if self._unobserved_polls == POLLS_BEFORE_HINT:
            print(f"Nothing is left, but {_DRAIN_NOT_OBSERVED} ...", file=sys.stderr)
        return None


def _resume_hint(name: str) -> str:
    return f"{name} goes on draining; `kubectl rayspan drain {name}` watches again, and `kubectl rayspan uncordon {name}` stops it."
