"""Asks an API server whether it grants a right to this account, by a SelfSubjectAccessReview."""

from adapter.shell.kube import resources
from adapter.shell.kube.client import Client


async def has_right(client: Client, verb: str, group: str, resource: str, namespace: str = "") -> bool:
    """`resource` may have a subresource: `pods/log`. Without a namespace, the right must hold in all of them."""
    name, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": name, "subresource": subresource, "namespace": namespace}
    body = {
        "apiVersion": resources.ACCESS_REVIEWS.api_version,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "verb": verb}},
    }
    review = await client.create(resources.ACCESS_REVIEWS.path(), body)
    return bool((review.get("status") or {}).get("allowed"))
