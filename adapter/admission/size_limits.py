"""Is a job's shape small enough to be planned and copied at a bounded cost?

A plan holds each worker group against every flavor and all nodes of every cluster, and each worker's copy is made from its
whole template: one job that is out of all proportion would cost all others their turn. Only lengths are looked at, so what is
far too large is turned away as quickly as anything else. What the parts of a template mean is asked elsewhere (`refusal`), and
how many worker groups there are is Kueue's limit (`rayjob.MOST_PODSETS`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from adapter.objects.unstructured import Raw


class SizeLimit(NamedTuple):
    """How many entries a list or mapping of a pod template may have; those of all containers, terms and so on together."""

    field: str  # where it stands: `[]` goes into each entry of a list, which has a limit of its own further up
    max_entries: int
    remedy: str


_REQUIRED_NODES = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_PREFERRED_NODES = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"

# What a pod asks for is added up for every gang in the queue, at each plan. A Ray container, and a handful of sidecars and init
# containers beside it, ask for some four resources each.
_REQUEST_LIMITS = (
    SizeLimit("spec.containers", 16, "use fewer sidecars"),
    SizeLimit("spec.initContainers", 16, "let one do the work of several"),
    SizeLimit("spec.containers[].resources.requests", 128, "ask for fewer resources"),
    SizeLimit("spec.containers[].resources.limits", 128, "ask for fewer resources"),
    SizeLimit("spec.initContainers[].resources.requests", 128, "ask for fewer resources"),
    SizeLimit("spec.initContainers[].resources.limits", 128, "ask for fewer resources"),
    SizeLimit("spec.resources.requests", 32, "ask for fewer resources"),
    SizeLimit("spec.resources.limits", 32, "ask for fewer resources"),
    SizeLimit("spec.overhead", 32, "ask for fewer resources"),
)

# Each of these is compared with every flavor and every kind of node, in every cluster. Charts and autoscalers write one to three
# terms, of up to ten expressions, and lists of up to a hundred machine types. Where 17 groups have all that is allowed here, a
# cluster of 300 nodes takes some 10 ms of a plan, and one of 5 000 some 150.
_PLANNING_LIMITS = (
    SizeLimit("spec.nodeSelector", 32, "choose nodes by fewer labels"),
    SizeLimit("spec.tolerations", 64, 'tolerate several taints at once with operator "Exists"'),
    SizeLimit(_REQUIRED_NODES, 32, 'join terms that differ in one label into one with operator "In"'),
    SizeLimit(f"{_REQUIRED_NODES}[].matchExpressions", 64, "choose nodes by fewer labels"),
    SizeLimit(f"{_REQUIRED_NODES}[].matchExpressions[].values", 512, "choose nodes by a label that they share"),
    SizeLimit(f"{_REQUIRED_NODES}[].matchFields", 32, "leave it out, the manager's nodes are not there"),
    SizeLimit(f"{_REQUIRED_NODES}[].matchFields[].values", 32, "leave it out, the manager's nodes are not there"),
)

# And these are gone through for every worker, each time that its copy is made or looked at. They are several times what the
# longest of KubeRay's samples have; whoever has more has made it by a program, and may put it into a ConfigMap or the image.
_COPYING_LIMITS = (
    SizeLimit("metadata.labels", 64, "leave out what no worker needs"),
    SizeLimit("metadata.annotations", 64, "leave out what no worker needs"),
    SizeLimit("spec.containers[].env", 512, "put them into a ConfigMap, and name it in envFrom"),
    SizeLimit("spec.initContainers[].env", 512, "put them into a ConfigMap, and name it in envFrom"),
    SizeLimit("spec.containers[].envFrom", 64, "join several ConfigMaps into one"),
    SizeLimit("spec.initContainers[].envFrom", 64, "join several ConfigMaps into one"),
    SizeLimit("spec.containers[].volumeMounts", 256, "mount one volume in place of several"),
    SizeLimit("spec.initContainers[].volumeMounts", 256, "mount one volume in place of several"),
    SizeLimit("spec.containers[].ports", 128, "name only those that others connect to"),
    SizeLimit("spec.initContainers[].ports", 128, "name only those that others connect to"),
    SizeLimit("spec.containers[].command", 256, "put it into a file of the image"),
    SizeLimit("spec.containers[].args", 256, "put them into a file of the image"),
    SizeLimit("spec.initContainers[].command", 256, "put it into a file of the image"),
    SizeLimit("spec.initContainers[].args", 256, "put them into a file of the image"),
    SizeLimit("spec.volumes", 64, "join several into one"),
    SizeLimit("spec.volumes[].projected.sources", 64, "join several ConfigMaps into one"),
    SizeLimit("spec.volumes[].configMap.items", 256, "mount the whole ConfigMap"),
    SizeLimit("spec.volumes[].secret.items", 256, "mount the whole Secret"),
    SizeLimit("spec.imagePullSecrets", 16, "put several registries into one Secret"),
    SizeLimit("spec.hostAliases", 64, "give such names to a DNS server"),
    SizeLimit("spec.schedulingGates", 16, "leave out what no worker waits for"),
    SizeLimit("spec.readinessGates", 16, "leave out what no worker waits for"),
    SizeLimit("spec.topologySpreadConstraints", 16, "spread over fewer topologies"),
    SizeLimit(_PREFERRED_NODES, 32, "prefer fewer kinds of nodes"),
    SizeLimit(f"{_PREFERRED_NODES}[].preference.matchExpressions", 64, "prefer nodes by fewer labels"),
    SizeLimit(
        f"{_PREFERRED_NODES}[].preference.matchExpressions[].values", 512, "prefer nodes by a label that they share"
    ),
    *(
        SizeLimit(
            f"spec.affinity.{kind}.{when}DuringSchedulingIgnoredDuringExecution", 16, "choose fewer kinds of pods"
        )
        for kind in ("podAffinity", "podAntiAffinity")
        for when in ("required", "preferred")
    ),
)

LIMITS = (*_REQUEST_LIMITS, *_PLANNING_LIMITS, *_COPYING_LIMITS)


def first_excess(template: Raw) -> str:
    """Say in a fragment what in a pod template is too long, empty when nothing is: field, how many, the most, what to do."""
    return next(template_excesses(template), "")


def template_excesses(template: Raw) -> Iterator[str]:
    """The same for all that is too long."""
    return _find_excesses(template, LIMITS)


def has_bounded_requests(template: Raw) -> bool:
    """Whether a pod template, of a head as well, has no more containers and resources than a worker may have."""
    return not any(_find_excesses(template, _REQUEST_LIMITS))


def _find_excesses(template: Raw, limits: Iterable[SizeLimit]) -> Iterator[str]:
    for limit in limits:
        found = sum(_entry_counts(template, limit.field.split(".")))
        if found > limit.max_entries:
            yield f"{limit.field} has {found} entries, and at most {limit.max_entries} are taken: {limit.remedy}"


def _entry_counts(template: Raw, path: Iterable[str]) -> Iterable[int]:
    """How long a field is, once for each object that has it; what is no list or mapping has no length."""
    found: list[object] = [template]
    for step in path:
        found = [one.get(step.removesuffix("[]")) for one in found if isinstance(one, Mapping)]
        if step.endswith("[]"):
            found = [entry for one in found if isinstance(one, list) for entry in one]
    return [len(one) for one in found if isinstance(one, list | Mapping)]
