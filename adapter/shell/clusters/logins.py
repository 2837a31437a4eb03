"""With which kubeconfig is a worker cluster reached: that of a Secret of ours, or the one that MultiKueue uses already?

Of Kueue's namespace, which holds Kueue's own keys too, only the Secrets are read that a WorkerCluster needs by way of its
MultiKueueCluster: each is followed by its name, for as long as it is needed. RBAC can grant a name.
"""

import asyncio
import base64
import functools
import logging
from dataclasses import dataclass, field

from adapter import names
from adapter.admission import multikueue
from adapter.objects import specs
from adapter.objects.raw import Raw
from adapter.shell.clusters.manager import Manager
from adapter.shell.guard import guarded
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.kubeconfig import BadLogin
from adapter.shell.kube.reflector import Following, follow
from adapter.shell.kube.store import Store

log = logging.getLogger(__name__)

_BROKE = "reading it broke; see the controller's log"


@dataclass(frozen=True, slots=True)
class Login:
    """A kubeconfig, and how to speak of the Secret that it is from."""

    secret: str
    kubeconfig: str = field(repr=False)  # never to be shown


@dataclass(slots=True)
class _Followed:
    store: Store
    task: asyncio.Task[None] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: str = ""


class Logins:
    """Reads kubeconfigs from the manager cluster."""

    def __init__(self, tasks: asyncio.TaskGroup, manager: Manager) -> None:
        self._tasks, self._manager = tasks, manager
        self._needed: dict[str, str] = {}  # WorkerCluster -> the Secret of Kueue's namespace that it needs
        self._followed: dict[str, _Followed] = {}

    async def of(self, name: str, spec: specs.WorkerCluster) -> Login:
        """The login of WorkerCluster `name`; raises BadLogin or specs.Invalid with a sentence."""
        if spec.source.kube_config is not None:
            self.forget(name)
            secret = spec.source.kube_config.secret_ref.name
            found = self._manager.secrets.get((names.SYSTEM_NAMESPACE, secret))
            return _login(secret, names.SYSTEM_NAMESPACE, found)
        try:
            secret = self._borrowed(spec)
        except specs.Invalid:
            self.forget(name)
            raise
        return _login(secret, names.KUEUE_NAMESPACE, await self._read(name, secret))

    def forget(self, name: str) -> None:
        """Note that WorkerCluster `name` needs no Secret of Kueue's namespace; one that nobody needs is read no more."""
        self._needed.pop(name, None)
        for secret in set(self._followed) - set(self._needed.values()):
            task = self._followed.pop(secret).task
            if task:
                task.cancel()

    def _borrowed(self, spec: specs.WorkerCluster) -> str:
        ref = spec.source.multi_kueue_cluster_ref
        assert ref is not None, "one of the two is set"
        known = self._manager.multikueue_clusters
        if not known.synced:
            raise multikueue.unread(str(self._manager.unread.get(resources.MULTIKUEUE_CLUSTERS, "no answer yet")))
        return multikueue.secret_name(ref.name, known.named(ref.name))

    async def _read(self, name: str, secret: str) -> Raw | None:
        if self._needed.get(name) != secret:
            self.forget(name)
            self._needed[name] = secret
        found = self._followed.get(secret) or self._follow(secret)
        await found.answered.wait()
        if not found.store.synced:  # once it was read, what was read last counts
            raise BadLogin(
                f"Secret {secret} in {names.KUEUE_NAMESPACE} cannot be read: {found.trouble}; "
                "name it in kustomize/components/multikueue, and apply that."
            )
        return found.store.get((names.KUEUE_NAMESPACE, secret))

    def _follow(self, secret: str) -> _Followed:
        made = _Followed(Store(self._manager.secrets.tell))
        self._followed[secret] = made

        def trouble(error: Exception | None) -> None:
            said = "" if error is None else _sentence(error)
            news = said != made.trouble
            made.trouble = said
            made.answered.set()
            if news:
                log.info("Secret %s in %s: %s", secret, names.KUEUE_NAMESPACE, said or "is read")
                self._manager.secrets.tell()

        only = {"fieldSelector": f"metadata.name={secret}"}
        what = Following(self._manager.client, resources.SECRETS, made.store, trouble, names.KUEUE_NAMESPACE, only)
        run = functools.partial(follow, what)
        made.task = self._tasks.create_task(guarded("logins", run, broke=lambda _: trouble(Unreachable(_BROKE))))
        return made


async def once(client: Client, spec: specs.WorkerCluster) -> Login:
    """The login of a WorkerCluster as it is now, by the rights of `client` in the manager; raises as `Logins.of` does, or ApiError."""
    if spec.source.kube_config is not None:
        secret, namespace = spec.source.kube_config.secret_ref.name, names.SYSTEM_NAMESPACE
    else:
        assert spec.source.multi_kueue_cluster_ref is not None, "one of the two is set"
        name, namespace = spec.source.multi_kueue_cluster_ref.name, names.KUEUE_NAMESPACE
        secret = multikueue.secret_name(name, await client.find(resources.MULTIKUEUE_CLUSTERS.path(name=name)))
    return _login(secret, namespace, await client.find(resources.SECRETS.path(namespace, secret)))


def unusable(name: str, login: Login, error: BadLogin) -> str:
    """The sentence for a kubeconfig by which nobody can log in to WorkerCluster `name`."""
    return f"{login.secret} holds no usable kubeconfig: {error}; make it anew with `kubectl rayspan join {name}`."


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


def _sentence(error: Exception) -> str:
    if isinstance(error, ApiError) and error.status == 403:
        return "the controller has no right to it"
    return str(error)
