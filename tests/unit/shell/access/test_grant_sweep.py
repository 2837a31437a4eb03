"""Which WorkerAccesses are deleted, whatever stands among them, and in how much memory? By a small API server over real sockets."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adapter.access import grant
from adapter.access.grant import LOG
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.access import grant_sweep
from adapter.shell.kube.client import Unreachable
from tests.unit.apiserver import Server, connected, lists, refuses, says, serving

KEY = "k" * 43
POD = {"metadata": {"namespace": "default", "name": "worker-a", "uid": "u-1"}}
DONE = says({"kind": "Status", "status": "Success"})


def raw(name: str, age: timedelta = timedelta(minutes=6), **about: Any) -> Raw:
    made = grant.manifest(POD, LOG, KEY)
    created = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"namespace": "default", "name": name, "uid": f"uid-of-{name}", "creationTimestamp": created, **about}
    return {**made, "metadata": metadata}


def deleted(server: Server) -> list[str]:
    return [asked.path.rpartition("/")[2] for asked in server.asked if asked.method == "DELETE"]


async def test_those_that_are_over_are_deleted_by_their_uid_and_good_ones_stay() -> None:
    found = lists(1, [raw("old"), raw("good", timedelta()), {"metadata": {"name": 5}}])
    async with serving(Server(lists=[found, DONE])) as server, connected(server.url) as client:
        await grant_sweep.sweep_once(client)
    assert deleted(server) == ["old"]
    assert server.asked[1].body["preconditions"] == {"uid": "uid-of-old"}


async def test_one_that_cannot_be_deleted_keeps_no_other() -> None:
    """As one whose webhook is away, or that a policy holds."""
    found = lists(1, [raw("a"), raw("held"), raw("z")])
    answers = [found, DONE, refuses(500, "InternalError"), DONE]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        await grant_sweep.sweep_once(client)
    assert deleted(server) == ["a", "held", "z"]


async def test_who_does_not_answer_is_asked_for_the_rest_another_time() -> None:
    async with serving(Server(lists=[refuses(403)])) as server, connected(server.url) as client:
        await client.close()
        with pytest.raises(Unreachable):
            await grant_sweep.sweep_once(client)


def test_of_each_as_much_is_kept_as_tells_whether_it_is_over() -> None:
    """Whoever views a namespace may create them; those from before the policy forbade it have notes of 250 KB."""
    kept = grant_sweep._SweptGrants()
    large = raw("large", annotations={"a": "x" * 250_000}, managedFields=[{"manager": "kubectl"}])
    kept.take_page([{**large, "spec": {**large["spec"], "subresource": "exec", "command": ["x" * 8192]}}], "1")
    assert kept.memory_quota.used_bytes < grant_sweep.MOST_BYTES / 10_000
    assert grant.grants_to_delete(kept.objects, datetime.now(UTC)) == kept.objects


async def test_of_more_than_there_is_room_for_the_first_are_swept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So room comes for the others, and whoever administers the manager reads what bounds them."""
    monkeypatch.setattr(grant_sweep, "MOST_BYTES", 1)
    found = lists(1, [raw("old"), raw("good", timedelta())], "next")
    async with serving(Server(lists=[found, DONE])) as server, connected(server.url) as client:
        await grant_sweep.sweep_once(client)
    assert deleted(server) == ["old"]
    assert "bound them in each namespace by a ResourceQuota for count/workeraccesses.rayspan.dev" in caplog.text
