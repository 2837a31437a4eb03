"""The metrics of a worker cluster after its conditions were written."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from adapter import names
from adapter.objects import specs
from adapter.objects.unstructured import Raw, format_time
from adapter.relay.relay_network import identity_of, podset_update, with_key
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.write.conditions import ConditionWriter
from tests.unit import builders, stores


async def _nothing(*_: object, **__: object) -> Raw:
    return {}


@pytest.mark.parametrize(("problem", "connected"), [("", 1.0), ("Its Secret is missing.", 0.0)])
async def test_a_reconcile_sets_the_connection_metric_and_starts_its_counters(problem: str, connected: float) -> None:
    sight = stores.Sight({"looked-at": 4})
    sight.manager.worker_clusters.replace([builders.make_worker_cluster("looked-at")])
    sight.manager.client = cast(Any, SimpleNamespace(merge_patch=_nothing))
    fleet = SimpleNamespace(
        problems={"looked-at": problem} if problem else {},
        unreachable_reasons=dict,
        caches=sight.fleet.caches,
        reconcile=_nothing,
    )
    shares, recorder, nobody = (
        SimpleNamespace(workers_in=lambda _: 0),
        SimpleNamespace(record_event=_nothing),
        cast(Any, None),
    )
    writer = ConditionWriter(
        sight.manager, cast(Any, fleet), nobody, nobody, cast(Any, shares), cast(Any, recorder), sight.facts.relay
    )
    await writer.reconcile_cluster("looked-at")
    which = {"cluster": "looked-at"}
    assert REGISTRY.get_sample_value("rayspan_cluster_connected", which) == connected
    lost = {reason: {**which, "reason": reason} for reason in names.LOSS_REASONS}
    assert [REGISTRY.get_sample_value("rayspan_workers_lost_total", one) for one in lost.values()] == [0.0] * len(lost)


@pytest.mark.parametrize(
    ("claim", "ready"),
    [
        pytest.param(
            {"unclaimable_reason": "no claim can be held there", "blocked_reason": ""},
            "True",
            id="no right to the claim",
        ),
        pytest.param(
            {"unclaimable_reason": "", "blocked_reason": "nothing is written there"},
            "False",
            id="the claim cannot be read now",
        ),
    ],
)
async def test_a_cluster_without_a_claim_is_ready_if_writes_continue(claim: dict[str, str], ready: str) -> None:
    sight = stores.Sight({"unclaimed": 4})
    sight.manager.worker_clusters.replace([builders.make_worker_cluster("unclaimed")])
    sight.members["unclaimed"].claim = cast(Any, SimpleNamespace(**claim))
    written = await _written(sight, "unclaimed")
    told = {one["type"]: (one["status"], one["reason"]) for one in written[0]["status"]["conditions"]}
    assert told == {
        names.CONNECTED: ("True", names.ConditionReason.NOT_CLAIMED),
        names.READY: (ready, names.ConditionReason.NOT_CLAIMED),
    }


async def _written(sight: stores.Sight, name: str) -> list[Raw]:
    """The WorkerCluster status written by one reconcile."""
    written = list[Raw]()

    async def merge_patch(_: str, patch: Raw) -> Raw:
        written.append(patch)
        return {}

    sight.manager.client = cast(Any, SimpleNamespace(merge_patch=merge_patch))
    fleet = SimpleNamespace(problems={}, unreachable_reasons=dict, caches=sight.fleet.caches, reconcile=_nothing)
    shares, recorder, nobody = (
        SimpleNamespace(workers_in=lambda _: 0),
        SimpleNamespace(record_event=_nothing),
        cast(Any, None),
    )
    writer = ConditionWriter(
        sight.manager, cast(Any, fleet), nobody, nobody, cast(Any, shares), cast(Any, recorder), sight.facts.relay
    )
    await writer.reconcile_cluster(name)
    return written


@pytest.mark.parametrize(("days", "told"), [(13, True), (15, False)])
async def test_a_token_that_expires_soon_is_reported(days: int, told: bool) -> None:
    sight = stores.Sight({"ending": 4})
    sight.manager.worker_clusters.replace([builders.make_worker_cluster("ending")])
    ends = datetime.now(UTC) + timedelta(days=days)
    signs = {names.TOKEN_EXPIRES_ANNOTATION: format_time(ends)}
    sight.manager.secrets.replace(
        [{"metadata": {"name": "ending", "namespace": names.SYSTEM_NAMESPACE, "annotations": signs}}]
    )
    written = await _written(sight, "ending")
    sentence = (
        f"Its token expires on {ends:%Y-%m-%d}: renew it with `kubectl rayspan rotate ending --worker-context CONTEXT`."
    )
    assert [sentence in one["message"] for one in written[0]["status"]["conditions"]] == [told, told]


async def test_a_cluster_says_which_jobs_its_heads_keep_from_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    network = {"mode": "Relay", "address": "relay.example.com:30443", "image": "relay:1"}
    sight = stores.Sight({"relayed": 4})
    raw = builders.make_worker_cluster("relayed", network=network)
    stores.fill(sight.manager.worker_clusters, raw)
    sight.members["relayed"].spec = specs.parse_worker_cluster(raw)
    work: Any = builders.make_workload(check=names.CHECK_READY)
    updates = with_key([podset_update(identity_of(work["metadata"]["uid"]))], "of old")
    work["status"]["admissionChecks"][0]["podSetUpdates"] = [*updates]
    stores.fill(sight.manager.workloads, work)
    stores.fill(sight.manager.secrets, builders.make_relay_key())
    (patch,) = await _written(sight, "relayed")
    (entry,) = [entry for entry in patch["status"]["conditions"] if entry["type"] == names.RELAY_CURRENT]
    assert (entry["status"], entry["reason"]) == ("False", names.ConditionReason.RELAY_KEY_CHANGED)
    assert f"heads of RayJob {builders.NAMESPACE}/{builders.JOB} were" in entry["message"]
    assert {names.CONNECTED, names.READY} < {entry["type"] for entry in patch["status"]["conditions"]}
