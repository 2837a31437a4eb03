"""Creates probe pods in every cluster, waits for their results, and always removes them.

If removal fails or this process is killed, the kubelet ends a pod at its deadline, and the next run removes it.
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
from adapter.objects.unstructured import UNREADABLE, Raw, key_of, uid_of
from adapter.preflight import probe
from adapter.preflight.preflight_facts import ClusterFacts
from adapter.preflight.probe import Peer, ProbeRun, ProbeState
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import PODS

PAUSE_SECONDS = 0.3  # between two reads of a pod, which starts in about 2 s


@dataclass(frozen=True, slots=True)
class _ServerPod:
    peer: Peer
    state: ProbeState


class ProbePods:
    """The probe pods of one run; leaving the context removes them."""

    def __init__(self, clients: Mapping[str, Client], run: ProbeRun, timeout_seconds: float) -> None:
        """`clients`: by cluster. `timeout_seconds`: for a server pod to start, and again for a client pod to end."""
        self._clients, self._run, self._timeout_seconds = clients, run, timeout_seconds
        self._servers: dict[str, _ServerPod] = {}
        self.unremoved: dict[str, str] = {}  # cluster -> why pods of this run may still exist

    async def __aenter__(self) -> "ProbePods":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*map(self._remove_own, self._clients))

    async def start_servers(self) -> None:
        """Remove expired pods of earlier runs, and start a server pod in every cluster."""
        await asyncio.gather(*map(self._remove_expired, self._clients))
        servers = await asyncio.gather(*map(self._start_server, self._clients))
        self._servers = dict(zip(self._clients, servers, strict=True))

    async def run_clients(self, sides: Mapping[str, ClusterFacts]) -> dict[str, ClusterFacts]:
        """Run a client pod in every cluster against the servers of all others; return `sides` with the results."""
        probed_sides = await asyncio.gather(*(self._run_client(sides[name], sides) for name in self._servers))
        return {**sides, **{side.name: side for side in probed_sides}}

    async def _start_server(self, name: str) -> _ServerPod:
        token = secrets.token_hex(8)
        state = await self._run_pod(name, probe.server_pod(self._run, token), lambda state: bool(state.address))
        return _ServerPod(Peer(name, state.address, token), state)

    async def _run_client(self, side: ClusterFacts, sides: Mapping[str, ClusterFacts]) -> ClusterFacts:
        server = self._servers[side.name]
        if server.state.error:
            return replace(side, probe_error=server.state.error, image_missing=server.state.image_missing)
        peers = [other.peer for name, other in self._servers.items() if _has_path(side, sides[name], other.state)]
        pod = probe.client_pod(self._run, peers, side.relay_address)
        state = await self._run_pod(side.name, pod, lambda state: state.ended)
        report = probe.parse_report(state.message, peers)
        side = replace(side, probe_address=server.state.address)
        if state.error or report is None:
            return replace(side, probe_error=state.error or f"it left no valid report: {state.message[:100]!r}")
        return replace(side, dns_error=report.dns_error, paths=report.paths, relay_error=report.relay_error)

    async def _run_pod(self, name: str, pod: dict[str, Any], is_done: Callable[[ProbeState], bool]) -> ProbeState:
        """Create a pod and wait until `is_done`; the state has the error."""
        client, path = self._clients[name], PODS.path(self._run.namespace)
        try:
            await client.create(path, pod)
        except (ApiError, Unreachable) as error:
            return ProbeState(error=f"it could not be created: {error}", is_permanent=True)
        state = ProbeState(error="it reported nothing")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                while not (state.is_permanent or is_done(state)):
                    await asyncio.sleep(PAUSE_SECONDS)
                    state = await self._read_state(client, PODS.path(self._run.namespace, key_of(pod)[1]), state)
        except TimeoutError:
            return replace(state, error=state.error or f"no answer in {self._timeout_seconds:.0f} s")
        return state

    async def _read_state(self, client: Client, path: str, before: ProbeState) -> ProbeState:
        try:
            return probe.parse_state(await client.get(path))
        except Unreachable:
            return before  # the cluster may answer before the timeout
        except ApiError as error:
            return ProbeState(error=f"it cannot be read: {error}", is_permanent=error.not_found or error.status == 403)

    async def _remove_expired(self, name: str) -> None:
        now = datetime.now(UTC)
        with suppress(ApiError, Unreachable, *UNREADABLE):  # creating the next pod reports the same error
            await self._remove_pods(name, names.PROBE_LABEL, lambda pod: probe.is_expired(pod, now))

    async def _remove_own(self, name: str) -> None:
        try:
            await self._remove_pods(name, f"{names.PROBE_LABEL}={self._run.id}", lambda _: True)
        except (ApiError, Unreachable, *UNREADABLE) as error:
            self.unremoved[name] = str(error)

    async def _remove_pods(self, name: str, selector: str, predicate: Callable[[Raw], bool]) -> None:
        client = self._clients[name]
        pods = await list_if_allowed(client, PODS, self._run.namespace, labelSelector=selector)
        for pod in filter(predicate, pods or ()):
            await client.delete(PODS.path(self._run.namespace, key_of(pod)[1]), uid_of(pod))


def _has_path(side: ClusterFacts, other: ClusterFacts, server: ProbeState) -> bool:
    """Whether Ray nodes of the two clusters need a path of their own between them."""
    return side.name != other.name and not server.error and not side.relay_address and not other.relay_address
