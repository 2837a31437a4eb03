"""Opens namespaces to jobs for a while: each has a LocalQueue of the demo's ClusterQueue in every cluster."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import yaml

from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.rayjob import QUEUE
from hack.testbed.stage import local_queue, tenancy


@contextmanager
def opened(fleet: Clusters, namespaces: Sequence[str]) -> Iterator[None]:
    """Create the namespaces; in the end they are deleted with all that is in them."""
    try:
        for cluster in fleet.all:
            _open(cluster, namespaces, is_worker=cluster is not fleet.manager)
        yield
    finally:
        for cluster in fleet.all:
            cluster.kubectl("delete", "namespace", *namespaces, "--ignore-not-found")


def _open(cluster: Cluster, namespaces: Sequence[str], *, is_worker: bool) -> None:
    for namespace in namespaces:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        bindings = [tenancy(namespace)] if is_worker else []
        cluster.apply(yaml.safe_dump_all([made, *bindings, local_queue(QUEUE, namespace, QUEUE)]))
