"""A gang starts on shares that its clusters still show as admitted when they are read once more, and on no others."""

from collections.abc import Mapping
from typing import Any

import pytest

from adapter import names
from adapter.actions import SetCheck
from adapter.objects.reservation import reservation
from adapter.objects.workload import workload
from adapter.shell.kube.client import Unreachable
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, says
from tests.unit.builders import make_placement, make_reservation, make_workload
from tests.unit.stores import Sight

Raw = dict[str, Any]
WORK = make_workload()
PLACE = make_placement(WORK)
SHARE = make_reservation(PLACE)
RECREATED = {**SHARE, "metadata": SHARE["metadata"] | {"uid": "another"}}


async def set_check(server: Server) -> None:
    """Write Ready on the ground of an admitted share in east, with one server for both clusters."""
    relied_on = (reservation("east", SHARE),)
    action = SetCheck(workload(WORK), builders.CHECK, names.CHECK_READY, "all", verify=relied_on)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight = Sight({"east": 9})
        sight.manager.client = sight.members["east"].client = client
        await sight.executor(client).do(action)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(make_reservation(PLACE, admitted=False), id="not admitted any more"),
        pytest.param(make_reservation(PLACE, deleting=True), id="being deleted"),
        pytest.param(make_reservation(PLACE, conditions=[names.EVICTED]), id="evicted"),
        pytest.param(RECREATED, id="another one of that name"),
    ],
)
async def test_a_gang_starts_only_on_shares_that_are_admitted_when_they_are_read_once_more(
    now: Mapping[str, Any],
) -> None:
    server = Server(lists=[says(now), says(WORK)])
    with pytest.raises(Unreachable, match="the share in east is not admitted any more"):
        await set_check(server)
    assert [asked.method for asked in server.asked] == ["GET"], "nothing was written"


async def test_the_check_is_written_for_this_very_version_of_the_workload() -> None:
    """An answer that comes late must not start the next attempt."""
    server = Server(lists=[says(SHARE), says(WORK)])
    await set_check(server)
    read, write = server.asked
    assert (read.method, write.method) == ("GET", "PATCH") and write.path.endswith("/workloads/rayjob-train/status")
    meant = {key: write.body["metadata"].get(key) for key in ("uid", "resourceVersion")}
    assert meant == {"uid": workload(WORK).uid, "resourceVersion": workload(WORK).resource_version}
    (entry,) = write.body["status"]["admissionChecks"]
    assert (entry["name"], entry["state"]) == (builders.CHECK, names.CHECK_READY)
