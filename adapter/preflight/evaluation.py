"""Evaluates the preflight facts of the manager cluster and its worker clusters; each finding says what to do about it.

A failure keeps Ray's nodes from working together; a job may run despite a warning. A check that could not run has no
finding; what prevented it has a finding. pair_evaluation.py judges what lies between two clusters. No requests are made
here.
"""

from collections.abc import Iterable, Iterator, Sequence

from adapter import names
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.queues import read_cluster_queue, read_local_queue
from adapter.objects.unstructured import UNREADABLE, Raw
from adapter.preflight import named_there, pair_evaluation
from adapter.preflight.preflight_facts import ClusterFacts, Finding, PreflightOptions
from adapter.preflight.probe import DNS_NAME


def evaluate_clusters(clusters: Sequence[ClusterFacts], options: PreflightOptions) -> list[Finding]:
    """The findings of each cluster, then of each pair; the manager is the first cluster."""
    readable, findings = list[ClusterFacts](), list[Finding]()
    for side in clusters:
        try:
            findings += _cluster_findings(side, options)
            pair_evaluation.used_networks(side)
            readable.append(side)
        except UNREADABLE:
            findings.append(_unreadable_finding(side))
    return [*findings, *pair_evaluation.evaluate_pairs([side for side in readable if not side.relay_address])]


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
    if facts.relay_address and facts.relay_error is not None:
        yield _relay_finding(facts, facts.relay_error)


def _relay_finding(facts: ClusterFacts, error: str) -> Finding:
    where = f"the relay at {facts.relay_address}"
    if not error:
        return Finding((facts.name,), "Relay", "ok", f"A pod in {facts.name} connects to {where}.")
    text = (
        f"A pod in {facts.name} cannot connect to {where} ({error}); let its pods connect to that port, or correct "
        f"spec.network.address of WorkerCluster {facts.name}."
    )
    return Finding((facts.name,), "Relay", "failure", text, names.ConditionReason.RELAY_NOT_REACHED)


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
