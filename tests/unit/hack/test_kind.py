"""Three kind clusters can form a fleet: separate pod addresses, and a route between any two. Docker is not needed."""

import shlex
import shutil
from ipaddress import IPv4Network
from itertools import combinations

import pytest
import yaml

from hack.kind import __main__ as program
from hack.kind import clusters
from hack.kind.clusters import CLUSTERS
from hack.lab.base import versions
from hack.lab.base.paths import REPO

ADDRESSES = {"mgr": "172.18.0.2", "east": "172.18.0.3", "west": "172.18.0.4"}
CONFIGURATIONS = [yaml.safe_load(clusters.configuration(cluster, clusters.NODE_IMAGE)) for cluster in CLUSTERS]


def test_the_configuration_has_one_node_of_the_tested_version() -> None:
    for cluster, found in zip(CLUSTERS, CONFIGURATIONS, strict=True):
        assert (found["kind"], found["apiVersion"], found["name"]) == (
            "Cluster",
            "kind.x-k8s.io/v1alpha4",
            cluster.kind,
        )
        assert found["nodes"] == [{"role": "control-plane", "image": f"kindest/node:{versions.KUBERNETES}"}]


def test_no_two_clusters_share_an_address() -> None:
    networks = [
        IPv4Network(found["networking"][which]) for found in CONFIGURATIONS for which in ("podSubnet", "serviceSubnet")
    ]
    assert len(networks) == 6
    assert [two for two in combinations(networks, 2) if two[0].overlaps(two[1])] == []
    docker = IPv4Network("172.16.0.0/12")  # Docker's range of networks
    assert not any(network.overlaps(docker) for network in networks)


def test_pod_addresses_alone_are_not_translated() -> None:
    pods = IPv4Network(clusters.PODS)
    for found in CONFIGURATIONS:
        assert IPv4Network(found["networking"]["podSubnet"]).subnet_of(pods)
        assert not IPv4Network(found["networking"]["serviceSubnet"]).overlaps(pods)
    assert clusters.unmasked("FILE")[-1] == f"POD_SUBNET={pods}"


def test_each_node_has_a_route_to_the_pods_of_the_others() -> None:
    told = [shlex.join(command) for command in clusters.routes(ADDRESSES)]
    assert len(told) == 6
    assert "docker exec rayspan-mgr-control-plane ip route replace 10.65.0.0/16 via 172.18.0.3" in told
    assert "docker exec rayspan-east-control-plane ip route replace 10.66.0.0/16 via 172.18.0.4" in told
    for cluster in CLUSTERS:
        assert not any(f"{cluster.node} ip route replace {cluster.pods} " in line for line in told)


def test_the_workers_are_those_of_the_overlay() -> None:
    fleet = yaml.safe_load_all((REPO / "kustomize/overlays/demo-fleet/fleet.yaml").read_text())
    workers = {one["metadata"]["name"] for one in fleet if one["kind"] == "WorkerCluster"}
    assert {cluster.name for cluster in CLUSTERS} == {clusters.MANAGER, *workers}


def test_a_kubeconfig_has_the_nodes_address() -> None:
    east = CLUSTERS[1]
    text = "clusters:\n- cluster:\n    server: https://rayspan-east-control-plane:6443\n"
    assert "server: https://172.18.0.3:6443\n" in clusters.login(text, east, ADDRESSES["east"])


@pytest.mark.parametrize("there", [(), ("docker", "kubectl")], ids=["nothing", "no kind"])
def test_missing_programs_are_reported_first(
    there: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name in there else None)
    assert program.main(["demo"]) == 1
    lacks = [name for name in ("docker", "kind", "kubectl") if name not in there]
    assert f"without {', '.join(lacks)}. " in capsys.readouterr().err
