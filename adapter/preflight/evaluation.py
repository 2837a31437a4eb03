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
from adapter.preflight.preflight_facts import ClusterFacts, Finding, PreflightOptions
from adapter.preflight.probe import DNS_NAME, PORT, SILENCE_SECONDS

# Ray tolerates more, but each task that waits for another's result waits for this several times.
SLOW_MILLISECONDS = 100.0
NARROW_MEGABITS = 100.0  # a gigabyte would take more than a minute
SKEWED_SECONDS = 1.0  # kubelets and Kueue write their times in whole seconds


def evaluate_clusters(clusters: Sequence[ClusterFacts], options: PreflightOptions) -> list[Finding]:
    """Say how all is, cluster by cluster and then pair by pair; the manager is the first of the sides."""
    found = [finding for side in clusters for finding in _cluster_findings(side, options)]
    return [*found, *_pair_findings(clusters)]


def dispatching_queues(local: Iterable[Raw], queues: Iterable[Raw], checks: Iterable[Raw]) -> list[str]:
    """Name those of some LocalQueues whose ClusterQueue has an AdmissionCheck of ours."""
    ours = our_checks(map(read_check, checks))
    dispatched = {queue.name for queue in map(read_cluster_queue, queues) if ours & queue.checks.keys()}
    return sorted(queue.name for queue in map(read_local_queue, local) if queue.cluster_queue in dispatched)


def is_ready(findings: Iterable[Finding]) -> bool:
    """Whether nothing was found that would keep workers from joining."""
    return all(finding.outcome != "failure" for finding in findings)


def _cluster_findings(facts: ClusterFacts, options: PreflightOptions) -> Iterator[Finding]:
    if facts.api_error:
        yield Finding((facts.name,), "API", "failure", facts.api_error)
        return
    yield Finding((facts.name,), "API", "ok", "Its API server answers.")
    if not facts.is_manager:
        yield _rights_finding(facts, options)
    yield _namespace_finding(facts, options)
    if facts.has_namespace and not facts.is_manager:
        yield from (_queue_finding(facts, options, queue) for queue in options.queues)
        if not options.queues:
            text = f"No LocalQueue was looked for: namespace {options.namespace} of the manager has none whose jobs Rayspan dispatches; name one by --queue."
            yield Finding((facts.name,), "Queue", "warning", text)
    yield from _service_findings(facts)
    if facts.network_error:
        yield Finding(
            (facts.name,),
            "PodNetwork",
            "warning",
            f"Its pod network is not compared with the others: {facts.network_error}.",
        )
    if facts.has_namespace:
        yield from _probe_findings(facts, options)


def _rights_finding(facts: ClusterFacts, options: PreflightOptions) -> Finding:
    if not facts.missing_rights:
        return Finding((facts.name,), "Rights", "ok", "The WorkerCluster's account has all the rights that it needs.")
    text = f"The account of WorkerCluster {facts.name} may not {', '.join(facts.missing_rights)}; apply kustomize/overlays/worker there"
    return Finding(
        (facts.name,),
        "Rights",
        "failure",
        f"{text}, and bind ClusterRole rayspan-worker-tenant to the account in namespace {options.namespace}.",
    )


def _namespace_finding(facts: ClusterFacts, options: PreflightOptions) -> Finding:
    if facts.has_namespace:
        return Finding((facts.name,), "Namespace", "ok", f"Namespace {options.namespace} exists.")
    text = f"There is no namespace {options.namespace} in {facts.name}; create it, with a LocalQueue, and bind ClusterRole rayspan-worker-tenant in it."
    return Finding((facts.name,), "Namespace", "failure", text)


def _queue_finding(facts: ClusterFacts, options: PreflightOptions, queue: str) -> Finding:
    why = facts.queues.get(queue)
    where = f"LocalQueue {queue} in namespace {options.namespace} of {facts.name}"
    if why is None:
        return Finding((facts.name,), "Queue", "failure", f"There is no {where}; create it.")
    if why:
        return Finding((facts.name,), "Queue", "failure", f"{where} takes no job: {why}.")
    return Finding((facts.name,), "Queue", "ok", f"{where} takes jobs.")


def _service_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """Whether RayServices that are in a queue can be dispatched; of those who have none nothing is asked."""
    if not facts.ray_services:
        return
    where, framework = (facts.name,), names.RAY_SERVICE_FRAMEWORK
    those = f"{names.RAY_SERVICE} {facts.ray_services[0]}" + (
        f" and {len(facts.ray_services) - 1} more" if facts.ray_services[1:] else ""
    )
    if facts.frameworks is None:
        text = f"Kueue's configuration cannot be read by your rights: for {those}, {framework} must not be in its integrations.frameworks."
        yield Finding(where, "Services", "warning", text)
    elif framework in facts.frameworks:
        text = f"Kueue's configuration has {framework} in integrations.frameworks, so {those} would be refused; take it out, and restart Kueue."
        yield Finding(where, "Services", "failure", text)
    elif names.RAY_CLUSTER_FRAMEWORK not in facts.frameworks:
        text = f"Kueue's configuration lacks {names.RAY_CLUSTER_FRAMEWORK} in integrations.frameworks, so no RayCluster of {those} would be queued; add it, and restart Kueue."
        yield Finding(where, "Services", "failure", text)
    if not facts.has_service_policy:
        text = f"There is no MutatingAdmissionPolicy {names.SERVICE_POLICY}: KubeRay 1.6.2 starts the RayClusters of {those} whenever Kueue stops them; apply kustomize/components/rayservice."
        yield Finding(where, "Services", "warning", text)


def _probe_findings(facts: ClusterFacts, options: PreflightOptions) -> Iterator[Finding]:
    if facts.image_missing:
        text = f"Image {options.image} cannot be had in {facts.name}: {facts.probe_error}; push it where its nodes may pull it, or name another by --image."
        yield Finding((facts.name,), "Image", "failure", text)
        return
    if facts.probe_error:
        yield Finding(
            (facts.name,), "Probe", "failure", f"In {facts.name} no probe pod could do its work: {facts.probe_error}."
        )
        return
    yield Finding((facts.name,), "Image", "ok", f"Image {options.image} is there, and its Python runs.")
    if facts.dns_error is not None:
        yield _dns_finding(facts)


def _dns_finding(facts: ClusterFacts) -> Finding:
    if not facts.dns_error:
        return Finding((facts.name,), "DNS", "ok", f"A pod resolves {DNS_NAME}.")
    text = f"A pod in {facts.name} cannot resolve {DNS_NAME}: {facts.dns_error}; see the pods of the cluster's DNS."
    if facts.is_manager or facts.head_strategy != "PodIP":
        needs = "the submitter of a RayJob finds the head" if facts.is_manager else "workers find the head"
        return Finding((facts.name,), "DNS", "failure", f"{text} By name {needs}.")
    return Finding(
        (facts.name,),
        "DNS",
        "warning",
        f"{text} Workers find the head by its address, but your own code may need names.",
    )


def _pair_findings(clusters: Sequence[ClusterFacts]) -> Iterator[Finding]:
    """Say for each pair whether their addresses overlap, and for each of its two ways whether it works, and how well."""
    for one, other in combinations(clusters, 2):
        yield from _overlap_findings(one, other)
    for one, other in permutations(clusters, 2):
        yield from _path_findings(one, other)


def _overlap_findings(first: ClusterFacts, second: ClusterFacts) -> Iterator[Finding]:
    if first.api_error or second.api_error or first.network_error or second.network_error:
        return
    pair = (first.name, second.name)
    shared = _shared_addresses(first, second)
    if shared:
        text = f"{shared}, so a pod of one cannot be told from a pod of the other; give one of the clusters another pod network."
        yield Finding(pair, "PodNetwork", "failure", text, names.ConditionReason.ADDRESSES_OVERLAP)
    else:
        yield Finding(pair, "PodNetwork", "ok", "No pod addresses are in use on both sides.")


def _shared_addresses(first: ClusterFacts, second: ClusterFacts) -> str:
    for network in _used_networks(first):
        for theirs in _used_networks(second):
            if network.version == theirs.version and network.overlaps(theirs):
                return f"Nodes of {first.name} give their pods addresses of {network}, and nodes of {second.name} of {theirs}"
    both = sorted({*first.addresses, first.probe_address} & {*second.addresses, second.probe_address} - {""})
    return f"Address {both[0]} is that of a pod in {first.name} and of one in {second.name}" if both else ""


def _used_networks(facts: ClusterFacts) -> list[IPv4Network | IPv6Network]:
    """The pod CIDRs of its nodes, if its network keeps to them: many take their addresses from elsewhere."""
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
    if trip.milliseconds is not None and trip.milliseconds > SLOW_MILLISECONDS:
        text = f"It takes {trip.milliseconds:.0f} ms from {source.name} to {destination.name} and back; keep jobs whose tasks talk much in one cluster (gang SameCluster)."
        yield Finding(pair, "Latency", "warning", text)
    if trip.megabits is not None and trip.megabits < NARROW_MEGABITS:
        text = f"Only {trip.megabits:.0f} Mbit/s go from {source.name} to {destination.name}; objects and results of tasks travel that way."
        yield Finding(pair, "Bandwidth", "warning", text)
    if trip.clock_ahead is not None and abs(trip.clock_ahead) > SKEWED_SECONDS and source.name < destination.name:
        which = "ahead of" if trip.clock_ahead > 0 else "behind"
        text = f"The clock in {destination.name} is {abs(trip.clock_ahead):.1f} s {which} the one in {source.name}; let both follow the same time servers."
        yield Finding(pair, "Clock", "warning", text)


def _broken_path(source: ClusterFacts, destination: ClusterFacts, error: str) -> tuple[str, str]:
    """Reason and sentence for a path that does not work."""
    way = f"A pod in {source.name} cannot reach one in {destination.name} at {destination.probe_address} port {PORT}"
    open_it = "open all ports between the pod networks of both clusters"
    match error:
        case "timeout":
            return (
                names.ConditionReason.NO_ROUTE,
                f"{way}: no answer in {SILENCE_SECONDS:.0f} s; see routes, firewalls and NetworkPolicies, and {open_it}.",
            )
        case "unreachable":
            text = f"{way}: there is no route; make the pod networks of both clusters route to each other."
            return names.ConditionReason.NO_ROUTE, text
        case "refused":
            text = f"{way}: the connection is refused; see firewalls and NetworkPolicies, and {open_it}."
            return names.ConditionReason.CONNECTION_REFUSED, text
        case "stranger":
            text = f"{way}: something else answers there; see whether both clusters use the same pod addresses, or a proxy sits between them."
            return names.ConditionReason.ADDRESSES_OVERLAP, text
        case "stalled":
            text = f"From a pod in {source.name} to one in {destination.name}, small packets arrive and large ones do not; lower the MTU of the pod network, or let ICMP pass."
            return names.ConditionReason.LARGE_PACKETS_LOST, text
        case "broken":
            text = f"{way}: the connection broke; see what sits between the clusters."
            return names.ConditionReason.CONNECTION_BROKEN, text
        case _:
            return names.ConditionReason.CONNECTION_BROKEN, f"{way}: {error}."
