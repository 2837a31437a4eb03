"""Reads where an existing MultiKueueCluster keeps its login, so that a cluster is not registered twice.

The MultiKueueCluster's condition Active is not checked: Kueue needs other rights in the cluster, and reports its own
problems.
"""

from adapter import names
from adapter.admission.clusterprofile import ProfileReference
from adapter.objects import specs
from adapter.objects.unstructured import UNREADABLE, Raw

FIELD = "spec.source.multiKueueClusterRef"
_INSTEAD = "put a kubeconfig into a Secret, and name that in spec.source.kubeConfig"


def login_source(name: str, raw: Raw | None) -> str | ProfileReference:
    """The Secret with the kubeconfig of MultiKueueCluster `name`, or its ClusterProfile; both in Kueue's namespace.

    `raw` is None if the object does not exist. Raises specs.InvalidSpec with a sentence.

    Source: kueue apis/kueue/v1beta2/multikueue_types.go, MultiKueueClusterSpec;
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
        secret, reason = _kubeconfig_secret(source)
    except UNREADABLE as error:
        raise specs.InvalidSpec(f"{FIELD}: MultiKueueCluster {name} cannot be read ({type(error).__name__}).") from None
    if reason:
        raise specs.InvalidSpec(f"{FIELD}: MultiKueueCluster {name} has {reason}; {_INSTEAD}.")
    return secret


def unreadable_error(reason: str) -> specs.InvalidSpec:
    """The error if no MultiKueueCluster can be read."""
    return specs.InvalidSpec(
        f"{FIELD} cannot be resolved: the controller cannot read the MultiKueueClusters of the manager cluster "
        f"({reason}); install Kueue's CRDs, and apply kustomize/overlays/manager, or {_INSTEAD}."
    )


def _kubeconfig_secret(source: Raw) -> tuple[str, str]:
    """The name of the Secret with the kubeconfig, and a fragment why there is none; one of the two is empty."""
    config = source["kubeConfig"]
    kind = config.get("locationType", "Secret")
    if kind != "Secret":
        return "", f"locationType {kind}, which is a file in Kueue's pod that Rayspan cannot read"
    if not config.get("location"):
        return "", "no location, and so no Secret"
    return str(config["location"]), ""
