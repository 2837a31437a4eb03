"""How does a ClusterProfile say that its cluster is reached, and which Secret's token may be sent there?

A ClusterProfile of the cluster inventory API (SIG Multicluster) says where a cluster's API server is, and by which *access provider* one logs in:
a name for a program that the consumer runs. No program of others is run in our pod, so what the simplest official one does is done here:
`secretreader` takes the token out of a Secret that is called as the profile is, in the consumer's namespace
(docs/upstream.md, "How one logs in by a ClusterProfile"). Any other provider's address serves where an admin names the Secret himself.

Whoever writes a profile says to whom the token is sent, so he does not choose the Secret as well: a profile that asks for a Secret of another name is
refused, unless the WorkerCluster names it. Nor can he do without TLS, or have a file of ours read. Nothing is read or sent here.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

from adapter import names
from adapter.objects import specs
from adapter.objects.unstructured import UNREADABLE, Raw, printable

FIELD = "spec.source.clusterProfileRef"
_INSTEAD = "put a kubeconfig into a Secret, and name that in spec.source.kubeConfig"
_PROVIDER_FIELDS = (
    "credentialProviders",
    "accessProviders",
)  # of a profile's status: the older name, and the one that counts
# What is taken of a provider's `cluster`; what upstream's own consumer takes (cluster-inventory-api:pkg/access/config.go), and the name
# on its certificate.
_CLUSTER_FIELDS = ("server", "certificate-authority-data", "tls-server-name", "proxy-url")


@dataclass(frozen=True, slots=True)
class ProfileReference:
    """Which ClusterProfile is meant, and which Secret holds the token for its cluster."""

    name: str
    namespace: str
    secret: str = ""  # as an admin named it; empty: the profile's own name
    field: str = FIELD  # where it is named

    @property
    def title(self) -> str:
        """How sentences speak of it."""
        return f"ClusterProfile {self.namespace}/{self.name}"

    @property
    def token_secret(self) -> str:
        """The Secret with the token."""
        return self.secret or self.name


def profile_of_source(source: specs.ClusterProfileSource) -> ProfileReference:
    """The profile that a WorkerCluster names itself."""
    named = source.token_secret_ref
    return ProfileReference(source.name, source.namespace, named.name if named else "")


def cluster_address(profile: ProfileReference, raw: Raw | None) -> Mapping[str, str]:
    """Read how the API server of a profile's cluster is reached: `cluster` of a kubeconfig, for a login by a token.

    `found` is the object, None if there is none. Raises specs.Invalid with a sentence where no token may be sent there.
    """
    if raw is None:
        raise specs.InvalidSpec(
            f"{profile.field} names {profile.title}, which does not exist; create it, or {_INSTEAD}."
        )
    try:
        return _provider_address(profile, _access_providers(raw))
    except specs.InvalidSpec:
        raise
    except UNREADABLE as error:
        raise specs.InvalidSpec(f"{profile.field}: {profile.title} cannot be read ({type(error).__name__}).") from None


def login_facts(raw: Raw) -> object:
    """What of a ClusterProfile decides how its cluster is reached: others write its health and its properties all the time."""
    status = raw.get("status")
    return [status.get(field) for field in _PROVIDER_FIELDS] if isinstance(status, dict) else status


def token_of_secret(profile: ProfileReference, namespace: str, secret: Raw | None) -> str:
    """The token in the Secret of a profile, which is to be in `namespace`; raises specs.Invalid with a sentence, and quotes nothing of it."""
    called = f"Secret {profile.token_secret} in {namespace}"
    if secret is None:
        raise specs.InvalidSpec(
            f"{called}, which is to hold the token for {profile.title}, does not exist; create it with the token in its "
            f"key {names.TOKEN_KEY}."
        )
    held = secret.get("data")
    data = held.get(names.TOKEN_KEY) if isinstance(held, dict) else None
    if not isinstance(data, str) or not data:
        raise specs.InvalidSpec(f"{called} has no key {names.TOKEN_KEY}; add it, with the token for {profile.title}.")
    try:
        text = base64.b64decode(data, validate=True).decode("ascii").strip()  # of a file, with the line's end
    except ValueError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        raise specs.InvalidSpec(f"{called}: its key {names.TOKEN_KEY} is no token; make it anew.")
    return text


def build_kubeconfig(cluster: Mapping[str, str], token: str) -> str:
    """The text of a kubeconfig with one cluster and one token."""
    named = "worker"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": named, "cluster": dict(cluster)}],
            "users": [{"name": named, "user": {"token": token}}],
            "contexts": [{"name": named, "context": {"cluster": named, "user": named}}],
            "current-context": named,
        }
    )


def unreadable_error(profile: ProfileReference, reason: str) -> specs.InvalidSpec:
    """The sentence for a manager cluster that does not show a ClusterProfile, for want of a right, or of the kind."""
    return specs.InvalidSpec(
        f"{profile.field} cannot be followed: the manager cluster does not show {profile.title} ({reason}); install the CRD of the "
        f"cluster inventory API, and apply kustomize/overlays/manager, or {_INSTEAD}."
    )


def unusable_message(profile: ProfileReference, reason: str) -> str:
    """The sentence for a profile by which no connection can be made."""
    return f"{profile.title} leads to no cluster: {reason}; whoever writes its status.accessProviders is to mend that."


def _access_providers(raw: Raw) -> dict[str, Raw]:
    """Each access provider by its name. Source: cluster-inventory-api:pkg/access/config.go, getClusterAccessorFromClusterProfile."""
    status = raw.get("status") or {}
    return {str(one["name"]): one.get("cluster") or {} for field in _PROVIDER_FIELDS for one in status.get(field) or ()}


def _provider_address(profile: ProfileReference, providers: Mapping[str, Raw]) -> Mapping[str, str]:
    if not providers:
        raise specs.InvalidSpec(
            f"{profile.field}: {profile.title} has no access provider in its status, so nobody says where its cluster is; see why "
            f"its cluster manager writes none, or {_INSTEAD}."
        )
    reader = providers.get(names.SECRET_READER)
    if reader is not None:
        _require_own_secret(profile, reader)
        return _safe_address(profile, reader)
    if not profile.secret:
        raise specs.InvalidSpec(
            f"{profile.field}: {profile.title} has the access providers {_provider_names(providers)} and none called {names.SECRET_READER}, and "
            f"Rayspan runs no program for a login; put a token into a Secret of {names.SYSTEM_NAMESPACE}, and name that in "
            f"{FIELD}.tokenSecretRef, or {_INSTEAD}."
        )
    addresses = [_safe_address(profile, one) for one in providers.values()]
    if any(one != addresses[0] for one in addresses):
        raise specs.InvalidSpec(
            f"{profile.field}: {profile.title} has the access providers {_provider_names(providers)}, which lead to several addresses, and none "
            f"called {names.SECRET_READER}; have one called so, or {_INSTEAD}."
        )
    return addresses[0]


def _provider_names(providers: Mapping[str, Raw]) -> str:
    shown = sorted(providers)[:5]
    return ", ".join(map(printable, shown)) + (", ..." if len(providers) > len(shown) else "")


def _require_own_secret(profile: ProfileReference, cluster: Raw) -> None:
    """Raise Invalid where a profile asks for another Secret's token than the one that is named after it, and no admin said so."""
    for extension in cluster.get("extensions") or ():
        if extension["name"] != names.EXEC_EXTENSION:
            continue
        asked = str((extension.get("extension") or {}).get("clusterName") or profile.name)
        if not profile.secret and asked != profile.name:
            raise specs.InvalidSpec(
                f"{profile.field}: {profile.title} asks for the token in Secret {printable(asked)}, and a profile does not choose another "
                f"cluster's Secret; if that is right, name it in {FIELD}.tokenSecretRef."
            )


def _safe_address(profile: ProfileReference, cluster: Raw) -> Mapping[str, str]:
    """What is taken of a provider's `cluster`; raises Invalid where a token would be sent to nobody knows whom."""
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith("https://"):
        why = "its server is no https URL"
    elif cluster.get("insecure-skip-tls-verify"):
        why = "it asks for insecure-skip-tls-verify, and a token is sent to nobody whose certificate is not verified"
    elif cluster.get("certificate-authority"):
        why = "its certificate-authority is a file; put the data itself there"
    else:
        return {key: cluster[key] for key in _CLUSTER_FIELDS if cluster.get(key)}
    raise specs.InvalidSpec(f"{profile.field}: {unusable_message(profile, why)}")
