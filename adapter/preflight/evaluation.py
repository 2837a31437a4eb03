"""Could workers join from there? Facts about the manager and its worker clusters in, findings out, each with what to do about it.

A failure is what would keep Ray's nodes from working together; a warning is what a job may live with. What could not be tried is
neither: whatever kept it from being tried is told once, where it was found. Each way between two clusters is judged by what the
pod found that went it: a firewall may let in what it does not let out. Nothing here asks anybody.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import combinations, permutations

from adapter import names
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.queues import read_cluster_queue, read_local_queue
from adapter.objects.unstructured import Raw
from adapter.preflight.preflight_facts import Asked, Finding, Side
from adapter.preflight.probe import DNS_NAME, PORT, SILENCE_SECONDS

# Ray tolerates more, but each task that waits for another's result waits for this several times.
SLOW_MILLISECONDS = 100.0
NARROW_MEGABITS = 100.0  # a gigabyte would take more than a minute
SKEWED_SECONDS = 1.0  # kubelets and Kueue write their times in whole seconds


def judge(sides: Sequence[Side], asked: Asked) -> list[Finding]:
    """Say how all is, cluster by cluster and then pair by pair; the manager is the first of the sides."""
    found = [finding for side in sides for finding in _of_side(side, asked)]
    return [*found, *_crossings(sides)]


def dispatching(local: Iterable[Raw], queues: Iterable[Raw], checks: Iterable[Raw]) -> list[str]:
    """Name those of some LocalQueues whose ClusterQueue has an AdmissionCheck of ours."""
    ours = our_checks(map(read_check, checks))
    dispatched = {queue.name for queue in map(read_cluster_queue, queues) if ours & queue.checks.keys()}
    return sorted(queue.name for queue in map(read_local_queue, local) if queue.cluster_queue in dispatched)


def ready(findings: Iterable[Finding]) -> bool:
    """Whether nothing was found that would keep workers from joining."""
    return all(finding.outcome != "failure" for finding in findings)


def _of_side(side: Side, asked: Asked) -> Iterator[Finding]:
    if side.trouble:
        yield Finding((side.name,), "API", "failure", side.trouble)
        return
    yield Finding((side.name,), "API", "ok", "Its API server answers.")
    if not side.is_manager:
        yield _rights(side, asked)
    yield _namespace(side, asked)
    if side.namespace and not side.is_manager:
        yield from (_queue(side, asked, queue) for queue in asked.queues)
        if not asked.queues:
            text = f"No LocalQueue was looked for: namespace {asked.namespace} of the manager has none whose jobs Rayspan dispatches; name one by --queue."
            yield Finding((side.name,), "Queue", "warning", text)
    yield from _services(side)
    if side.unread:
        yield Finding(
            (side.name,), "PodNetwork", "warning", f"Its pod network is not compared with the others: {side.unread}."
        )
    if side.namespace:
        yield from _probe(side, asked)


def _rights(side: Side, asked: Asked) -> Finding:
    if not side.missing:
        return Finding((side.name,), "Rights", "ok", "The WorkerCluster's account has all the rights that it needs.")
    text = f"The account of WorkerCluster {side.name} may not {', '.join(side.missing)}; apply kustomize/overlays/worker there"
    return Finding(
        (side.name,),
        "Rights",
        "failure",
        f"{text}, and bind ClusterRole rayspan-worker-tenant to the account in namespace {asked.namespace}.",
    )


def _namespace(side: Side, asked: Asked) -> Finding:
    if side.namespace:
        return Finding((side.name,), "Namespace", "ok", f"Namespace {asked.namespace} exists.")
    text = f"There is no namespace {asked.namespace} in {side.name}; create it, with a LocalQueue, and bind ClusterRole rayspan-worker-tenant in it."
    return Finding((side.name,), "Namespace", "failure", text)


def _queue(side: Side, asked: Asked, queue: str) -> Finding:
    why = side.queues.get(queue)
    where = f"LocalQueue {queue} in namespace {asked.namespace} of {side.name}"
    if why is None:
        return Finding((side.name,), "Queue", "failure", f"There is no {where}; create it.")
    if why:
        return Finding((side.name,), "Queue", "failure", f"{where} takes no job: {why}.")
    return Finding((side.name,), "Queue", "ok", f"{where} takes jobs.")


def _services(side: Side) -> Iterator[Finding]:
    """Whether RayServices that are in a queue can be dispatched; of those who have none nothing is asked."""
    if not side.services:
        return
    where, framework = (side.name,), names.RAY_SERVICE_FRAMEWORK
    those = f"{names.RAY_SERVICE} {side.services[0]}" + (
        f" and {len(side.services) - 1} more" if side.services[1:] else ""
    )
    if side.frameworks is None:
        text = f"Kueue's configuration cannot be read by your rights: for {those}, {framework} must not be in its integrations.frameworks."
        yield Finding(where, "Services", "warning", text)
    elif framework in side.frameworks:
        text = f"Kueue's configuration has {framework} in integrations.frameworks, so {those} would be refused; take it out, and restart Kueue."
        yield Finding(where, "Services", "failure", text)
    elif names.RAY_CLUSTER_FRAMEWORK not in side.frameworks:
        text = f"Kueue's configuration lacks {names.RAY_CLUSTER_FRAMEWORK} in integrations.frameworks, so no RayCluster of {those} would be queued; add it, and restart Kueue."
        yield Finding(where, "Services", "failure", text)
    if not side.held:
        text = f"There is no MutatingAdmissionPolicy {names.SERVICE_POLICY}: KubeRay 1.6.2 starts the RayClusters of {those} whenever Kueue stops them; apply kustomize/components/rayservice."
        yield Finding(where, "Services", "warning", text)


def _probe(side: Side, asked: Asked) -> Iterator[Finding]:
    if side.no_image:
        text = f"Image {asked.image} cannot be had in {side.name}: {side.probe}; push it where its nodes may pull it, or name another by --image."
        yield Finding((side.name,), "Image", "failure", text)
        return
    if side.probe:
        yield Finding((side.name,), "Probe", "failure", f"In {side.name} no probe pod could do its work: {side.probe}.")
        return
    yield Finding((side.name,), "Image", "ok", f"Image {asked.image} is there, and its Python runs.")
    if side.name_error is not None:
        yield _dns(side)


def _dns(side: Side) -> Finding:
    if not side.name_error:
        return Finding((side.name,), "DNS", "ok", f"A pod resolves {DNS_NAME}.")
    text = f"A pod in {side.name} cannot resolve {DNS_NAME}: {side.name_error}; see the pods of the cluster's DNS."
    if side.is_manager or side.head != "PodIP":
        needs = "the submitter of a RayJob finds the head" if side.is_manager else "workers find the head"
        return Finding((side.name,), "DNS", "failure", f"{text} By name {needs}.")
    return Finding(
        (side.name,),
        "DNS",
        "warning",
        f"{text} Workers find the head by its address, but your own code may need names.",
    )


def _crossings(sides: Sequence[Side]) -> Iterator[Finding]:
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
