"""What must stand in the manager before somebody comes to a worker cluster, and what is said where it does not? By a small API server."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from adapter import names
from adapter.access.access_request import AccessRequest
from adapter.access.grant import LOG, Grant, manifest
from adapter.objects.unstructured import Raw, format_time
from adapter.shell.access.grant_resolver import AccessRefused, GrantResolver
from tests.unit.apiserver import Answer, Server, connected, refuses, says, serving

GRANT = Grant(
    "default", "kubectl-1", "u-g", "worker-a", "u-1", LOG, "", (), stdin=False, tty=False, key_hash="", created=datetime.now(UTC)
)  # fmt: skip
SYSTEM = {"metadata": {"name": "kube-system", "uid": "m"}}


def worker_cluster(**source: Raw) -> Raw:
    return {"metadata": {"name": "east"}, "spec": {"source": source}}


KEY = "k" * 43
ASKED = AccessRequest("default", "kubectl-1", KEY, LOG, "worker-a")
POD = {"metadata": {"namespace": "default", "name": "worker-a", "uid": "u-1"}}


def at(seconds_ago: float) -> str:
    return format_time(datetime.now(UTC) - timedelta(seconds=seconds_ago))


def granted(seconds_ago: float = 10) -> Raw:
    made = manifest(POD, LOG, KEY)
    return {
        **made,
        "metadata": {**made["metadata"], "name": "kubectl-1", "uid": "u-g", "creationTimestamp": at(seconds_ago)},
    }


def judging(seconds_ago: float = 60) -> list[Answer]:
    """The policy and its binding, as they were made or changed, in one: they are asked for at the same time."""
    spec = {"failurePolicy": "Fail", "policyName": names.ACCESS_POLICY, "validationActions": ["Deny"]}
    return [says({"metadata": {"creationTimestamp": at(seconds_ago)}, "spec": spec})] * 2


async def test_a_grant_that_was_judged_lets_in() -> None:
    answers = [says(granted()), *judging()]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        assert (await GrantResolver(client).read_grant(ASKED)).pod == "worker-a"


async def test_a_grant_from_before_the_policy_stood_lets_nobody_in() -> None:
    """It may have been made by who has not the right, while nobody judged."""
    answers = [says(granted(60)), *judging(30)]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        with pytest.raises(AccessRefused, match="This WorkerAccess was made before"):
            await GrantResolver(client).read_grant(ASKED)


@pytest.mark.parametrize("found", [says(granted()), refuses(404)], ids=["another key", "no grant"])
async def test_who_has_no_grant_costs_one_question(found: Answer) -> None:
    asked = replace(ASKED, key="j" * 43)
    async with serving(Server(lists=[found, *judging()])) as server, connected(server.url) as client:
        with pytest.raises(AccessRefused, match="There is no WorkerAccess of this name that this key opens"):
            await GrantResolver(client).read_grant(asked)
        assert len(server.asked) == 1


PROFILED = worker_cluster(clusterProfileRef={"name": "east", "namespace": "fleet"})


async def test_what_may_not_be_read_on_the_way_to_a_cluster_is_named() -> None:
    """Whatever it is: a Secret, a ClusterProfile or a MultiKueueCluster."""
    said = 'clusterprofiles.multicluster.x-k8s.io "east" is forbidden: User "a" cannot get resource'
    answers = [says(SYSTEM), says(PROFILED), refuses(403, message=said)]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        with pytest.raises(AccessRefused) as told:
            async with GrantResolver(client).worker_cluster_client(GRANT, "east"):
                pass
    assert told.value.refusal.message == (
        f"east cannot be asked: the manager does not show {names.ACCESS_ACCOUNT} what leads there (403 Forbidden: {said}); an administrator of "
        "the manager applies kustomize/components/worker-access again, and for a MultiKueueCluster gives it that right (docs/logs.md)."
    )
