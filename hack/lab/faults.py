"""Breaks the connections between clusters and heals them: by rules in a cluster's own namespace, or its cable.

Packets of the root namespace always pass, except with a pulled cable, so that a test can read a cluster that it has cut
off. Rules see every packet, also of open connections, in forward as well as input and output: controllers are pods.
There is no delay here: not every kernel has netem.
"""

import json
from collections.abc import Iterable, Mapping

from hack.lab.base.commands import run
from hack.lab.base.lab import API_PORT, Cluster, Lab
from hack.lab.cluster import isolation, network

SCOPES: Mapping[str, str] = {
    "api": "only its API server, as seen from the other clusters",
    "data": "only packets between its pods and theirs; between islands, all but those to API servers",
    "all": "everything between it and them (default)",
}
WAYS: Mapping[str, str] = {
    "drop": "silence, the hard case (default)",
    "reject": "an error at once",
    "link": "the cable: everything, and this machine as well",
}
_REFUSALS = ("meta l4proto tcp counter reject with tcp reset", "counter reject")
_ANSWERS = (
    "tcp flags & rst == rst accept",
    "icmp type destination-unreachable accept",
)  # a refusal must get through itself
_PREFIX = "rayspan-fault-"
_PRIORITY = "filter - 10"  # before kube-proxy's own rules


def cut(lab: Lab, cluster: Cluster, *, scope: str = "all", way: str = "drop") -> None:
    """Cut until heal(). Cutting the same scope again replaces the way; different scopes add up."""
    if way == "link":
        network.plug(cluster, connected=False)
        return
    _table(cluster, f"cut-{scope}", _cut_rules(lab, cluster, scope, way))


def lose(lab: Lab, cluster: Cluster, *, percent: int) -> None:
    """Drop so many of a hundred packets at random, in each direction."""
    theirs = _addresses(lab.others(cluster))
    chance = f"numgen random mod 100 < {percent} counter drop"
    _table(cluster, "loss", [f"ip saddr {theirs} {chance}", f"ip daddr {theirs} {chance}"])


def translate(lab: Lab, cluster: Cluster) -> None:
    """Let new connections of its pods to those of the others come from its node's address, as a CNI masquerades."""
    theirs = "{ " + ", ".join(other.pods for other in lab.others(cluster)) + " }"
    rule = f"ip saddr {cluster.pods} ip daddr {theirs} masquerade"
    table = f"inet {_PREFIX}nat"
    chain = f"chain out {{\n type nat hook postrouting priority srcnat;\n {rule}\n}}"
    _nft(cluster, f"add table {table}\ndelete table {table}\ntable {table} {{\n{chain}\n}}\n")


def heal(lab: Lab, cluster: Cluster | None = None) -> None:
    """End all faults, of one cluster or of all."""
    for one in lab.clusters if cluster is None else (cluster,):
        if not network.plugged(one):
            network.plug(one, connected=True)
        for fault in _tables(one):
            _nft(one, f"delete table inet {fault}")


def active(cluster: Cluster) -> list[str]:
    """The names of the cluster's faults, like cut-api, loss, link."""
    rules = [name.removeprefix(_PREFIX) for name in _tables(cluster)]
    return rules if network.plugged(cluster) else [*rules, "link"]


def _cut_rules(lab: Lab, cluster: Cluster, scope: str, way: str) -> list[str]:
    others = lab.others(cluster)
    if scope == "data" and cluster.island:
        no_api = f"tcp dport != {API_PORT} tcp sport != {API_PORT}"
        matches = [f"ip saddr {_addresses(others)} {no_api}", f"ip daddr {_addresses(others)} {no_api}"]
    elif scope == "data":
        pods = "{ " + ", ".join(other.pods for other in others) + " }"
        matches = [f"ip saddr {cluster.pods} ip daddr {pods}", f"ip saddr {pods} ip daddr {cluster.pods}"]
    elif scope == "api":
        here, theirs = cluster.node_address, _addresses(others)
        matches = [
            f"ip saddr {theirs} ip daddr {here} tcp dport {API_PORT}",
            f"ip saddr {here} tcp sport {API_PORT} ip daddr {theirs}",
        ]
    else:
        matches = [f"ip saddr {_addresses(others)}", f"ip daddr {_addresses(others)}"]
    if way == "drop":
        return [f"{match} counter drop" for match in matches]
    return [*_ANSWERS, *(f"{match} {verdict}" for match in matches for verdict in _REFUSALS)]


def _addresses(clusters: Iterable[Cluster]) -> str:
    """What packets of these clusters come from or go to; those of an island show its gateway only."""
    shown = (cluster.address if cluster.island else f"{cluster.address}, {cluster.pods}" for cluster in clusters)
    return "{ " + ", ".join(shown) + " }"


def _table(cluster: Cluster, name: str, rules: Iterable[str]) -> None:
    body = "\n".join(rules)
    chains = "\n".join(
        f"chain {hook} {{\n type filter hook {hook} priority {_PRIORITY};\n {body}\n}}"
        for hook in ("input", "forward", "output")
    )
    table = f"inet {_PREFIX}{name}"
    _nft(cluster, f"add table {table}\ndelete table {table}\ntable {table} {{\n{chains}\n}}\n")


def _tables(cluster: Cluster) -> list[str]:
    said = json.loads(run([*isolation.network(cluster), "nft", "--json", "list", "tables"]))
    names = [entry["table"]["name"] for entry in said["nftables"] if "table" in entry]
    return [name for name in names if name.startswith(_PREFIX)]


def _nft(cluster: Cluster, text: str) -> None:
    run([*isolation.network(cluster), "nft", "-f", "-"], input=text)
