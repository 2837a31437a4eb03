"""What makes a cluster a worker of a manager? Which objects on both sides, whose they are, and what must not be mixed up.

In the worker cluster it is the account of manifests/rbac, which says by an annotation which managers call the cluster what; in the
manager a Secret with a kubeconfig, which says which cluster it leads to, and a WorkerCluster. So either side knows a login to a wrong
cluster, also after a crash between two writes. Nothing here asks anybody, and no text that is made here but a kubeconfig holds a token.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from adapter import names
from adapter.objects.unstructured import UNREADABLE, Raw, annotation, format_time, key_of, meta, parse_time

# A quarter of a year, which is what people renew certificates by who do it by hand: rarely enough to be done, and a kubeconfig
# that was stolen unseen is worth nothing a season later.
LIFETIME: Final = timedelta(days=90)
# What an API server accepts (k8s:pkg/apis/authentication/validation/validation.go).
SHORTEST: Final = timedelta(minutes=10)
LONGEST: Final = timedelta(seconds=2**32)
# `join` again keeps a token that lasts as long as this: whoever does so is to have time for what comes next.
LEFT: Final = timedelta(hours=1)
# What a worker cluster's administrator adds to the account (kustomize/overlays/worker-logs and worker-exec); what is left of it would be
# the next account's of that name.
REACH_ROLES: Final = (names.LOGS_ROLE, names.EXEC_ROLE)
# Said beforehand of a token that ends: whoever renews by hand, and is away for a week, still has a working week for it. Of 90 days it is
# the last sixth; what lasts no longer than this is renewed by a job, and its day is said all the time.
NOTICE: Final = timedelta(days=14)
HIDDEN: Final = "TOKEN"  # what stands for a token where people read


class Unusable(ValueError):
    """What is asked for cannot be done with what is there; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class Address:
    """How an API server is reached."""

    server: str
    authority: str = ""  # whose certificates are trusted, as PEM; empty: those that the machine trusts
    tls_name: str = ""  # the name in its certificate, where that is not the server's
    proxy: str = ""
    verified: bool = True


@dataclass(frozen=True, slots=True)
class Token:
    """What the API server gave, and when that ends."""

    value: str = field(repr=False)  # never to be shown
    ends: datetime
    kept: bool = False  # it was there before, and nobody asked for another one


@dataclass(frozen=True, slots=True)
class Membership:
    """One cluster as a worker of one manager."""

    name: str  # of the WorkerCluster, and of its Secret
    manager: str  # both clusters' identities
    worker: str


@dataclass(frozen=True, slots=True)
class Found:
    """What stands there of a membership; None where there is nothing."""

    cluster: Raw | None = None  # the WorkerCluster
    secret: Raw | None = None
    account: Raw | None = None  # in the worker cluster


def identity(kube_system: Raw) -> str:
    """Tell a cluster from every other one, by its namespace kube-system: short, stable, and not to be configured wrongly."""
    return hashlib.sha256(kube_system["metadata"]["uid"].encode()).hexdigest()[:10]


# --- the objects -----------------------------------------------------------------------------------------------------


def worker_side(
    one: Membership, account: Iterable[Raw], opening: Raw, namespaces: Iterable[str], standing: Raw | None
) -> list[Raw]:
    """The objects of a worker cluster, in the order in which they are made.

    `account` and `opening` are those of manifests/rbac: the account with its roles, and what opens a namespace to it. `standing` is
    the account as it is there now: other managers may use it as well.
    """
    signs = {**_signs(standing), f"{names.JOINED_PREFIX}{one.manager}": one.name}
    made = [
        _with(raw, annotations={**(meta(raw).get("annotations") or {}), **signs})
        if raw["kind"] == "ServiceAccount"
        else raw
        for raw in account
    ]
    return [*made, *(_with(opening, namespace=namespace) for namespace in namespaces)]


def secret(one: Membership, kubeconfig: str, ends: datetime) -> dict[str, Any]:
    """The manager's Secret, in which the controller finds the kubeconfig."""
    signs = {names.CLUSTER_ID_ANNOTATION: one.worker, names.TOKEN_ENDS_ANNOTATION: format_time(ends)}
    made = {"name": one.name, "namespace": names.SYSTEM_NAMESPACE, "annotations": signs}
    data = {names.KUBECONFIG_KEY: base64.b64encode(kubeconfig.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": made, "data": data}


def worker_cluster(name: str) -> dict[str, Any]:
    """The smallest WorkerCluster; what else its spec says is left to whoever wrote it."""
    source = {"kubeConfig": {"secretRef": {"name": name}}}
    made = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": name}}
    return {**made, "spec": {"source": source}}


def token_request(lifetime: timedelta) -> dict[str, Any]:
    spec = {"expirationSeconds": int(lifetime.total_seconds())}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def _with(raw: Raw, **more: Any) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], **more}}


# --- the kubeconfig --------------------------------------------------------------------------------------------------


def kubeconfig(there: Address, token: str) -> str:
    """A kubeconfig as the controller accepts one: all of it data, no file and no program."""
    cluster = {"server": there.server}
    if there.authority:
        cluster["certificate-authority-data"] = base64.b64encode(there.authority.encode()).decode()
    cluster |= {"tls-server-name": there.tls_name} if there.tls_name else {}
    cluster |= {"proxy-url": there.proxy} if there.proxy else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "worker", "cluster": cluster}],
        "users": [{"name": names.WORKER_ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": names.WORKER_ACCOUNT}}],
        "current-context": "worker",
    }
    return yaml.safe_dump(content, sort_keys=False)


def renewed(text: str, token: str) -> str:
    """The same kubeconfig with another token; raises Unusable where it is none that a token is all of the login of."""
    try:
        content = yaml.safe_load(text)
        (user,) = content["users"]
        if set(user["user"]) != {"token"}:
            raise ValueError
        user["user"] = {"token": token}
    except (yaml.YAMLError, *UNREADABLE):
        raise Unusable("it is no kubeconfig of one user with a token") from None
    return yaml.safe_dump(content, sort_keys=False)


def held(raw: Raw | None) -> str:
    """The kubeconfig in a Secret, empty where there is none."""
    try:
        return base64.b64decode((raw or {})["data"][names.KUBECONFIG_KEY], validate=True).decode()
    except UNREADABLE:
        return ""


def token_in(text: str) -> str:
    """The token of a kubeconfig, empty where there is none."""
    try:
        return str(yaml.safe_load(text)["users"][0]["user"]["token"])
    except (yaml.YAMLError, IndexError, *UNREADABLE):
        return ""


def ends(raw: Raw | None) -> datetime | None:
    """When the token in a Secret ends, None where that is not known."""
    return parse_time(annotation(raw or {}, names.TOKEN_ENDS_ANNOTATION))


def secret_of(cluster: Raw) -> str:
    """The Secret of ours that a WorkerCluster names for its kubeconfig, empty where it names none."""
    try:
        return str(cluster["spec"]["source"]["kubeConfig"]["secretRef"]["name"])
    except UNREADABLE:
        return ""


def notice(name: str, end: datetime | None, now: datetime) -> str:
    """That the token of a WorkerCluster ends soon, a sentence with the day (UTC), which is another one once a day at most; empty while
    there is time, or where nothing is known."""
    if end is None or end - now >= NOTICE:
        return ""
    return f"Its token ends on {end:%Y-%m-%d}: renew it by {renewal(name)}."


def renewal(name: str) -> str:
    """What to type for a fresh token of a WorkerCluster that has joined."""
    return f"`kubectl rayspan rotate {name} --worker-context CONTEXT`"


def kept(one: Membership, found: Found, there: Address, now: datetime) -> Token | None:
    """The token that a Secret holds already, if nothing about that is to be changed.

    None is kept where the account was not there before: the token is that of one that was deleted, which an API server may take for some
    seconds more (k8s:staging/src/k8s.io/apiserver/pkg/authentication/token/cache).
    """
    text, last = held(found.secret), ends(found.secret)
    token = token_in(text)
    same = bool(token) and text == kubeconfig(there, token) and _leads_to(found.secret) == one.worker
    same &= found.account is not None
    return Token(token, last, kept=True) if same and last and last - now >= LEFT else None


# --- what must not be mixed up ---------------------------------------------------------------------------------------


def not_to_join(one: Membership, found: Found) -> str:
    """Why the cluster cannot join under that name, a sentence; empty where it can."""
    source = (((found.cluster or {}).get("spec") or {}).get("source")) or {}
    known = _known_as(one, found)
    ref = (source.get("kubeConfig") or {}).get("secretRef") or {}
    if one.manager == one.worker:
        return _SAME
    if known not in ("", one.name):
        return f"This cluster has joined as {known}: it would be counted twice. Let it leave first, by `kubectl rayspan leave {known}`."
    if found.secret and _leads_to(found.secret) not in ("", one.worker):
        return f"{_other(one)} Choose another name, or let that one leave first."
    if source.get("multiKueueClusterRef"):
        return f"WorkerCluster {one.name} uses the kubeconfig of a MultiKueueCluster (spec.source.multiKueueClusterRef): renew it there, or choose another name."
    if source.get("clusterProfileRef"):
        return f"WorkerCluster {one.name} uses a ClusterProfile (spec.source.clusterProfileRef), and the token beside it: renew that, or choose another name."
    if ref and ref.get("name") != one.name:
        return f"WorkerCluster {one.name} uses Secret {ref.get('name')} (spec.source.kubeConfig.secretRef), and join writes Secret {one.name}: set that there, or choose another name."
    return ""


def not_its_own(one: Membership, found: Found) -> str:
    """Why the cluster behind the login is not the one of that name, a sentence; empty where it is, or where nothing is left of it."""
    if one.manager == one.worker:
        return _SAME
    if found.secret and _leads_to(found.secret) not in ("", one.worker):
        return f"{_other(one)} Name that one by --worker-context."
    known = _known_as(one, found)
    if known and known != one.name:
        return f"The worker cluster that you named has joined as {known}, not as {one.name}: name the right one by --worker-context."
    if found.account and not known:
        return (
            f"The account {names.WORKER_ACCOUNT} of the worker cluster that you named was not made by `kubectl rayspan join {one.name}` of this "
            "manager: name the right one by --worker-context, or join again first, which adopts it."
        )
    if not found.account and (found.cluster or found.secret) and _leads_to(found.secret) != one.worker:
        return (
            f"The worker cluster that you named has no account {names.WORKER_ACCOUNT}, and nothing says that it is {one.name}: name the right one "
            "by --worker-context, or join again first, which notes it."
        )
    return ""


def others(one: Membership, account: Raw | None) -> list[str]:
    """The identities of other managers that the account serves as well."""
    found = (key.removeprefix(names.JOINED_PREFIX) for key in _signs(account))
    return sorted(identity for identity in found if identity != one.manager)


def opens(binding: Raw) -> bool:
    """Whether a RoleBinding does nothing but open its namespace to the account: to run workers, to read their logs, or to enter them."""
    role, subjects = binding.get("roleRef") or {}, binding.get("subjects") or []
    account = {"kind": "ServiceAccount", "namespace": names.SYSTEM_NAMESPACE, "name": names.WORKER_ACCOUNT}
    only = len(subjects) == 1 and account.items() <= dict(subjects[0]).items()
    return only and role.get("kind") == "ClusterRole" and role.get("name") in (names.TENANT_ROLE, *REACH_ROLES)


def out_of_reach(there: Address, *, asked: bool) -> str:
    """Why the manager's pods cannot, or must not, reach an API server by this address, a sentence; empty where nothing speaks against it.

    `asked`: somebody named it, and so knows where the controller runs.
    """
    url = urlsplit(there.server)
    host = url.hostname or ""
    if url.scheme == "http":
        return (
            f"{there.server} is not https, so the token would be readable on the way: give another address by --server."
        )
    if not asked and (host == "localhost" or _loopback(host)):
        return f"{there.server} is this machine's own address, which the manager's pods cannot reach: give theirs by --server."
    if not there.verified:
        return "Your kubeconfig does not verify who answers there (insecure-skip-tls-verify): give it the certificate-authority-data of the worker cluster."
    return ""


def naming(policies: Iterable[Raw], name: str) -> Sequence[str]:
    """The DispatchPolicies that name the cluster."""
    clusters = ((key_of(raw)[1], (raw.get("spec") or {}).get("clusters") or {}) for raw in policies)
    return sorted(policy for policy, chosen in clusters if name in (chosen.get("names") or ()))


def when(end: datetime, now: datetime) -> str:
    """When a token ends, as people say it."""
    if end < now:
        return f"{end:%Y-%m-%d %H:%M} UTC, which is over"
    left = end - now + timedelta(seconds=30)  # what was asked for a moment ago is still a whole number
    days, hours, minutes = left.days, left.seconds // 3600, left.seconds // 60
    count, unit = (days, "day") if days else (hours, "hour") if hours else (minutes, "minute")
    return f"{end:%Y-%m-%d %H:%M} UTC, in {count} {unit}{'' if count == 1 else 's'}"


_SAME: Final = (
    "Both logins lead to the same cluster: name the manager by --context and the worker cluster by --worker-context."
)


def _other(one: Membership) -> str:
    return f"{one.name} is another cluster than the one that you named: Secret {one.name} in {names.SYSTEM_NAMESPACE} leads there."


def _leads_to(raw: Raw | None) -> str:
    return annotation(raw or {}, names.CLUSTER_ID_ANNOTATION)


def _known_as(one: Membership, found: Found) -> str:
    return annotation(found.account or {}, f"{names.JOINED_PREFIX}{one.manager}")


def _signs(account: Raw | None) -> Mapping[str, str]:
    noted = meta(account or {}).get("annotations") or {}
    return {key: value for key, value in noted.items() if key.startswith(names.JOINED_PREFIX)}


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
