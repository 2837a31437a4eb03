"""Do real Ray workers find their head by each name that a WorkerCluster may give it, also when its clusters differ in that?"""

from collections.abc import Mapping

import pytest

from adapter import names
from e2e.heads import STATIC, found_by, resolving
from e2e.job import NAMESPACE, Job
from hack.apireader import Raw

MIRROR, POD_IP, CLUSTER_SET = ({"address": each} for each in ("ServiceMirror", "PodIP", "ClusterSet"))
WAYS: Mapping[str, tuple[Mapping[str, Raw], Mapping[str, str]]] = {
    "mirror-and-cluster-set": (
        {"east": MIRROR, "west": CLUSTER_SET},
        {"east": ".default.svc.cluster.local", "west": ".default.svc.clusterset.local"},
    ),
    "static-and-pod-ip": (
        {"east": {"address": "Static", "template": STATIC}, "west": POD_IP},
        {"east": ".default.ray.example.com", "west": ""},
    ),
}


@pytest.mark.parametrize("ways", WAYS)
def test_found_by(job: Job, ways: str) -> None:
    """Two workers in east and one in west, which call the head by different names and are one RayCluster."""
    heads, dialled = WAYS[ways]
    job.workers = 3
    resolver = "west" if heads["west"] is CLUSTER_SET else "east"
    with resolving(job.fleet, resolver), found_by(job.fleet, heads):
        job.submit()
        job.wait_for_workers()
        for name, suffix in dialled.items():
            copies = job.fleet.workers[name].items("pods", NAMESPACE, names.MANAGER_LABEL)
            assert copies and all(_dials(copy).endswith(f"-head-svc{suffix}") is bool(suffix) for copy in copies)
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        result = job.result()
        assert result["ok"]
        assert sorted(node["cluster"] for node in result["nodes"]) == ["east", "east", "manager", "west"]
        job.delete()
        job.wait_until_gone()


def _dials(copy: Raw) -> str:
    env = {each["name"]: each.get("value", "") for each in copy["spec"]["containers"][0]["env"]}
    return str(env["FQ_RAY_IP"])
