"""Applies, deletes and reports the objects of a membership, as `kubectl apply --server-side` would.

The files beside this one are the manifests that kustomize/overlays/worker installs in the worker cluster.
"""

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

import yaml

from adapter import names
from adapter.objects.unstructured import Raw, key_of, meta
from adapter.shell.kube import resources
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import Resource

ReportLine = Callable[[str], None]

RESOURCES_BY_KIND: Final[Mapping[str, Resource]] = {
    "Namespace": resources.NAMESPACES,
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "Secret": resources.SECRETS,
    "ClusterRole": resources.CLUSTER_ROLES,
    "ClusterRoleBinding": resources.CLUSTER_ROLE_BINDINGS,
    "Role": resources.ROLES,
    "RoleBinding": resources.ROLE_BINDINGS,
    names.WORKER_CLUSTER_KIND: resources.WORKER_CLUSTERS,
}


def account_objects() -> list[dict[str, Any]]:
    """The account and its roles, in order of creation."""
    return _read_manifest("worker.yaml")


def namespace_binding() -> dict[str, Any]:
    """The RoleBinding of the account in a namespace of jobs."""
    (binding,) = _read_manifest("worker-tenant.yaml")
    return binding


def _read_manifest(name: str) -> list[dict[str, Any]]:
    text = (files(__package__) / name).read_text(encoding="utf-8")
    return [document for document in yaml.safe_load_all(text) if document]


async def apply_object(
    client: Client, side: str, body: Raw, report: ReportLine, manager: str = names.JOIN_FIELD_MANAGER
) -> None:
    """Apply one object, and report whether it was created, configured or unchanged."""
    path = object_path(body)
    before = await client.find(path)
    after = await client.apply(path, body, manager)
    unchanged = before and meta(before).get("resourceVersion") == meta(after).get("resourceVersion")
    report(f"{side}: {display_name(body)} {'unchanged' if unchanged else 'configured' if before else 'created'}")


async def delete_object(client: Client, side: str, body: Raw, report: ReportLine) -> None:
    """Delete the object of that kind and name, by its current uid, if it exists."""
    path = object_path(body)
    current = await client.find(path)
    if current:
        await client.delete(path, str(meta(current).get("uid")))
        report(f"{side}: {display_name(body)} deleted")


def object_path(body: Raw) -> str:
    return RESOURCES_BY_KIND[body["kind"]].path(*key_of(body))


def display_name(body: Raw) -> str:
    """`kind/name`, with the namespace when it is not the system namespace."""
    namespace, name = key_of(body)
    where = f" in {namespace}" if namespace not in ("", names.SYSTEM_NAMESPACE) else ""
    return f"{body['kind'].lower()}/{name}{where}"
