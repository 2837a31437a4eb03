"""Prepares the lab's islands for the demo, as administrators do: the relay, and room for what it adds to the pods."""

import json

from hack.lab.base import lab as definition
from hack.testbed import relay
from hack.testbed.clusters import Cluster, Clusters

# A queue of the samples holds exactly two workers; each has the relay's sidecar now (50m, 40Mi).
_WORKER_QUOTA = {"cpu": "500m", "memory": "1104Mi"}


def prepare(fleet: Clusters) -> None:
    relay.connect(definition.load(), fleet)
    for cluster in fleet.workers.values():
        _set_quota(cluster)


def _set_quota(cluster: Cluster) -> None:
    resources = [{"name": name, "nominalQuota": quota} for name, quota in _WORKER_QUOTA.items()]
    path = "/spec/resourceGroups/0/flavors/0/resources"
    patch = [{"op": "replace", "path": path, "value": resources}]
    cluster.kubectl("patch", "clusterqueue", "ray", "--type=json", "-p", json.dumps(patch))
