"""The addresses, rules, cuts and status of islands; tests/islands has the connections on the lab."""

import re
from pathlib import Path

import pytest

from hack.lab import cli, faults, status
from hack.lab.base.lab import HOST, NETWORKS, SITE, WAN, Cluster, Lab
from hack.lab.cluster import certificates, gateway

FLAT, ISLANDS = Lab(), Lab(network="islands")


def test_islands_have_the_same_pods_and_nodes_behind_gateways_of_their_own() -> None:
    clusters = ISLANDS.clusters
    assert len({cluster.pods for cluster in clusters}) == len({cluster.fake_pods for cluster in clusters}) == 1
    assert len({cluster.node_address for cluster in clusters}) == 1
    assert [cluster.address for cluster in clusters] == [cluster.address for cluster in FLAT.clusters]
    assert clusters[0].pods == FLAT.manager.pods


def test_flat_clusters_have_addresses_of_their_own() -> None:
    assert len({cluster.pods for cluster in FLAT.clusters}) == 3
    assert all(cluster.node_address == cluster.address for cluster in FLAT.clusters)
    assert {cluster.island for network in ("flat", "isolated") for cluster in Lab(network=network).clusters} == {False}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("mgr", {6443: {HOST}, 30443: {WAN}}, id="all dial the manager's one port, this machine its API"),
        pytest.param("east", {6443: {HOST, ISLANDS.manager.address}}, id="the manager dials a worker's API server"),
    ],
)
def test_few_ports_lead_into_an_island(name: str, want: dict[int, set[str]]) -> None:
    cluster = ISLANDS.cluster(name)
    own = {SITE, cluster.pods}
    forward = rf"ip saddr {{ (.*) }} ip daddr {cluster.address} tcp dport (\d+) dnat to {cluster.node_address}:\2$"
    rules = re.findall(forward, gateway.rules(ISLANDS, cluster), re.MULTILINE)
    assert {int(port): set(callers.split(", ")) - own for callers, port in rules} == want
    assert all(own < set(callers.split(", ")) for callers, _ in rules), "the site's own pods use them, too"
    assert gateway.rules(ISLANDS, cluster).count("policy drop") == 2


def test_a_cut_of_an_island_leaves_its_own_pods_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All islands have the same pods: a rule for those of the others would match its own."""
    tables: list[str] = []
    monkeypatch.setattr(faults, "_nft", lambda _, text: tables.append(text))
    east = ISLANDS.cluster("east")
    for scope in faults.SCOPES:
        faults.cut(ISLANDS, east, scope=scope)
    faults.lose(ISLANDS, east, percent=5)
    assert [table for table in tables if east.pods in table] == []
    api, data, whole, _ = (set(re.findall(r"^ ?(.* counter) drop$", table, re.MULTILINE)) for table in tables)
    node, others = east.node_address, f"{{ {ISLANDS.manager.address}, {ISLANDS.cluster('west').address} }}"
    assert api == {
        f"ip saddr {others} ip daddr {node} tcp dport 6443 counter",
        f"ip saddr {node} tcp sport 6443 ip daddr {others} counter",
    }
    assert data == {f"ip {way} {others} tcp dport != 6443 tcp sport != 6443 counter" for way in ("saddr", "daddr")}
    assert whole == {f"ip {way} {others} counter" for way in ("saddr", "daddr")}


def test_certificates_are_made_anew_for_another_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet of an island answers at an address that its certificate on a flat network lacks."""
    made: list[str] = []

    def make(_: Path, role: certificates._Role) -> None:
        if role.name == "kubelet":
            made.append(role.names)

    monkeypatch.setattr(certificates, "_authority", lambda _: None)
    monkeypatch.setattr(certificates, "_certificate", make)
    monkeypatch.setattr(certificates, "_kubeconfig", lambda *_: None)
    monkeypatch.setattr(certificates, "_write", lambda *_: None)
    monkeypatch.setattr(certificates, "kubeconfig", lambda *_: tmp_path / "any")
    monkeypatch.setattr(Cluster, "directory", tmp_path)
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "admin.kubeconfig").touch()
    for lab in (FLAT, FLAT, ISLANDS, ISLANDS, FLAT):
        certificates.ensure(lab.cluster("east"))
    assert [f"IP:{ISLANDS.manager.node_address}" in names for names in made] == [False, True, False]


def test_status_says_what_leads_from_island_to_island() -> None:
    assert status.network_lines(FLAT) == []
    mgr, east, west = ISLANDS.clusters
    assert status.network_lines(ISLANDS) == [
        f"Network islands: every cluster has the pod CIDR {mgr.pods}, behind a NAT of its own.",
        f"All may dial mgr at {mgr.address}:30443, a NodePort.",
        f"mgr may dial the API servers: east at {east.address}:6443, west at {west.address}:6443.",
    ]


def test_up_knows_the_networks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["up", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}: {what}" in said for name, what in NETWORKS.items())
    assert cli._parser().parse_args(["up"]).network == "flat"
