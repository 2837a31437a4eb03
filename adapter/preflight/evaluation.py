"""Evaluates the preflight facts of the manager cluster and its worker clusters; each finding says what to do about it.

A failure keeps Ray's nodes from working together; a job may run despite a warning. A check that could not run has no
finding; what prevented it has a finding. Each direction between two clusters has its own finding, because a firewall
may accept connections that it does not let out. No requests are made here.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import combinations, permutations

from adapter import names
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.queues import read_cluster_queue, read_local_queue
from adapter.objects.unstructured import UNREADABLE, Raw
from adapter.preflight import named_there
from adapter.preflight.preflight_facts import ClusterFacts, Finding, PreflightOptions
from adapter.preflight.probe import DNS_NAME, PORT, SILENCE_SECONDS

# A slower round trip gets a warning. Ray tolerates it, but a task that waits for another task's result waits for
# several round trips.
SLOW_MILLISECONDS = 100.0
NARROW_MEGABITS = 100.0  # below this, a gigabyte takes more than a minute
SKEWED_SECONDS = 1.0  # kubelets and Kueue write their times in whole seconds


def evaluate_clusters(clusters: Sequence[ClusterFacts], options: PreflightOptions) -> list[Finding]:
    """The findings of each cluster, then of each pair; the manager is the first cluster."""
    readable, findings = list[ClusterFacts](), list[Finding]()
    for side in clusters:
        try:
            findings += _cluster_findings(side, options)
            _used_networks(side)
            readable.append(side)
        except UNREADABLE:
            findings.append(_unreadable_finding(side))
    return [*findings, *_pair_findings(readable)]


def _unreadable_finding(facts: ClusterFacts) -> Finding:
    """The finding of a cluster whose facts cannot be judged, so that the others are judged all the same."""
    text = (
        f"What {facts.name} reports of its nodes or of its probe pod cannot be read, such as a pod CIDR or an address "
        "that is none: see `kubectl get nodes -o jsonpath='{.items[*].spec.podCIDRs}'` there."
    )
    return Finding((facts.name,), "PodNetwork", "failure", text)


def dispatching_queues(local: Iterable[Raw], queues: Iterable[Raw], checks: Iterable[Raw]) -> list[str]:
    """The names of the LocalQueues whose ClusterQueue has an AdmissionCheck of ours."""
    ours = our_checks(map(read_check, checks))
    dispatched = {queue.name for queue in map(read_cluster_queue, queues) if ours & queue.checks.keys()}
    return sorted(queue.name for queue in map(read_local_queue, local) if queue.cluster_queue in dispatched)


def is_ready(findings: Iterable[Finding]) -> bool:
    """Whether no finding is a failure."""
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
            text = (
                f"No LocalQueue was checked: namespace {options.namespace} of the manager has none whose "
                "jobs Rayspan dispatches; name one with --queue."
            )
            yield Finding((facts.name,), "Queue", "warning", text)
    yield from _kueue_findings(facts)
    yield from named_there.named_findings(facts.name, options.namespace, facts.named)
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
    text = (
        f"The account of WorkerCluster {facts.name} may not {', '.join(facts.missing_rights)}; "
        "apply kustomize/overlays/worker there"
    )
    return Finding(
        (facts.name,),
        "Rights",
        "failure",
        f"{text}, and bind ClusterRole rayspan-worker-tenant to the account in namespace {options.namespace}.",
    )


def _namespace_finding(facts: ClusterFacts, options: PreflightOptions) -> Finding:
    if facts.has_namespace:
        return Finding((facts.name,), "Namespace", "ok", f"Namespace {options.namespace} exists.")
    text = (
        f"There is no namespace {options.namespace} in {facts.name}; create it, with a LocalQueue, and bind "
        "ClusterRole rayspan-worker-tenant in it."
    )
    return Finding((facts.name,), "Namespace", "failure", text)


def _queue_finding(facts: ClusterFacts, options: PreflightOptions, queue: str) -> Finding:
    reason = facts.queues.get(queue)
    where = f"LocalQueue {queue} in namespace {options.namespace} of {facts.name}"
    if reason is None:
        return Finding((facts.name,), "Queue", "failure", f"There is no {where}; create it.")
    if reason:
        return Finding((facts.name,), "Queue", "failure", f"{where} accepts no jobs: {reason}.")
    return Finding((facts.name,), "Queue", "ok", f"{where} accepts jobs.")


def _kueue_findings(facts: ClusterFacts) -> Iterator[Finding]:
    for fault in facts.kueue_faults:
        yield Finding((facts.name,), "Queue", "failure", f"In {facts.name}: {fault}")
    for note in facts.kueue_notes:
        yield Finding((facts.name,), "Queue", "warning", f"In {facts.name}: {note}")


def _service_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """Whether RayServices in a queue can be dispatched; no findings if there are no such RayServices."""
    if not facts.ray_services:
        return
    where, framework = (facts.name,), names.RAY_SERVICE_FRAMEWORK
    those = f"{names.RAY_SERVICE} {facts.ray_services[0]}" + (
        f" and {len(facts.ray_services) - 1} more" if facts.ray_services[1:] else ""
    )
    if facts.frameworks is None:
        text = (
            f"You may not read Kueue's configuration: for {those}, {framework} must not be in its "
            "integrations.frameworks."
        )
        yield Finding(where, "Services", "warning", text)
    elif framework in facts.frameworks:
        text = (
            f"Kueue's configuration has {framework} in integrations.frameworks, so {those} would be "
            "rejected; remove it, and restart Kueue."
        )
        yield Finding(where, "Services", "failure", text)
    elif names.RAY_CLUSTER_FRAMEWORK not in facts.frameworks:
        text = (
            f"Kueue's configuration lacks {names.RAY_CLUSTER_FRAMEWORK} in integrations.frameworks, so no RayCluster "
            f"of {those} would be queued; add it, and restart Kueue."
        )
        yield Finding(where, "Services", "failure", text)
    if not facts.has_service_policy:
        text = (
            f"There is no MutatingAdmissionPolicy {names.SERVICE_POLICY}: KubeRay 1.6.2 starts the RayClusters of "
            f"{those} whenever Kueue stops them; apply kustomize/components/rayservice."
        )
        yield Finding(where, "Services", "warning", text)


def _probe_findings(facts: ClusterFacts, options: PreflightOptions) -> Iterator[Finding]:
    if facts.image_missing:
        text = (
            f"Image {options.image} cannot be pulled in {facts.name}: {facts.probe_error}; push it "
            "where the cluster's nodes can pull it, or name another one with --image."
        )
        yield Finding((facts.name,), "Image", "failure", text)
        return
    if facts.probe_error:
        yield Finding(
            (facts.name,), "Probe", "failure", f"In {facts.name} no probe pod ran successfully: {facts.probe_error}."
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
        needs = (
            "the submitter of a RayJob does not find the head" if facts.is_manager else "workers do not find the head"
        )
        return Finding((facts.name,), "DNS", "failure", f"{text} Without DNS, {needs}.")
    return Finding(
        (facts.name,),
        "DNS",
        "warning",
        f"{text} Workers find the head by its address, but your own code may need names.",
    )


def _pair_findings(clusters: Sequence[ClusterFacts]) -> Iterator[Finding]:
    """Address overlaps of each pair, then the path in each direction."""
    for first, second in combinations(clusters, 2):
        yield from _overlap_findings(first, second)
    for first, second in permutations(clusters, 2):
        yield from _path_findings(first, second)


def _overlap_findings(first: ClusterFacts, second: ClusterFacts) -> Iterator[Finding]:
    if first.api_error or second.api_error or first.network_error or second.network_error:
        return
    pair = (first.name, second.name)
    shared = _shared_addresses(first, second)
    if shared:
        text = (
            f"{shared}, so pods of the two clusters cannot be distinguished; give one of the clusters "
            "another pod network."
        )
        yield Finding(pair, "PodNetwork", "failure", text, names.ConditionReason.ADDRESSES_OVERLAP)
    else:
        yield Finding(pair, "PodNetwork", "ok", "No pod addresses are in use on both sides.")


def _shared_addresses(first: ClusterFacts, second: ClusterFacts) -> str:
    for network in _used_networks(first):
        for other in _used_networks(second):
            if network.version == other.version and network.overlaps(other):
                return (
                    f"Nodes of {first.name} give their pods addresses of {network}, and nodes of {second.name} of "
                    f"{other}"
                )
    both = sorted({*first.addresses, first.probe_address} & {*second.addresses, second.probe_address} - {""})
    return f"Address {both[0]} is that of a pod in {first.name} and of one in {second.name}" if both else ""


def _used_networks(facts: ClusterFacts) -> list[IPv4Network | IPv6Network]:
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
