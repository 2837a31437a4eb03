"""Evaluates what lies between the pods of two clusters: shared addresses, routes, NAT, and how good a path is.

Each direction has its own findings, because a firewall may accept connections that it does not let out. Where no packet
gets through in either, one finding says that there is no route.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import combinations

from adapter import names
from adapter.preflight.preflight_facts import ClusterFacts, Finding
from adapter.preflight.probe import PORT, SILENCE_SECONDS, PathResult

# A slower round trip gets a warning. Ray tolerates it, but a task that waits for another task's result waits for
# several round trips.
SLOW_MILLISECONDS = 100.0
NARROW_MEGABITS = 100.0  # below this, a gigabyte takes more than a minute
SKEWED_SECONDS = 1.0  # kubelets and Kueue write their times in whole seconds
_ROUTELESS = ("timeout", "unreachable")  # no packet comes back


def evaluate_pairs(clusters: Sequence[ClusterFacts]) -> Iterator[Finding]:
    """Of each pair: overlapping addresses, a missing route, and the paths that neither explains."""
    for first, second in combinations(clusters, 2):
        barriers = [*_overlap_findings(first, second), *_route_findings(first, second)]
        yield from barriers
        is_explained = any(barrier.outcome == "failure" for barrier in barriers)
        for source, destination in ((first, second), (second, first)):
            if not is_explained or _has_path(source, destination):
                yield from _path_findings(source, destination)


def _has_path(source: ClusterFacts, destination: ClusterFacts) -> bool:
    path = source.paths.get(destination.name)
    return path is not None and not path.error


def _overlap_findings(first: ClusterFacts, second: ClusterFacts) -> Iterator[Finding]:
    if first.api_error or second.api_error or first.network_error or second.network_error:
        return
    pair = (first.name, second.name)
    shared = _shared_addresses(first, second)
    if shared:
        text = (
            f"{shared}, so pods of the two clusters cannot be distinguished; give one of the clusters "
            f"another pod network, as NAT between them does not help, or join {second.name} by the relay "
            "(spec.network of its WorkerCluster)."
        )
        yield Finding(pair, "PodNetwork", "failure", text, names.ConditionReason.ADDRESSES_OVERLAP)
    else:
        yield Finding(pair, "PodNetwork", "ok", "No pod addresses are in use on both sides.")


def _route_findings(first: ClusterFacts, second: ClusterFacts) -> Iterator[Finding]:
    """One finding for two clusters of which neither reaches the other.

    There is none if they have the same addresses: packets to such an address stay in the cluster, and prove nothing.
    """
    paths = first.paths.get(second.name), second.paths.get(first.name)
    if _shared_addresses(first, second) or not all(path and path.error in _ROUTELESS for path in paths):
        return
    otherwise = f"cordon {second.name}" if first.is_manager else "keep each job in one of them (gang SameCluster)"
    text = (
        f"There is no route from {second.name} to the pods of {first.name}, nor back: at port {PORT} neither "
        f"{first.probe_address} nor {second.probe_address} answers the other; connect the pod networks, open all "
        f"ports between them, join {second.name} by the relay (spec.network of its WorkerCluster), or {otherwise}."
    )
    yield Finding((first.name, second.name), "Path", "failure", text, names.ConditionReason.NO_ROUTE)


def _shared_addresses(first: ClusterFacts, second: ClusterFacts) -> str:
    for network in used_networks(first):
        for other in used_networks(second):
            if network.version == other.version and network.overlaps(other):
                return (
                    f"Nodes of {first.name} give their pods addresses of {network}, and nodes of {second.name} of "
                    f"{other}"
                )
    both = sorted({*first.addresses, first.probe_address} & {*second.addresses, second.probe_address} - {""})
    return f"Address {both[0]} is that of a pod in {first.name} and of one in {second.name}" if both else ""


def used_networks(facts: ClusterFacts) -> list[IPv4Network | IPv6Network]:
    """The pod CIDRs of a cluster's nodes; none if the probe's address is outside them, as many networks ignore them."""
    networks = [ip_network(text, strict=False) for text in facts.networks]
    if facts.probe_address and not any(ip_address(facts.probe_address) in network for network in networks):
        return []
    return networks


def _path_findings(source: ClusterFacts, destination: ClusterFacts) -> Iterator[Finding]:
    trip = source.paths.get(destination.name)
    if trip is None:
        return
    pair = (source.name, destination.name)
    if trip.error:
        reason, text = _broken_path(source, destination, trip.error)
        yield Finding(pair, "Path", "failure", text, reason)
        return
    yield Finding(
        pair,
        "Path",
        "ok",
        f"A pod in {source.name} reaches one in {destination.name} at {destination.probe_address} port {PORT}.",
    )
    yield from _translation_findings(source, destination, trip)
    if trip.milliseconds is not None and trip.milliseconds > SLOW_MILLISECONDS:
        text = (
            f"It takes {trip.milliseconds:.0f} ms from {source.name} to {destination.name} and back; "
            "keep jobs whose tasks communicate a lot in one cluster (gang SameCluster)."
        )
        yield Finding(pair, "Latency", "warning", text)
    if trip.megabits is not None and trip.megabits < NARROW_MEGABITS:
        text = (
            f"Only {trip.megabits:.0f} Mbit/s go from {source.name} to {destination.name}; Ray sends "
            "objects and the results of tasks on this path."
        )
        yield Finding(pair, "Bandwidth", "warning", text)
    if trip.clock_ahead is not None and abs(trip.clock_ahead) > SKEWED_SECONDS and source.name < destination.name:
        which = "ahead of" if trip.clock_ahead > 0 else "behind"
        text = (
            f"The clock in {destination.name} is {abs(trip.clock_ahead):.1f} s {which} the one in {source.name}; let "
            "both follow the same time servers."
        )
        yield Finding(pair, "Clock", "warning", text)


def _translation_findings(source: ClusterFacts, destination: ClusterFacts, trip: PathResult) -> Iterator[Finding]:
    """NAT on the way; Ray runs through it, because its nodes tell each other their own addresses."""
    if trip.seen_address:
        text = (
            f"There is NAT from {source.name} to {destination.name}, which sees a pod of {source.name} at "
            f"{trip.seen_address}, not at the pod's own address; a NAT forgets idle connections, so exclude the pod "
            f"network of {destination.name} from masquerading in {source.name}."
        )
        yield Finding((source.name, destination.name), "NAT", "warning", text)


def _broken_path(source: ClusterFacts, destination: ClusterFacts, error: str) -> tuple[str, str]:
    """Reason and sentence for a broken path."""
    way = f"A pod in {source.name} cannot reach one in {destination.name} at {destination.probe_address} port {PORT}"
    open_it = "open all ports between the pod networks of both clusters"
    match error:
        case "timeout":
            return (
                names.ConditionReason.NO_ROUTE,
                f"{way}: no answer in {SILENCE_SECONDS:.0f} s; see routes, firewalls and NetworkPolicies, and "
                f"{open_it}.",
            )
        case "unreachable":
            text = f"{way}: there is no route; make the pod networks of both clusters route to each other."
            return names.ConditionReason.NO_ROUTE, text
        case "refused":
            text = f"{way}: the connection is refused; see firewalls and NetworkPolicies, and {open_it}."
            return names.ConditionReason.CONNECTION_REFUSED, text
        case "stranger":
            text = (
                f"{way}: something else answers there; see whether both clusters use the same pod addresses, or a "
                "proxy sits between them."
            )
            return names.ConditionReason.ADDRESSES_OVERLAP, text
        case "stalled":
            text = (
                f"From a pod in {source.name} to one in {destination.name}, small packets arrive and large ones do "
                "not; lower the MTU of the pod network, or let ICMP pass."
            )
            return names.ConditionReason.LARGE_PACKETS_LOST, text
        case "broken":
            text = f"{way}: the connection broke; see the network devices between the clusters."
            return names.ConditionReason.CONNECTION_BROKEN, text
        case _:
            return names.ConditionReason.CONNECTION_BROKEN, f"{way}: {error}."
