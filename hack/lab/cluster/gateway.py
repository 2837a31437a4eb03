"""The rules of an island's gateway: NAT outwards, and the few ports that lead inwards.

A site's nodes and pods dial out and come from the gateway's address. What comes in unasked is dropped in silence, as by
a usual firewall, except for its API server, which the manager's controller must dial, and for the one open port of the
manager. Only this machine dials the manager's own API server. A site's own nodes and pods may use these ports, too.
"""

from hack.lab.base.lab import API_PORT, HOST, OPEN_PORT, SITE, WAN, Cluster, Lab

SITE_LINK = "site0"  # the gateway's end of the link to its site
_TABLE = """
add table ip rayspan-gateway
delete table ip rayspan-gateway
table ip rayspan-gateway {{
    chain inwards {{
        type nat hook prerouting priority dstnat;
        {forwards}
    }}
    chain outwards {{
        type nat hook postrouting priority srcnat;
        ip saddr {within} masquerade
    }}
    chain forward {{
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        iifname "{inside}" accept
        ct status dnat accept
    }}
    chain input {{
        type filter hook input priority filter; policy drop;
        ct state established,related accept
        iifname {{ "lo", "{inside}" }} accept
    }}
}}
"""


def rules(lab: Lab, cluster: Cluster) -> str:
    """What nft makes of a gateway; it replaces what was there."""
    site = (SITE, cluster.pods)
    callers = (HOST,) if cluster.is_manager else (HOST, lab.manager.address)
    forwards = [_forward(cluster, API_PORT, (*site, *callers))]
    if cluster.is_manager:
        forwards.append(_forward(cluster, OPEN_PORT, (*site, WAN)))
    return _TABLE.format(forwards="\n        ".join(forwards), within=_set(site), inside=SITE_LINK)


def _forward(cluster: Cluster, port: int, callers: tuple[str, ...]) -> str:
    to = f"{cluster.node_address}:{port}"
    return f"ip saddr {_set(callers)} ip daddr {cluster.address} tcp dport {port} dnat to {to}"


def _set(addresses: tuple[str, ...]) -> str:
    return "{ " + ", ".join(addresses) + " }"
