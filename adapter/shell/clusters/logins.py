"""Reads a worker cluster's kubeconfig: from our Secret, from MultiKueue's, or built from a ClusterProfile and its
token.

Kueue's namespace also holds Kueue's own keys: only Secrets of a WorkerCluster's MultiKueueCluster are read there.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.admission import clusterprofile, multikueue
from adapter.admission.clusterprofile import ProfileReference
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.login_objects import Dependencies, LoginObjects, ObjectRef, ObjectUnreadable
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import Client
from adapter.shell.kube.credentials import BadLogin


@dataclass(frozen=True, slots=True)
class Login:
    """A kubeconfig; Secret and profile are for messages."""

    secret: str
    kubeconfig: str = field(repr=False)  # never shown
    profile: ProfileReference | None = None


class LoginReader:
    def __init__(self, tasks: asyncio.TaskGroup, manager: ManagerCache) -> None:
        self._manager = manager
        self._login_objects = LoginObjects(tasks, manager.client, manager.secrets.notify)

    async def read_login(self, name: str, spec: specs.WorkerCluster) -> Login:
        """The login of WorkerCluster `name`; raises BadLogin or specs.InvalidSpec with a sentence."""
        with self._login_objects.track_dependencies(name) as needs:
            source, namespace = _own_source(spec), names.SYSTEM_NAMESPACE
            if source is None:
                source, namespace = self._multikueue_source(spec), names.KUEUE_NAMESPACE
            if isinstance(source, str):
                return _secret_login(source, namespace, await self._read_secret(needs, namespace, source))
            address = clusterprofile.cluster_address(source, await _read_profile(needs, source))
            return _profile_login(
                source, address, namespace, await self._read_secret(needs, namespace, source.token_secret)
            )

    def forget_cluster(self, name: str) -> None:
        self._login_objects.forget_dependent(name)

    def _multikueue_source(self, spec: specs.WorkerCluster) -> str | ProfileReference:
        ref = spec.source.multi_kueue_cluster_ref
        assert ref is not None, "one of the three is set"
        multikueue_clusters = self._manager.multikueue_clusters
        if not multikueue_clusters.synced:
            raise multikueue.unreadable_error(
                str(self._manager.unreadable_kinds.get(resources.MULTIKUEUE_CLUSTERS, "no answer yet"))
            )
        return multikueue.login_source(ref.name, multikueue_clusters.by_name(ref.name))

    async def _read_secret(self, needs: Dependencies, namespace: str, secret: str) -> Raw | None:
        if namespace == names.SYSTEM_NAMESPACE:  # all Secrets there are followed
            return self._manager.secrets.get((namespace, secret))
        try:
            return await needs.read_object(ObjectRef(resources.SECRETS, namespace, secret))
        except ObjectUnreadable as trouble:
            raise BadLogin(
                f"Secret {secret} in {namespace} cannot be read: {trouble}; "
                "name it in kustomize/components/multikueue, and apply that."
            ) from None


async def _read_profile(needs: Dependencies, profile: ProfileReference) -> Raw | None:
    ref = ObjectRef(resources.CLUSTER_PROFILES, profile.namespace, profile.name, clusterprofile.login_facts)
    try:
        return await needs.read_object(ref)
    except ObjectUnreadable as trouble:
        raise clusterprofile.unreadable_error(profile, str(trouble)) from None


async def read_login_once(client: Client, spec: specs.WorkerCluster) -> Login:
    """Read a login with the rights of `client`; raises as `LoginReader.read_login`, or ApiError."""
    source, namespace = _own_source(spec), names.SYSTEM_NAMESPACE
    if source is None:
        assert spec.source.multi_kueue_cluster_ref is not None, "one of the three is set"
        name, namespace = spec.source.multi_kueue_cluster_ref.name, names.KUEUE_NAMESPACE
        source = multikueue.login_source(name, await client.find(resources.MULTIKUEUE_CLUSTERS.path(name=name)))
    if isinstance(source, ProfileReference):
        profile = await client.find(resources.CLUSTER_PROFILES.path(source.namespace, source.name))
        address = clusterprofile.cluster_address(source, profile)
        secret = await client.find(resources.SECRETS.path(namespace, source.token_secret))
        return _profile_login(source, address, namespace, secret)
    return _secret_login(source, namespace, await client.find(resources.SECRETS.path(namespace, source)))


def unusable_message(name: str, login: Login, error: BadLogin) -> str:
    if login.profile:
        return clusterprofile.unusable_message(login.profile, str(error))
    return f"{login.secret} holds no usable kubeconfig: {error}; create it again with `kubectl rayspan join {name}`."


def _own_source(spec: specs.WorkerCluster) -> str | ProfileReference | None:
    """The Secret or ClusterProfile; None where MultiKueue's objects name it."""
    if spec.source.kube_config is not None:
        return spec.source.kube_config.secret_ref.name
    if spec.source.cluster_profile_ref is not None:
        return clusterprofile.profile_of_source(spec.source.cluster_profile_ref)
    return None


def _profile_login(profile: ProfileReference, address: Mapping[str, str], namespace: str, secret: Raw | None) -> Login:
    text = clusterprofile.build_kubeconfig(address, clusterprofile.token_of_secret(profile, namespace, secret))
    return Login(f"Secret {profile.token_secret} in {namespace}", text, profile)


def _secret_login(secret_name: str, namespace: str, secret: Raw | None) -> Login:
    if secret is None:
        raise BadLogin(f"Secret {secret_name} does not exist in {namespace}; create it with a kubeconfig.")
    secret_data = secret.get("data")
    data = secret_data.get(names.KUBECONFIG_KEY) if isinstance(secret_data, dict) else None
    if not isinstance(data, str) or not data:
        raise BadLogin(f"Secret {secret_name} in {namespace} has no key {names.KUBECONFIG_KEY}; add it.")
    try:
        return Login(f"Secret {secret_name} in {namespace}", base64.b64decode(data, validate=True).decode())
    except ValueError:
        raise BadLogin(
            f"Secret {secret_name} in {namespace}: {names.KUBECONFIG_KEY} is not text; create it again."
        ) from None
