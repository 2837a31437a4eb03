"""A worker cluster restored from a backup is reported once, and its own versions count from then on."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapter import names
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import Raw
from adapter.shell.write.conditions import ConditionWriter
from adapter.shell.write.events import REPEATED_SECONDS
from tests.unit import builders, stores


class _Said:
    """Stands in for the EventRecorder."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    async def record_event(self, _: object, reason: str, message: str, *, warning: bool = False) -> None:
        assert warning
        self.said.append((reason, message))


async def _nothing(*_: object) -> Raw:
    return {}


@pytest.mark.parametrize(
    ("ago", "told"),
    [(None, False), (timedelta(), True), (timedelta(seconds=REPEATED_SECONDS + 1), False)],
    ids=["never", "now", "long ago"],
)
async def test_a_restore_is_an_event_on_the_worker_cluster(ago: timedelta | None, told: bool) -> None:
    sight, said = stores.Sight({"east": 4}), _Said()
    sight.manager.worker_clusters.replace([builders.make_worker_cluster("east")])
    sight.manager.client = cast(Any, SimpleNamespace(merge_patch=_nothing))
    sight.members["east"].restored_at = None if ago is None else datetime.now(UTC) - ago
    fleet = SimpleNamespace(
        problems={},
        unreachable_reasons=sight.fleet.unreachable_reasons,
        caches=sight.fleet.caches,
        reconcile=_nothing,
        reachable=sight.fleet.reachable,
    )
    shares = SimpleNamespace(workers_in=lambda _: 0)
    nobody = cast(Any, None)
    writer = ConditionWriter(
        sight.manager, cast(Any, fleet), nobody, nobody, cast(Any, shares), cast(Any, said), sight.facts.relay
    )
    await writer.reconcile_cluster("east")
    restored = (
        "Worker cluster east: its API server went back to an older version, as after a restore "
        "from a backup; listing everything again."
    )
    assert said.said == ([(names.EventReason.RESTORED, restored)] if told else [])


def test_the_age_of_a_reservation_uses_the_versions_of_the_restored_cluster() -> None:
    member = stores.make_member("east", 4)
    since = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    def share(version: int) -> Raw:
        metadata = {"name": "s", "namespace": "demo", "uid": "u", "resourceVersion": str(version)}
        return {"metadata": metadata, "status": {"conditions": [since]}}

    member.workloads.replace([share(90)], "100")
    member.workloads.replace([share(40)], "50", restored=True)
    assert member.reserved_as_of(parse_reservation("east", share(40))) == 40
