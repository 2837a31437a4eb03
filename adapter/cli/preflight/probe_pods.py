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
from adapter.cli.preflight.inspection import listed
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.preflight import probe
from adapter.preflight.preflight_facts import Side
from adapter.preflight.probe import Peer, Run, State
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import PODS

PAUSE_SECONDS = 0.3  # between two looks at one pod; it takes about two seconds to start


@dataclass(frozen=True, slots=True)
class _Server:
    peer: Peer
    state: State


class Probes:
    """The probe pods of one run; as a context, they are gone in the end."""

    def __init__(self, clients: Mapping[str, Client], run: Run, patience: float) -> None:
        """`clients`: by cluster. `patience`: seconds for a pod to start, and again for its answer."""
        self._clients, self._run, self._patience = clients, run, patience
        self._servers: dict[str, _Server] = {}
        self.left: dict[str, str] = {}  # cluster -> why pods of this run may still be there

    async def __aenter__(self) -> "Probes":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*map(self._clear, self._clients))

    async def start(self) -> None:
        """Remove what earlier runs left behind, and start a pod that answers in every cluster."""
        await asyncio.gather(*map(self._sweep, self._clients))
        servers = await asyncio.gather(*map(self._serve, self._clients))
        self._servers = dict(zip(self._clients, servers, strict=True))

    async def ask(self, sides: Mapping[str, Side]) -> dict[str, Side]:
        """Let a pod of every cluster ask those of all others; returns the sides with what was found."""
        found = await asyncio.gather(*(self._asked(sides[name]) for name in self._servers))
        return {**sides, **{side.name: side for side in found}}

    async def _serve(self, name: str) -> _Server:
        word = secrets.token_hex(8)
        state = await self._made(name, probe.server(self._run, word), lambda found: bool(found.address))
        return _Server(Peer(name, state.address, word), state)

    async def _asked(self, side: Side) -> Side:
        server = self._servers[side.name]
        if server.state.trouble:
            return replace(side, probe=server.state.trouble, no_image=server.state.no_image)
        peers = [other.peer for name, other in self._servers.items() if name != side.name and not other.state.trouble]
        state = await self._made(side.name, probe.client(self._run, peers), lambda found: found.ended)
        report = probe.report(state.message, peers)
        side = replace(side, address=server.state.address)
        if state.trouble or report is None:
            return replace(side, probe=state.trouble or f"what it left is no answer: {state.message[:100]!r}")
        return replace(side, name_error=report.name_error, trips=report.trips)

    async def _made(self, name: str, pod: dict[str, Any], done: Callable[[State], bool]) -> State:
        """Make a pod and wait for it; what went wrong is its state's trouble."""
        client, path = self._clients[name], PODS.path(self._run.namespace)
        try:
            await client.create(path, pod)
        except (ApiError, Unreachable) as error:
            return State(trouble=f"it could not be made: {error}", hopeless=True)
        found = State(trouble="nothing was heard of it")
        try:
            async with asyncio.timeout(self._patience):
                while not (found.hopeless or done(found)):
                    await asyncio.sleep(PAUSE_SECONDS)
                    found = await self._look(client, PODS.path(self._run.namespace, key_of(pod)[1]), found)
        except TimeoutError:
            return replace(found, trouble=found.trouble or f"no answer in {self._patience:.0f} s")
        return found

    async def _look(self, client: Client, path: str, before: State) -> State:
        try:
            return probe.state(await client.get(path))
        except Unreachable:
            return before  # the link may be back in time
        except ApiError as error:
            return State(trouble=f"it cannot be looked at: {error}", hopeless=error.missing or error.status == 403)

    async def _sweep(self, name: str) -> None:
        now = datetime.now(UTC)
        with suppress(ApiError, Unreachable):  # what is wrong with the cluster is told by what comes next
            await self._remove(name, names.PROBE_LABEL, lambda pod: probe.expired(pod, now))

    async def _clear(self, name: str) -> None:
        try:
            await self._remove(name, f"{names.PROBE_LABEL}={self._run.id}", lambda _: True)
        except (ApiError, Unreachable) as error:
            self.left[name] = str(error)

    async def _remove(self, name: str, selector: str, which: Callable[[Raw], bool]) -> None:
        client = self._clients[name]
        pods = await listed(client, PODS, self._run.namespace, labelSelector=selector)
        for pod in filter(which, pods or ()):
            await client.delete(PODS.path(self._run.namespace, key_of(pod)[1]), uid_of(pod))
