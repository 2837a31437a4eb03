"""How do probe pods come, answer and go? They are made in every cluster, waited for, and removed whatever happens.

What could not be removed now, because its cluster does not answer or this process was killed, is ended by its kubelet at its deadline,
and removed by the next run.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.cli.preflight.inspection import list_if_allowed
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.preflight import probe
from adapter.preflight.preflight_facts import ClusterFacts
from adapter.preflight.probe import Peer, ProbeRun, ProbeState
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import PODS

PAUSE_SECONDS = 0.3  # between two looks at one pod; it takes about two seconds to start


@dataclass(frozen=True, slots=True)
class _ServerPod:
    peer: Peer
    state: ProbeState


class ProbePods:
    """The probe pods of one run; as a context, they are gone in the end."""

    def __init__(self, clients: Mapping[str, Client], run: ProbeRun, timeout_seconds: float) -> None:
        """`clients`: by cluster. `patience`: seconds for a pod to start, and again for its answer."""
        self._clients, self._run, self._timeout_seconds = clients, run, timeout_seconds
        self._servers: dict[str, _ServerPod] = {}
        self.unremoved: dict[str, str] = {}  # cluster -> why pods of this run may still be there

    async def __aenter__(self) -> "ProbePods":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*map(self._remove_own, self._clients))

    async def start_servers(self) -> None:
        """Remove what earlier runs left behind, and start a pod that answers in every cluster."""
        await asyncio.gather(*map(self._remove_expired, self._clients))
        servers = await asyncio.gather(*map(self._start_server, self._clients))
        self._servers = dict(zip(self._clients, servers, strict=True))

    async def run_clients(self, sides: Mapping[str, ClusterFacts]) -> dict[str, ClusterFacts]:
        """Let a pod of every cluster ask those of all others; returns the sides with what was found."""
        found = await asyncio.gather(*(self._run_client(sides[name]) for name in self._servers))
        return {**sides, **{side.name: side for side in found}}

    async def _start_server(self, name: str) -> _ServerPod:
        word = secrets.token_hex(8)
        state = await self._run_pod(name, probe.server_pod(self._run, word), lambda found: bool(found.address))
        return _ServerPod(Peer(name, state.address, word), state)

    async def _run_client(self, side: ClusterFacts) -> ClusterFacts:
        server = self._servers[side.name]
        if server.state.error:
            return replace(side, probe_error=server.state.error, image_missing=server.state.image_missing)
        peers = [other.peer for name, other in self._servers.items() if name != side.name and not other.state.error]
        state = await self._run_pod(side.name, probe.client_pod(self._run, peers), lambda found: found.ended)
        report = probe.parse_report(state.message, peers)
        side = replace(side, probe_address=server.state.address)
        if state.error or report is None:
            return replace(side, probe_error=state.error or f"what it left is no answer: {state.message[:100]!r}")
        return replace(side, dns_error=report.dns_error, paths=report.paths)

    async def _run_pod(self, name: str, pod: dict[str, Any], is_done: Callable[[ProbeState], bool]) -> ProbeState:
        """Make a pod and wait for it; what went wrong is its state's trouble."""
        client, path = self._clients[name], PODS.path(self._run.namespace)
        try:
            await client.create(path, pod)
        except (ApiError, Unreachable) as error:
            return ProbeState(error=f"it could not be made: {error}", is_permanent=True)
        found = ProbeState(error="nothing was heard of it")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                while not (found.is_permanent or is_done(found)):
                    await asyncio.sleep(PAUSE_SECONDS)
                    found = await self._read_state(client, PODS.path(self._run.namespace, key_of(pod)[1]), found)
        except TimeoutError:
            return replace(found, error=found.error or f"no answer in {self._timeout_seconds:.0f} s")
        return found

    async def _read_state(self, client: Client, path: str, before: ProbeState) -> ProbeState:
        try:
            return probe.parse_state(await client.get(path))
        except Unreachable:
            return before  # the link may be back in time
        except ApiError as error:
            return ProbeState(
                error=f"it cannot be looked at: {error}", is_permanent=error.not_found or error.status == 403
            )

    async def _remove_expired(self, name: str) -> None:
        now = datetime.now(UTC)
        with suppress(ApiError, Unreachable):  # what is wrong with the cluster is told by what comes next
            await self._remove_pods(name, names.PROBE_LABEL, lambda pod: probe.is_expired(pod, now))

    async def _remove_own(self, name: str) -> None:
        try:
            await self._remove_pods(name, f"{names.PROBE_LABEL}={self._run.id}", lambda _: True)
        except (ApiError, Unreachable) as error:
            self.unremoved[name] = str(error)

    async def _remove_pods(self, name: str, selector: str, predicate: Callable[[Raw], bool]) -> None:
        client = self._clients[name]
        pods = await list_if_allowed(client, PODS, self._run.namespace, labelSelector=selector)
        for pod in filter(predicate, pods or ()):
            await client.delete(PODS.path(self._run.namespace, key_of(pod)[1]), uid_of(pod))
