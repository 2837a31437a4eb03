"""Changes the configuration of stock Kueue for a test, and restores it.

Kueue reads its configuration, and which kinds exist, when it starts: a change counts after a restart.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import yaml

from adapter import names
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw

_DEPLOYMENT = "kueue-controller-manager"
_LEASE = "c1f6bfd2.kueue.x-k8s.io"
_CONFIG = "kueue-manager-config"
_PATIENCE = 120.0  # seconds for a restart; five to fifteen on an idle machine


@contextmanager
def changed(cluster: Cluster, change: Callable[[Raw], Raw]) -> Iterator[None]:
    """Change what Kueue reads when it starts, for a while."""
    before = cluster.get("configmaps", _CONFIG, names.KUEUE_NAMESPACE)["data"][names.KUEUE_CONFIG_KEY]

    def write(text: str) -> None:
        patch = json.dumps({"data": {names.KUEUE_CONFIG_KEY: text}})
        cluster.kubectl("-n", names.KUEUE_NAMESPACE, "patch", "configmap", _CONFIG, "--type=merge", "-p", patch)

    try:
        write(yaml.safe_dump(change(yaml.safe_load(before))))
        yield
    finally:
        write(before)


def restart(clusters: Iterable[Cluster]) -> None:
    """Restart Kueue, and wait until it leads again."""
    restarted = list(clusters)
    for one in restarted:
        one.kubectl("-n", names.KUEUE_NAMESPACE, "rollout", "restart", f"deployment/{_DEPLOYMENT}")
    for one in restarted:
        one.kubectl("-n", names.KUEUE_NAMESPACE, "rollout", "status", f"deployment/{_DEPLOYMENT}", "--timeout=120s")
        one.wait(functools.partial(_alone, one), _PATIENCE, "the Kueue before is gone")
        if not _leads(one):  # a pod that is gone holds its Lease for fifteen seconds more
            one.delete("lease", _LEASE, names.KUEUE_NAMESPACE)
        one.wait(functools.partial(_leads, one), _PATIENCE, "Kueue leads")


def _alone(one: Cluster) -> bool:
    return len(one.items("pods", names.KUEUE_NAMESPACE, "control-plane=controller-manager")) == 1


def _leads(one: Cluster) -> bool:
    lease = one.get("leases", _LEASE, names.KUEUE_NAMESPACE)
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    (pod,) = one.items("pods", names.KUEUE_NAMESPACE, "control-plane=controller-manager")
    return holder.startswith(pod["metadata"]["name"])
