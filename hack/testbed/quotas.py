"""Sets the quota of the demo's queue in a cluster for a while; its other quota, and all of it afterwards, is
unchanged."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hack.testbed.clusters import Cluster
from hack.testbed.rayjob import QUEUE


@contextmanager
def given(cluster: Cluster, amounts: Mapping[str, str]) -> Iterator[None]:
    """Give the queue's one flavor these quotas, also of resources that it does not cover."""
    before = cluster.get("clusterqueues", QUEUE)["spec"]["resourceGroups"]
    (group,) = before
    (flavor,) = group["flavors"]
    quotas = {each["name"]: each for each in flavor["resources"]}
    quotas |= {name: {**quotas.get(name, {}), "name": name, "nominalQuota": said} for name, said in amounts.items()}
    changed = {"coveredResources": list(quotas), "flavors": [{**flavor, "resources": list(quotas.values())}]}
    try:
        _write(cluster, [changed])
        yield
    finally:
        _write(cluster, before)


def _write(cluster: Cluster, groups: object) -> None:
    patch = json.dumps(
        [{"op": "add", "path": "/spec/resourceGroups", "value": groups}]
    )  # adding replaces the present value
    cluster.kubectl("patch", "clusterqueue", QUEUE, "--type=json", "-p", patch)
