"""What must stand in the manager before somebody comes to a worker cluster, and what is said where it does not? By a small API server."""

from datetime import UTC, datetime
from typing import Any

import pytest

from adapter import names
from adapter.access.grant import LOG, Grant
from adapter.shell.access.door import Door, Refused
from tests.unit.apiserver import Server, connected, refuses, says, serving

Raw = dict[str, Any]
GRANT = Grant(
    "default", "kubectl-1", "u-g", "worker-a", "u-1", LOG, "", (), stdin=False, tty=False, key_hash="", created=datetime.now(UTC)
)  # fmt: skip
SYSTEM = {"metadata": {"name": "kube-system", "uid": "m"}}


def worker_cluster(**source: Raw) -> Raw:
    return {"metadata": {"name": "east"}, "spec": {"source": source}}


PROFILED = worker_cluster(clusterProfileRef={"name": "east", "namespace": "fleet"})


async def test_what_may_not_be_read_on_the_way_to_a_cluster_is_named() -> None:
    """Whatever it is: a Secret, a ClusterProfile or a MultiKueueCluster."""
    said = 'clusterprofiles.multicluster.x-k8s.io "east" is forbidden: User "a" cannot get resource'
    answers = [says(SYSTEM), says(PROFILED), refuses(403, message=said)]
    async with serving(Server(lists=answers)) as server, connected(server.url) as client:
        with pytest.raises(Refused) as told:
            async with Door(client).there(GRANT, "east"):
                pass
    assert told.value.refusal.message == (
        f"east cannot be asked: the manager does not show {names.ACCESS_ACCOUNT} what leads there (403 Forbidden: {said}); an administrator of "
        "the manager applies kustomize/components/worker-access again, and for a MultiKueueCluster gives it that right (docs/logs.md)."
    )
