"""What a head needs for the relay is written before Kueue starts the job; a denial gives the job's capacity back."""

from typing import Any

import pytest

from adapter import names
from adapter.actions import SetCheck
from adapter.objects.workload import parse_workload
from adapter.relay.relay_keys import fingerprint_of, read_key
from adapter.relay.relay_network import RelayNetwork, identity_of, podset_update, with_key
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.write.relay_writer import HeadDenied, RelayWriter
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, refuses, says
from tests.unit.builders import make_relay_key, make_workload
from tests.unit.stores import Sight, fill

WORK: Any = make_workload()
IDENTITY = identity_of(WORK["metadata"]["uid"])
KEY = make_relay_key()
OTHER_KEY = make_relay_key(b"o")
HEAD_KEY = fingerprint_of(read_key(KEY))


async def _set_ready(server: Server, work: Any = WORK, sight: Sight | None = None) -> None:
    sight = sight or Sight({"east": 9})
    fill(sight.manager.secrets, KEY)
    fill(sight.manager.workloads, work)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = sight.members["east"].client = client
        updates = (podset_update(IDENTITY),)
        action = SetCheck(parse_workload(work), builders.CHECK, names.CHECK_READY, "all", podset_updates=updates)
        await sight.executor(client).execute(action)


async def test_secret_and_service_of_the_head_are_written_before_the_check() -> None:
    server = Server(lists=[says(KEY), says(KEY), says(WORK)])
    await _set_ready(server)
    secret, service, check = server.asked
    assert secret.path.endswith(f"/secrets/rayspan-relay-{IDENTITY}") and "names.key" in secret.body["stringData"]
    assert service.path.endswith(f"/services/rayspan-relay-{IDENTITY}")
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": builders.JOB, "uid": "uid-of-job"}
    assert [each.body["metadata"]["ownerReferences"] for each in (secret, service)] == [[owner], [owner]]
    (entry,) = check.body["status"]["admissionChecks"]
    updates = [*with_key([podset_update(IDENTITY)], HEAD_KEY)]
    assert (entry["state"], entry["podSetUpdates"]) == (names.CHECK_READY, updates)


async def test_a_denial_queues_the_job_again_and_closes_relayed_clusters_for_a_while() -> None:
    server, sight = Server(lists=[refuses(403), says(WORK)]), Sight({"east": 9})
    with pytest.raises(HeadDenied):  # so that no event says that the job is placed
        await _set_ready(server, sight=sight)
    (entry,) = server.asked[-1].body["status"]["admissionChecks"]
    assert entry["state"] == names.CHECK_RETRY and "podSetUpdates" not in entry
    assert "install the component relay there" in entry["message"]
    assert "install the component relay there" in sight.facts.policies.denied_relay_reason(builders.NAMESPACE)
    assert not sight.facts.policies.denied_relay_reason("elsewhere"), "a quota may deny those of one namespace alone"


async def test_a_failure_that_passes_is_tried_again() -> None:
    with pytest.raises(ApiError):
        await _set_ready(Server(lists=[refuses(500), says(WORK)]))


async def test_a_head_that_was_started_with_the_relay_is_not_prepared_again() -> None:
    """As with another slice of a running elastic job."""
    started = make_workload(check=names.CHECK_READY)
    updates = [*with_key([podset_update(IDENTITY)], "of old")]
    started["status"]["admissionChecks"][0]["podSetUpdates"] = updates
    server = Server(lists=[says(WORK)])
    await _set_ready(server, started)
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == ["status"]
    (entry,) = server.asked[0].body["status"]["admissionChecks"]
    assert entry["podSetUpdates"] == updates, "Kueue starts no slice with other updates"


@pytest.mark.parametrize("data", [{}, {"key": ""}, {"key": "a2V5"}])
async def test_no_credential_is_made_from_a_key_that_is_too_short(data: Any) -> None:
    sight = Sight({"east": 9})
    fill(sight.manager.secrets, {**KEY, "data": data})
    with pytest.raises(Unreachable, match=r"has no 32 bytes in data\.key"):
        await RelayWriter(sight.manager, sight.facts.policies)._get_or_create_key()


@pytest.mark.parametrize(
    ("later", "created"),
    [
        pytest.param([KEY], [], id="it is there"),
        pytest.param([OTHER_KEY], [], id="an administrator changed it"),
        pytest.param([], [KEY["data"]], id="it is gone"),
    ],
)
async def test_a_lost_key_is_written_again_and_a_changed_one_stays(later: list[Any], created: list[Any]) -> None:
    sight, server = Sight({"east": 9}), Server(lists=[says(KEY)])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        writer = RelayWriter(sight.manager, sight.facts.policies)
        for secrets in ([KEY], later):
            fill(sight.manager.secrets, *secrets)
            await writer.keep_key()
    assert [(asked.method, asked.body["data"]) for asked in server.asked] == [("POST", data) for data in created]


async def test_a_key_is_remembered_while_its_secret_has_none() -> None:
    """So an administrator who deletes what he broke gets the key back."""
    sight, server = Sight({"east": 9}), Server(lists=[says(KEY)])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        writer = RelayWriter(sight.manager, sight.facts.policies)
        for secrets in ([KEY], [{**KEY, "data": {"key": "a2V5"}}], []):
            fill(sight.manager.secrets, *secrets)
            await writer.keep_key()
    assert [asked.body["data"] for asked in server.asked] == [KEY["data"]]


async def test_a_key_that_cannot_be_created_is_forgotten() -> None:
    """The administrator may restore the old one meanwhile."""
    sight, server = Sight({"east": 9}), Server(lists=[refuses(500)])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        writer = RelayWriter(sight.manager, sight.facts.policies)
        with pytest.raises(ApiError):
            await writer._get_or_create_key()
        await writer.keep_key()
    assert len(server.asked) == 1


async def test_a_dry_run_makes_no_key() -> None:
    sight, server = Sight({"east": 9}), Server(lists=[says(WORK), says(WORK)])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        await RelayWriter(sight.manager, sight.facts.policies).try_head(parse_workload(WORK))
    assert {asked.method for asked in server.asked} == {"PATCH"}


async def test_the_check_of_an_elastic_job_records_no_key() -> None:
    """Its templates keep the updates of the first start, and Kueue starts no slice whose check has others."""
    work = make_workload()
    work["metadata"]["annotations"] = {**(work["metadata"].get("annotations") or {}), names.ELASTIC_ANNOTATION: "true"}
    server = Server(lists=[says(KEY), says(KEY), says(work)])
    await _set_ready(server, work)
    (entry,) = server.asked[-1].body["status"]["admissionChecks"]
    assert parse_workload(work).elastic and entry["podSetUpdates"] == [podset_update(IDENTITY)]


async def test_a_controller_that_never_saw_the_key_makes_none_for_a_running_job() -> None:
    sight, server = Sight({"east": 9}), Server()
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        writer = RelayWriter(sight.manager, sight.facts.policies)
        await writer.keep_key()
        with pytest.raises(Unreachable, match="restore the Secret from a backup"):
            await writer._keys_of_head(RelayNetwork(IDENTITY, builders.NAMESPACE), HEAD_KEY)
    assert not server.asked
