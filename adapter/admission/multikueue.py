"""Where does an existing MultiKueueCluster keep its login, so that nothing is registered twice: in which Secret, or by which ClusterProfile?

Reads the object only. Whether Kueue itself reaches the cluster (its condition Active) is not asked: Kueue needs other
rights there than we do, and each of us tells of its own trouble.
"""

from adapter import names
from adapter.admission.clusterprofile import ProfileReference
from adapter.objects import specs
from adapter.objects.unstructured import UNREADABLE, Raw

FIELD = "spec.source.multiKueueClusterRef"
_INSTEAD = "put a kubeconfig into a Secret, and name that in spec.source.kubeConfig"


def login_source(name: str, raw: Raw | None) -> str | ProfileReference:
    """Name the Secret in Kueue's namespace that holds the kubeconfig of MultiKueueCluster `name`, or the ClusterProfile there that leads to it.

    `found` is the object, None if there is none. Raises specs.Invalid with a sentence where there is neither.
    Source: kueue apis/kueue/v1beta2/multikueue_types.go, MultiKueueClusterSpec; a profile is in Kueue's own namespace:
    kueue:pkg/controller/admissionchecks/multikueue/multikueuecluster.go, getRestConfigFromClusterProfile.
    """
    if raw is None:
        raise specs.InvalidSpec(
            f"{FIELD} names MultiKueueCluster {name}, which does not exist; create it, or {_INSTEAD}."
        )
    try:
        source = raw["spec"]["clusterSource"]
        if source.get("clusterProfileRef") is not None:
            profile = str(source["clusterProfileRef"]["name"])
            return ProfileReference(
                profile, names.KUEUE_NAMESPACE, field=f"{FIELD}: clusterProfileRef of MultiKueueCluster {name}"
            )
        secret, why = _kubeconfig_secret(source)
    except UNREADABLE as error:
        raise specs.InvalidSpec(f"{FIELD}: MultiKueueCluster {name} cannot be read ({type(error).__name__}).") from None
    if why:
        raise specs.InvalidSpec(f"{FIELD}: MultiKueueCluster {name} has {why}; {_INSTEAD}.")
    return secret


def unreadable_error(reason: str) -> specs.InvalidSpec:
    """The sentence for a manager cluster whose MultiKueueClusters cannot be read at all."""
    return specs.InvalidSpec(
        f"{FIELD} cannot be followed: the manager cluster does not show its MultiKueueClusters ({reason}); "
        f"install Kueue's CRDs, and apply kustomize/overlays/manager, or {_INSTEAD}."
    )


def _kubeconfig_secret(source: Raw) -> tuple[str, str]:
    """The Secret's name, or why there is none."""
    config = source["kubeConfig"]
    kind = config.get("locationType", "Secret")
    if kind != "Secret":
        return "", f"locationType {kind}, and a file of Kueue's pod is not ours to read"
    if not config.get("location"):
        return "", "no location, and so no Secret"
    return str(config["location"]), ""
