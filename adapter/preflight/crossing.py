"""Do the pods of two clusters reach each other as Ray's nodes must, and could they be taken for one another?

Each way is judged by what the pod found that went it: a firewall may let in what it does not let out.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import combinations, permutations

from adapter.preflight.facts import Finding, Side
from adapter.preflight.probe import PORT, SILENCE_SECONDS

# Ray tolerates more, but each task that waits for another's result waits for this several times.
SLOW_MILLISECONDS = 100.0
NARROW_MEGABITS = 100.0  # a gigabyte would take more than a minute
SKEWED_SECONDS = 1.0  # kubelets and Kueue write their times in whole seconds


def judge(sides: Sequence[Side]) -> Iterator[Finding]:
    """Say for each pair whether their addresses overlap, and for each of its two ways whether it works, and how well."""
    for one, other in combinations(sides, 2):
        yield from _overlap(one, other)
    for one, other in permutations(sides, 2):
        yield from _path(one, other)


def _overlap(one: Side, other: Side) -> Iterator[Finding]:
    if one.trouble or other.trouble or one.unread or other.unread:
        return
    pair = (one.name, other.name)
    shared = _shared(one, other)
    if shared:
        text = f"{shared}, so a pod of one cannot be told from a pod of the other; give one of the clusters another pod network."
        yield Finding(pair, "PodNetwork", "failure", text, "AddressesOverlap")
    else:
        yield Finding(pair, "PodNetwork", "ok", "No pod addresses are in use on both sides.")


def _shared(one: Side, other: Side) -> str:
    for network in _used(one):
        for theirs in _used(other):
            if network.version == theirs.version and network.overlaps(theirs):
                return (
                    f"Nodes of {one.name} give their pods addresses of {network}, and nodes of {other.name} of {theirs}"
                )
    both = sorted({*one.addresses, one.address} & {*other.addresses, other.address} - {""})
    return f"Address {both[0]} is that of a pod in {one.name} and of one in {other.name}" if both else ""


def _used(side: Side) -> list[IPv4Network | IPv6Network]:
    """The pod CIDRs of its nodes, if its network keeps to them: many take their addresses from elsewhere."""
    networks = [ip_network(text, strict=False) for text in side.networks]
    if side.address and not any(ip_address(side.address) in network for network in networks):
        return []
    return networks


def _path(one: Side, other: Side) -> Iterator[Finding]:
    trip = one.trips.get(other.name)
    if trip is None:
        return
    pair = (one.name, other.name)
    if trip.error:
        reason, text = _broken(one, other, trip.error)
        yield Finding(pair, "Path", "failure", text, reason)
        return
    yield Finding(
        pair, "Path", "ok", f"A pod in {one.name} reaches one in {other.name} at {other.address} port {PORT}."
    )
    if trip.milliseconds is not None and trip.milliseconds > SLOW_MILLISECONDS:
        text = f"It takes {trip.milliseconds:.0f} ms from {one.name} to {other.name} and back; keep jobs whose tasks talk much in one cluster (gang SameCluster)."
        yield Finding(pair, "Latency", "warning", text)
    if trip.megabits is not None and trip.megabits < NARROW_MEGABITS:
        text = f"Only {trip.megabits:.0f} Mbit/s go from {one.name} to {other.name}; objects and results of tasks travel that way."
        yield Finding(pair, "Bandwidth", "warning", text)
    if trip.ahead is not None and abs(trip.ahead) > SKEWED_SECONDS and one.name < other.name:
        which = "ahead of" if trip.ahead > 0 else "behind"
        text = f"The clock in {other.name} is {abs(trip.ahead):.1f} s {which} the one in {one.name}; let both follow the same time servers."
        yield Finding(pair, "Clock", "warning", text)


def _broken(one: Side, other: Side, error: str) -> tuple[str, str]:
    """Reason and sentence for a path that does not work."""
    way = f"A pod in {one.name} cannot reach one in {other.name} at {other.address} port {PORT}"
    open_it = "open all ports between the pod networks of both clusters"
    match error:
        case "timeout":
            return (
                "NoRoute",
                f"{way}: no answer in {SILENCE_SECONDS:.0f} s; see routes, firewalls and NetworkPolicies, and {open_it}.",
            )
        case "unreachable":
            return "NoRoute", f"{way}: there is no route; make the pod networks of both clusters route to each other."
        case "refused":
            return "Refused", f"{way}: the connection is refused; see firewalls and NetworkPolicies, and {open_it}."
        case "stranger":
            text = f"{way}: something else answers there; see whether both clusters use the same pod addresses, or a proxy sits between them."
            return "AddressesOverlap", text
        case "stalled":
            text = f"From a pod in {one.name} to one in {other.name}, small packets arrive and large ones do not; lower the MTU of the pod network, or let ICMP pass."
            return "LargePacketsLost", text
        case "broken":
            return "Broken", f"{way}: the connection broke; see what sits between the clusters."
        case _:
            return "Broken", f"{way}: {error}."
