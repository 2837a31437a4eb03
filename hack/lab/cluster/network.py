"""Connects the clusters with each other and with this machine.

A bridge in a namespace of its own, without an uplink, joins one namespace per cluster and, by one link, the root
namespace. On islands it joins a gateway's namespace in place of a cluster's (gateway.py). All rules and settings live
inside those namespaces: the machine gets one link and its routes, no firewall rule, no sysctl. The lab is closed: it
has no route or resolver that leads out.
"""

import ipaddress
import json
import socket
from pathlib import Path

from hack.lab.base.commands import run
from hack.lab.base.lab import GATEWAY, HOST, NAMESPACES, SERVICES, SUBNET, WAN, Cluster, Lab
from hack.lab.base.paths import NAME
from hack.lab.base.progress import LabError
from hack.lab.cluster import gateway

SWITCH = f"{NAMESPACES}wan"  # the namespace that holds the bridge
LINK = NAME  # the root namespace's end of its link
UPLINK = "wan0"  # a cluster's end of its link, and a gateway's
_HOST_PORT = "host"  # the bridge's end of the root namespace's link; a cluster's has the cluster's name
_NAMED = Path("/run/netns")
_FORWARDING = {
    "ipv4/ip_forward": "1",  # a node routes between its pods and the WAN
    "bridge/bridge-nf-call-iptables": "1",  # a pod that calls itself through its Service needs kube-proxy's rules
}


def ensure(lab: Lab) -> None:
    """Make everything that is missing; what is there already stays."""
    _refuse_conflict()
    _switch()
    for cluster in lab.clusters:
        _namespace(cluster)
    for cluster in lab.clusters:
        _routes(lab, cluster)


def remove_cluster(cluster: Cluster) -> None:
    """The namespace takes its links, routes and firewall rules with it, once no process is inside."""
    for name in (cluster.namespace, cluster.gateway):
        if (_NAMED / name).exists():
            run(["ip", "netns", "delete", name])
    run(["ip", "-n", SWITCH, "link", "delete", cluster.name], check=False)  # else it lingers until the kernel tidies up


def remove_switch() -> None:
    run(["ip", "link", "delete", LINK], check=False)
    if (_NAMED / SWITCH).exists():
        run(["ip", "netns", "delete", SWITCH])
    if _mounted() and not any(_NAMED.iterdir()):
        run(
            ["umount", _NAMED]
        )  # `ip netns` mounts the directory on itself for its first namespace, and never undoes it


def remains() -> list[str]:
    names = [f"namespace {place.name}" for place in _NAMED.glob(f"{NAMESPACES}*")]
    links = [f"link {LINK}"] if _linked() else []
    routes = [f"route {route['dst']}" for route in _conflicts()]
    return names + links + routes


def plug(cluster: Cluster, *, connected: bool) -> None:
    """Pull the cluster's cable at the bridge, or put it back; the cluster itself keeps its addresses and routes."""
    run(["ip", "-n", SWITCH, "link", "set", cluster.name, "up" if connected else "down"])


def plugged(cluster: Cluster) -> bool:
    said = json.loads(run(["ip", "-n", SWITCH, "-j", "link", "show", cluster.name]))
    return "UP" in said[0]["flags"]


def _switch() -> None:
    _add_namespace(SWITCH)
    if not _has(SWITCH, "bridge"):
        run(["ip", "-n", SWITCH, "link", "add", "bridge", "type", "bridge"])
    _ip(SWITCH, "link set lo up", "link set bridge up")
    if not _linked():
        run(["ip", "link", "add", LINK, "type", "veth", "peer", "name", _HOST_PORT, "netns", SWITCH])
    _ip(SWITCH, f"link set {_HOST_PORT} master bridge up")
    _ip(None, f"address replace {HOST}/24 dev {LINK}", f"link set {LINK} up")


def _namespace(cluster: Cluster) -> None:
    edge = cluster.gateway if cluster.island else cluster.namespace
    _router(cluster.namespace)
    _router(edge)
    _connect(edge, UPLINK, SWITCH, cluster.name)
    _ip(SWITCH, f"link set {cluster.name} master bridge")
    _ip(edge, f"address replace {cluster.address}/24 dev {UPLINK}", f"link set {UPLINK} up")
    if cluster.island:
        _site(cluster)
    plug(cluster, connected=True)


def _router(name: str) -> None:
    """A namespace that forwards packets."""
    _add_namespace(name)
    _ip(name, "link set lo up")
    for key, value in _FORWARDING.items():
        run(["nsenter", f"--net={_NAMED / name}", "sh", "-c", f"echo {value} > /proc/sys/net/{key}"])


def _site(cluster: Cluster) -> None:
    """The network between an island's gateway and its node."""
    _connect(cluster.gateway, gateway.SITE_LINK, cluster.namespace, UPLINK)
    ends = {
        cluster.namespace: (cluster.node_address, UPLINK),
        cluster.gateway: (GATEWAY, gateway.SITE_LINK),
    }
    for name, (address, link) in ends.items():
        _ip(name, f"address replace {address}/24 dev {link}", f"link set {link} up")


def _connect(near: str, link: str, far: str, far_link: str) -> None:
    """A cable between two namespaces."""
    if not _has(near, link):
        run(["ip", "link", "add", link, "netns", near, "type", "veth", "peer", "name", far_link, "netns", far])


def _routes(lab: Lab, cluster: Cluster) -> None:
    """The root namespace reaches all pods, except on islands; other clusters' pods do so only in a flat network."""
    # A node finds a route first, kube-proxy's rule next.
    _ip(cluster.namespace, f"route replace {SERVICES} dev {UPLINK}")
    if cluster.island:
        _island_routes(lab, cluster)
        return
    _ip(None, f"route replace {cluster.pods} via {cluster.address} dev {LINK}")
    if lab.network == "flat":
        _ip(cluster.namespace, *(f"route replace {other.pods} via {other.address}" for other in lab.others(cluster)))
    else:
        _masquerade(cluster)


def _island_routes(lab: Lab, cluster: Cluster) -> None:
    _ip(cluster.namespace, f"route replace {WAN} via {GATEWAY}")
    _ip(cluster.gateway, f"route replace {cluster.pods} via {cluster.node_address}")
    run(["nsenter", f"--net={_NAMED / cluster.gateway}", "nft", "-f", "-"], input=gateway.rules(lab, cluster))


def _masquerade(cluster: Cluster) -> None:
    """Pods still reach the other clusters' API servers, but come from their node's address, as through a
    NAT gateway."""
    rules = f"""
    add table ip rayspan-nat
    delete table ip rayspan-nat
    table ip rayspan-nat {{
        chain out {{
            type nat hook postrouting priority srcnat;
            ip saddr {cluster.pods} ip daddr {WAN} masquerade
        }}
    }}
    """
    run(["nsenter", f"--net={_NAMED / cluster.namespace}", "nft", "-f", "-"], input=rules)


def _refuse_conflict() -> None:
    taken = _conflicts(ours=False)
    if taken:
        raise LabError(f"This machine already routes {taken[0]['dst']}, and the lab needs {SUBNET}: free it first.")


def _conflicts(*, ours: bool = True) -> list[dict[str, str]]:
    """Routes of the root namespace into the lab's addresses; with ours=False only those that lead elsewhere."""
    block = ipaddress.ip_network(SUBNET)
    routes: list[dict[str, str]] = json.loads(run(["ip", "-4", "-j", "route", "show"]))
    inside = [route for route in routes if _network(route["dst"]).overlaps(block) and route["dst"] != "default"]
    return [route for route in inside if ours or route.get("dev") != LINK]


def _network(text: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network("0.0.0.0/0" if text == "default" else text, strict=False)


def _linked() -> bool:
    return any(name == LINK for _, name in socket.if_nameindex())


def _mounted() -> bool:
    """Not Path.is_mount(), which does not see a directory that is mounted on itself."""
    return any(
        line.split()[1] == str(_NAMED) for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    )


def _add_namespace(name: str) -> None:
    if not (_NAMED / name).exists():
        run(["ip", "netns", "add", name])


def _has(namespace: str, link: str) -> bool:
    links = json.loads(run(["ip", "-n", namespace, "-j", "link", "show"]))
    return any(found["ifname"] == link for found in links)


def _ip(namespace: str | None, *lines: str) -> None:
    """Several ip commands in one namespace (None: the root's), in one process."""
    where = ["-n", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], input="\n".join(lines) + "\n")
