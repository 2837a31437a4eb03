"""Could workers join from there? Facts about the manager and its worker clusters in, findings out, each with what to do about it.

A failure is what would keep Ray's nodes from working together; a warning is what a job may live with. What could not be tried is
neither: whatever kept it from being tried is told once, where it was found. Nothing here asks anybody.
"""

from collections.abc import Iterable, Iterator, Sequence

from adapter import names
from adapter.objects.raw import Raw, key_of
from adapter.preflight import crossing
from adapter.preflight.facts import Asked, Finding, Side
from adapter.preflight.probe import DNS_NAME
from adapter.quota import tree


def judge(sides: Sequence[Side], asked: Asked) -> list[Finding]:
    """Say how all is, cluster by cluster and then pair by pair; the manager is the first of the sides."""
    found = [finding for side in sides for finding in _of_side(side, asked)]
    return [*found, *crossing.judge(sides)]


def dispatching(local: Iterable[Raw], queues: Iterable[Raw], checks: Iterable[Raw]) -> list[str]:
    """Name those of some LocalQueues whose ClusterQueue has an AdmissionCheck of ours."""
    ours = {
        key_of(check)[1] for check in checks if (check.get("spec") or {}).get("controllerName") == names.CONTROLLER_NAME
    }
    feeds = {key_of(queue)[1] for queue in queues if ours & set(_checks(queue))}
    return sorted(key_of(queue)[1] for queue in local if tree.leads_to(queue)[0] in feeds)


def _checks(queue: Raw) -> list[str]:
    strategy = (queue.get("spec") or {}).get("admissionChecksStrategy") or {}
    return [check.get("name") or "" for check in strategy.get("admissionChecks") or ()]


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
