"""What Kueue counts for the claims of a pod (DRA), as its WorkerCluster says.

Kueue resolves a claim by a ResourceClaimTemplate of its own cluster, and by `deviceClassMappings` of its configuration
(docs/upstream.md, "How Kueue counts claims"). The controller reads neither. A group Workload records what was
planned for it, so that Kueue's answer can correct it (quota/kueue_answers.py).
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Final

from adapter import names
from adapter.objects.named_objects import find_object
from adapter.objects.pod_requests import UNLIMITED, Resources, pod_requests
from adapter.objects.required_objects import RequiredObject
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import Raw, annotation

_MAX_TEXT_LENGTH: Final = 16 * 1024  # of an annotation; 32 claims of 8 resources, each with a name of normal length


def claimed_resources(required: Iterable[RequiredObject], mapping: PodMapping, namespace: str) -> Resources:
    """What Kueue counts for the claims among the required objects of one pod, by the names of a WorkerCluster."""
    if not mapping.claim_templates:
        return {}
    total = Counter[str]()
    for needed in required:
        if needed.kind == "resourceClaimTemplate":
            entry = find_object(mapping.claim_templates, needed.name, namespace)
            total.update(entry.resources if entry else {})
    return total


def add_resources(request: Resources, claimed: Resources) -> Resources:
    """The requests of a pod and of its claims."""
    if not claimed:
        return request
    total = Counter(request)
    total.update(claimed)
    return {name: min(amount, UNLIMITED) for name, amount in total.items()}


def template_requests(template: Raw) -> Resources:
    """What a podset template of a group Workload requests for one pod, with what was planned for its claims."""
    return add_resources(pod_requests(template["spec"]), read_resources(template))


def resources_annotation(claimed: Resources) -> dict[str, str]:
    """The annotation of a podset template; none without claims."""
    text = json.dumps(dict(sorted(claimed.items())), separators=(",", ":"))
    return {names.CLAIMED_RESOURCES_ANNOTATION: text} if claimed else {}


def read_resources(template: Raw) -> Resources:
    """The amounts from such an annotation; none if it is of another form."""
    text = annotation(template, names.CLAIMED_RESOURCES_ANNOTATION)
    if not text or len(text) > _MAX_TEXT_LENGTH:
        return {}
    try:
        amounts = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return amounts if isinstance(amounts, dict) and all(map(_is_amount, amounts.values())) else {}


def _is_amount(value: object) -> bool:
    return type(value) is int and 0 < value <= UNLIMITED
