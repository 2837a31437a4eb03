"""Finds the clusters with Volcano's PodGroup CRD. No Volcano runs there that would schedule."""

from collections.abc import Iterator
from contextlib import contextmanager

from adapter import names
from hack.lab.build import tools
from hack.testbed.clusters import Cluster

KIND = f"podgroups.{names.VOLCANO_GROUP}"
_CRD = f"installer/helm/chart/volcano/crd/bases/{names.VOLCANO_GROUP}_podgroups.yaml"


@contextmanager
def known(cluster: Cluster) -> Iterator[None]:
    """Within, the cluster knows PodGroups, as where Volcano is installed."""
    path = tools.module_dir("volcano") / _CRD
    cluster.kubectl("apply", "-f", path)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=30s")
    try:
        yield
    finally:
        cluster.kubectl("delete", "-f", path)
