"""When a process leads, and which worker pods an earlier leader may have created remote pods for."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from adapter.objects.unstructured import Raw, format_time, uid_of
from adapter.shell import metrics
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.lease import LeaderElector
from adapter.shell.kube.client import Client
from adapter.shell.observe.transient_state import TransientState
from adapter.worker.template_slots import may_have_been_sent
from tests.unit.builders import make_pod


@pytest.fixture(autouse=True)
def leads_no_more() -> Any:
    yield
    metrics.LEADER.set(0)


@dataclass
class Held:
    """A fake Lease: another replica holds it until `leading` is set, and is overdue from `may_lead_soon` on."""

    may_lead_soon: asyncio.Event = field(default_factory=asyncio.Event)
    leading: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """The Lease is not lost."""


@dataclass
class ControllerParts:
    """Stands in for all that an engine has, as far as leading goes."""

    transient: TransientState = field(default_factory=TransientState)

    @property
    def fleet(self) -> "ControllerParts":
        """No worker cluster is there."""
        return self

    def follow_deferred(self) -> None: ...

    def caches(self) -> Raw:
        return {}


def came(name: str, **more: Any) -> Raw:
    """A pod that came with its slot. By its age it came after the lead: the manager's clock is ahead of ours."""
    pod = make_pod(name, uid=name, index="0", listed="east/1/role-workers/9", **more)
    pod["metadata"]["creationTimestamp"] = format_time(datetime.now(UTC) + timedelta(hours=1))
    return pod


async def test_a_new_leader_notes_the_pods_that_may_have_remote_pods() -> None:
    """Pods that are not noted, also those created during standby, could get a second remote pod in another cluster."""
    lease, parts, engine = Held(), ControllerParts(), Engine(cast(Client, None), None)
    engine._elector, engine._parts = cast(LeaderElector, lease), cast(Any, parts)
    engine.manager.pods.put(came("at-the-start"))
    async with asyncio.TaskGroup() as tasks:
        leading = tasks.create_task(engine._wait_to_lead(tasks, cast(Any, parts)))
        lease.may_lead_soon.set()
        await asyncio.sleep(0)
        assert parts.transient.leading_since is None, "another one may write still"
        for pod in (came("while-it-stood-by"), came("seen-there", dispatched=True), make_pod("with-none", uid="n")):
            engine.manager.pods.put(pod)
        lease.leading.set()
        engine.manager.stores_filled.set()
        await leading
    after = came("after")
    engine.manager.pods.put(after)
    memory = parts.transient
    assert memory.sent_pods == {"at-the-start", "while-it-stood-by"}
    known = {"sent": uid_of(after) in memory.sent_pods, "leads_since": memory.leading_since}
    assert memory.leading_since is not None and not may_have_been_sent(after, **cast(Any, known))
