"""Reads the admission policies as this version ships them. The files beside this module are links to the manifests."""

import functools
from importlib.resources import files

import yaml

from adapter.objects.shipped_policy import ShippedPolicy


@functools.cache
def gate_policy() -> ShippedPolicy:
    """The policy that gates worker pods (manifests/gate-policy.yaml)."""
    return _read_policy("gate-policy.yaml")


@functools.cache
def access_policy() -> ShippedPolicy:
    """The policy that decides who may have a WorkerAccess (kustomize/components/worker-access/policy.yaml)."""
    return _read_policy("access-policy.yaml")


def _read_policy(name: str) -> ShippedPolicy:
    text = (files(__package__) / name).read_text(encoding="utf-8")
    policy, binding = (document["spec"] for document in yaml.safe_load_all(text) if document)
    return ShippedPolicy(policy, binding)
