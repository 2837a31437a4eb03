"""With which kubeconfig is a worker cluster reached: that of a Secret of ours, the one that MultiKueue uses already, or one that is made of a
ClusterProfile and the token for it?

Of Kueue's namespace, which holds Kueue's own keys too, only the Secrets are read that a WorkerCluster needs by way of its
MultiKueueCluster, and of ClusterProfiles those that one names (single_objects.py).
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.admission import clusterprofile, multikueue
from adapter.admission.clusterprofile import Profile
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.single_objects import Named, Needs, Place, Unread
from adapter.shell.kube import resources
from adapter.shell.kube.client import Client
from adapter.shell.kube.credentials import BadLogin


@dataclass(frozen=True, slots=True)
class Login:
    """A kubeconfig, and how to speak of the Secret that it is from, or of the profile that its address is from."""

    secret: str
    kubeconfig: str = field(repr=False)  # never to be shown
    profile: Profile | None = None


class Logins:
    """Reads kubeconfigs from the manager cluster."""

    def __init__(self, tasks: asyncio.TaskGroup, manager: Manager) -> None:
        self._manager = manager
        self._named = Named(tasks, manager.client, manager.secrets.tell)

    async def of(self, name: str, spec: specs.WorkerCluster) -> Login:
        """The login of WorkerCluster `name`; raises BadLogin or specs.Invalid with a sentence."""
        with self._named.needs(name) as needs:
            where, namespace = _own(spec), names.SYSTEM_NAMESPACE
            if where is None:
                where, namespace = self._borrowed(spec), names.KUEUE_NAMESPACE
            if isinstance(where, str):
                return _login(where, namespace, await self._secret(needs, namespace, where))
            address = clusterprofile.address(where, await _profile(needs, where))
            return _by_profile(where, address, namespace, await self._secret(needs, namespace, where.token_secret))

    def forget(self, name: str) -> None:
        """Note that there is no WorkerCluster `name`."""
        self._named.forget(name)

    def _borrowed(self, spec: specs.WorkerCluster) -> str | Profile:
        ref = spec.source.multi_kueue_cluster_ref
        assert ref is not None, "one of the three is set"
        known = self._manager.multikueue_clusters
        if not known.synced:
            raise multikueue.unread(str(self._manager.unread.get(resources.MULTIKUEUE_CLUSTERS, "no answer yet")))
        return multikueue.login(ref.name, known.named(ref.name))

    async def _secret(self, needs: Needs, namespace: str, secret: str) -> Raw | None:
        if namespace == names.SYSTEM_NAMESPACE:  # which is followed as a whole
            return self._manager.secrets.get((namespace, secret))
        try:
            return await needs.read(Place(resources.SECRETS, namespace, secret))
        except Unread as trouble:
            raise BadLogin(
                f"Secret {secret} in {namespace} cannot be read: {trouble}; "
                "name it in kustomize/components/multikueue, and apply that."
            ) from None


async def _profile(needs: Needs, profile: Profile) -> Raw | None:
    place = Place(resources.CLUSTER_PROFILES, profile.namespace, profile.name, clusterprofile.facts)
    try:
        return await needs.read(place)
    except Unread as trouble:
        raise clusterprofile.unread(profile, str(trouble)) from None


async def once(client: Client, spec: specs.WorkerCluster) -> Login:
    """The login of a WorkerCluster as it is now, by the rights of `client` in the manager; raises as `Logins.of` does, or ApiError."""
    where, namespace = _own(spec), names.SYSTEM_NAMESPACE
    if where is None:
        assert spec.source.multi_kueue_cluster_ref is not None, "one of the three is set"
        name, namespace = spec.source.multi_kueue_cluster_ref.name, names.KUEUE_NAMESPACE
        where = multikueue.login(name, await client.find(resources.MULTIKUEUE_CLUSTERS.path(name=name)))
    if isinstance(where, Profile):
        profile = await client.find(resources.CLUSTER_PROFILES.path(where.namespace, where.name))
        address = clusterprofile.address(where, profile)
        secret = await client.find(resources.SECRETS.path(namespace, where.token_secret))
        return _by_profile(where, address, namespace, secret)
    return _login(where, namespace, await client.find(resources.SECRETS.path(namespace, where)))


def unusable(name: str, login: Login, error: BadLogin) -> str:
    """The sentence for a kubeconfig by which nobody can log in to WorkerCluster `name`."""
    if login.profile:
        return clusterprofile.unusable(login.profile, str(error))
    return f"{login.secret} holds no usable kubeconfig: {error}; make it anew with `kubectl rayspan join {name}`."


def _own(spec: specs.WorkerCluster) -> str | Profile | None:
    """The Secret with its kubeconfig, or its ClusterProfile; None where MultiKueue's objects say it."""
    if spec.source.kube_config is not None:
        return spec.source.kube_config.secret_ref.name
    if spec.source.cluster_profile_ref is not None:
        return clusterprofile.of_source(spec.source.cluster_profile_ref)
    return None


def _by_profile(profile: Profile, address: Mapping[str, str], namespace: str, found: Raw | None) -> Login:
    text = clusterprofile.kubeconfig(address, clusterprofile.token(profile, namespace, found))
    return Login(f"Secret {profile.token_secret} in {namespace}", text, profile)


def _login(secret: str, namespace: str, found: Raw | None) -> Login:
    if found is None:
        raise BadLogin(f"Secret {secret} does not exist in {namespace}; create it with a kubeconfig.")
    held = found.get("data")
    data = held.get(names.KUBECONFIG_KEY) if isinstance(held, dict) else None
    if not isinstance(data, str) or not data:
        raise BadLogin(f"Secret {secret} in {namespace} has no key {names.KUBECONFIG_KEY}; add it.")
    try:
        return Login(f"Secret {secret} in {namespace}", base64.b64decode(data, validate=True).decode())
    except ValueError:
        raise BadLogin(f"Secret {secret} in {namespace}: {names.KUBECONFIG_KEY} is not text; make it anew.") from None
