"""How do worker clusters beyond the demo's two come into the fleet, for as long as somebody measures with them?

Their Secrets are there: installing hands over the kubeconfig of every worker cluster of the lab.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import yaml

from adapter import names
from hack.testbed.clusters import Clusters, condition

_PATIENCE = 60.0  # seconds; a connection takes one or two


@contextmanager
def connected(fleet: Clusters, chosen: Sequence[str]) -> Iterator[None]:
    """See to it that each of the clusters has a WorkerCluster and is connected; those made here go in the end."""
    manager = fleet.manager
    missing = [name for name in chosen if not manager.get("workerclusters", name)]
    for name in missing:
        spec = {"source": {"kubeConfig": {"secretRef": {"name": name}}}, "zone": name}
        made = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": name}}
        manager.apply(yaml.safe_dump({**made, "spec": spec}))
    try:
        for name in chosen:
            manager.wait(partial(_connected, fleet, name), _PATIENCE, f"{name} is connected")
        yield
    finally:
        for name in missing:  # whoever still holds quota there, after a run that failed, is given up
            manager.kubectl("annotate", "workercluster", name, f"{names.FORCE_DELETE_ANNOTATION}=true", "--overwrite")
            manager.delete("workercluster", name)


def _connected(fleet: Clusters, name: str) -> bool:
    found = fleet.manager.get("workerclusters", name)
    return bool(condition(found, names.CONNECTED).get("status") == "True")
