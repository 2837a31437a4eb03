"""Reads from a ClusterProfile how its cluster is reached, and which Secret's token may be sent there.

A ClusterProfile (cluster inventory API, SIG Multicluster) has the address of an API server and *access providers*:
names of login programs that the consumer runs. Our pod runs no such program. It does what `secretreader`, the simplest
official one, does: it takes the token from a Secret with the profile's name in the consumer's namespace
(docs/upstream.md, "How one logs in by a ClusterProfile"). Another provider's address is used only where an admin names
the Secret.

The author of a profile decides where the token is sent, so only an admin may choose a Secret of another name. A profile
can neither turn off TLS nor have a file of ours read.
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
# The older and the newer name of the status field with the providers; the newer takes precedence.
_PROVIDER_FIELDS = ("credentialProviders", "accessProviders")
# The fields that are used: those of upstream's consumer (cluster-inventory-api:pkg/access/config.go), and the name on
# the server's certificate.
_CLUSTER_FIELDS = ("server", "certificate-authority-data", "tls-server-name", "proxy-url")


@dataclass(frozen=True, slots=True)
class ProfileReference:
    """A ClusterProfile, and the Secret with the token for its cluster."""

    name: str
    namespace: str
    secret: str = ""  # the Secret that an admin named; empty: the Secret with the profile's name
    field: str = FIELD

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"ClusterProfile {self.namespace}/{self.name}"

    @property
    def token_secret(self) -> str:
        """The name of the Secret with the token."""
        return self.secret or self.name


def profile_of_source(source: specs.ClusterProfileSource) -> ProfileReference:
    """The profile that a WorkerCluster names in its own spec."""
    secret_ref = source.token_secret_ref
    return ProfileReference(source.name, source.namespace, secret_ref.name if secret_ref else "")


def cluster_address(profile: ProfileReference, raw: Raw | None) -> Mapping[str, str]:
    """The fields of a kubeconfig's `cluster` for the API server of a profile's cluster.

    `raw` is None if the profile does not exist. Raises specs.InvalidSpec with a sentence where no token may be sent.
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
    """The part of a ClusterProfile that decides the login; its health and properties change all the time."""
    status = raw.get("status")
    return [status.get(field) for field in _PROVIDER_FIELDS] if isinstance(status, dict) else status


def token_of_secret(profile: ProfileReference, namespace: str, secret: Raw | None) -> str:
    """The token in a profile's Secret. Raises specs.InvalidSpec with a sentence that quotes nothing of the Secret."""
    title = f"Secret {profile.token_secret} in {namespace}"
    if secret is None:
        raise specs.InvalidSpec(
            f"{title}, which must hold the token for {profile.title}, does not exist; create it with the token in its "
            f"key {names.TOKEN_KEY}."
        )
    data = secret.get("data")
    encoded = data.get(names.TOKEN_KEY) if isinstance(data, dict) else None
    if not isinstance(encoded, str) or not encoded:
        raise specs.InvalidSpec(f"{title} has no key {names.TOKEN_KEY}; add it, with the token for {profile.title}.")
    try:
        # A token from a file ends with a line break.
        text = base64.b64decode(encoded, validate=True).decode("ascii").strip()
    except ValueError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        raise specs.InvalidSpec(f"{title}: its key {names.TOKEN_KEY} holds no valid token; create a new one.")
    return text


def build_kubeconfig(cluster: Mapping[str, str], token: str) -> str:
    """A kubeconfig with one cluster and one token."""
    name = "worker"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": dict(cluster)}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def unreadable_error(profile: ProfileReference, reason: str) -> specs.InvalidSpec:
    """The error if the right or the CRD for ClusterProfiles is missing."""
    return specs.InvalidSpec(
        f"{profile.field} cannot be resolved: the controller cannot read {profile.title} ({reason}); install the CRD "
        f"of the cluster inventory API, and apply kustomize/overlays/manager, or {_INSTEAD}."
    )


def unusable_message(profile: ProfileReference, reason: str) -> str:
    """A sentence on a profile that gives no connection."""
    return (
        f"{profile.title} gives no usable cluster address: {reason}; correct it in the cluster manager that writes "
        "status.accessProviders."
    )


def _access_providers(raw: Raw) -> dict[str, Raw]:
    """The `cluster` of each access provider, by the provider's name.

    Source: cluster-inventory-api:pkg/access/config.go, getClusterAccessorFromClusterProfile.
    """
    status = raw.get("status") or {}
    return {
        str(provider["name"]): provider.get("cluster") or {}
        for field in _PROVIDER_FIELDS
        for provider in status.get(field) or ()
    }


def _provider_address(profile: ProfileReference, providers: Mapping[str, Raw]) -> Mapping[str, str]:
    if not providers:
        raise specs.InvalidSpec(
            f"{profile.field}: {profile.title} has no access provider in its status, so the address of its cluster is "
            f"unknown; find out why its cluster manager writes none, or {_INSTEAD}."
        )
    reader = providers.get(names.SECRET_READER)
    if reader is not None:
        _require_own_secret(profile, reader)
        return _safe_address(profile, reader)
    if not profile.secret:
        raise specs.InvalidSpec(
            f"{profile.field}: {profile.title} has the access providers {_provider_names(providers)} and none called "
            f"{names.SECRET_READER}, and Rayspan runs no program for a login; put a token into a Secret of "
            f"{names.SYSTEM_NAMESPACE}, and name that in {FIELD}.tokenSecretRef, or {_INSTEAD}."
        )
    addresses = [_safe_address(profile, cluster) for cluster in providers.values()]
    if any(address != addresses[0] for address in addresses):
        raise specs.InvalidSpec(
            f"{profile.field}: {profile.title} has the access providers {_provider_names(providers)}, which lead to "
            f"several addresses, and none called {names.SECRET_READER}; name one of them so, or {_INSTEAD}."
        )
    return addresses[0]


def _provider_names(providers: Mapping[str, Raw]) -> str:
    shown = sorted(providers)[:5]
    return ", ".join(map(printable, shown)) + (", ..." if len(providers) > len(shown) else "")


def _require_own_secret(profile: ProfileReference, cluster: Raw) -> None:
    """Raise InvalidSpec if a profile asks for a Secret of another name, and no admin named one."""
    for extension in cluster.get("extensions") or ():
        if extension["name"] != names.EXEC_EXTENSION:
            continue
        secret = str((extension.get("extension") or {}).get("clusterName") or profile.name)
        if not profile.secret and secret != profile.name:
            raise specs.InvalidSpec(
                f"{profile.field}: {profile.title} asks for the token in Secret {printable(secret)}, and a profile may "
                f"not choose the Secret of another cluster; if that is right, name it in {FIELD}.tokenSecretRef."
            )


def _safe_address(profile: ProfileReference, cluster: Raw) -> Mapping[str, str]:
    """A provider's address. Raises InvalidSpec if a file would be read, or nothing would verify who gets the token."""
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith("https://"):
        reason = "its server is not an https URL"
    elif cluster.get("insecure-skip-tls-verify"):
        reason = "it sets insecure-skip-tls-verify, and a token is sent only to a server whose certificate is verified"
    elif cluster.get("certificate-authority"):
        reason = "its certificate-authority is a file; put the data itself there"
    else:
        return {key: cluster[key] for key in _CLUSTER_FIELDS if cluster.get(key)}
    raise specs.InvalidSpec(f"{profile.field}: {unusable_message(profile, reason)}")
