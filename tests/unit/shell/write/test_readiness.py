"""The readiness of a DispatchPolicy is written to it. Older CRDs or rights are reported once."""

import logging
from typing import Any, cast

import pytest

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import ApiError
from adapter.shell.write.conditions import ConditionWriter
from tests.unit import stores
from tests.unit.builders import make_policy

OLDER = [
    ApiError(404, "NotFound", 'dispatchpolicies.rayspan.dev "default" not found'),
    ApiError(403, "Forbidden", "may not"),
]


class Manager:
    """Stands in for the manager's API server and for the EventRecorder."""

    def __init__(self, sight: stores.Sight) -> None:
        self.asked: list[str] = []
        self.said: list[tuple[str, str, str]] = []
        self.answers: list[ApiError] = []
        self.store = sight.manager.policies
        sight.manager.client = cast(Any, self)
        nobody = cast(Any, None)
        self.writer = ConditionWriter(
            sight.manager, nobody, nobody, sight.facts.policies, nobody, cast(Any, self), sight.facts.relay
        )

    async def merge_patch(self, path: str, patch: Raw) -> Raw:
        self.asked.append(path)
        if self.answers:
            raise self.answers.pop(0)
        raw = dict(self.store.by_name("default") or {})
        version = str(int(raw["metadata"]["resourceVersion"]) + 1)
        return {**raw, "metadata": raw["metadata"] | {"resourceVersion": version}, "status": patch["status"]}

    async def record_event(self, about: Any, reason: str, message: str, *, warning: bool = False) -> None:
        assert warning
        self.said.append((about.kind, reason, message))


@pytest.fixture
def manager() -> Manager:
    sight = stores.Sight({"east": 4})
    found = Manager(sight)
    policy = make_policy(clusters=["north"])
    found.store.replace(
        [{**policy, "metadata": {"name": "default", "uid": "u", "generation": 1, "resourceVersion": "5"}}]
    )
    return found


async def test_readiness_is_written_once_with_an_event(manager: Manager) -> None:
    await manager.writer.reconcile_policy("default")
    await manager.writer.reconcile_policy("default")
    assert manager.asked == ["/apis/rayspan.dev/v1alpha1/dispatchpolicies/default/status"]
    ((kind, reason, message),) = manager.said
    assert (kind, reason) == (names.DISPATCH_POLICY_KIND, "UnknownCluster") and "WorkerCluster north" in message


async def test_a_policy_that_is_gone_is_not_written(manager: Manager) -> None:
    await manager.writer.reconcile_policy("other")
    assert manager.asked == []


@pytest.mark.parametrize("answer", OLDER, ids=["an older CRD", "older rights"])
async def test_an_older_manager_is_reported_once(
    answer: ApiError, manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    manager.answers = [answer, answer]
    await manager.writer.reconcile_policy("default")
    await manager.writer.reconcile_policy("default")
    assert len(manager.asked) == 2 and manager.said == []
    (record,) = caplog.records
    assert "DispatchPolicy default: its condition Ready cannot be written" in record.getMessage()
    await manager.writer.reconcile_policy("default")
    assert manager.said, "it has the new ones by now"


async def test_a_deleted_policy_is_not_reported(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    async def gone(path: str, patch: Raw) -> Raw:
        manager.store.replace([])
        raise OLDER[0]

    manager.merge_patch = gone  # type: ignore[method-assign]
    await manager.writer.reconcile_policy("default")
    assert caplog.records == []


async def test_other_errors_are_left_to_the_work_queue(manager: Manager) -> None:
    manager.answers = [ApiError(409, "Conflict", "it has changed")]
    with pytest.raises(ApiError, match="Conflict"):
        await manager.writer.reconcile_policy("default")
