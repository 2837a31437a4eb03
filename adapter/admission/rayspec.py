"""What in a RayCluster, beside its pod templates, keeps its workers from running in another cluster?

Asked at the admission check with the RayJob or RayCluster at hand, since none of this is in a Workload's podsets: KubeRay
acts on it when it makes pods. The list is the second reject list of kuberay.md section 9. A field of a KubeRay that is
newer than the manager's is not there, and nothing is said of it.
"""

from collections.abc import Iterator

from adapter import names
from adapter.objects.raw import Raw, annotation


def refusal(kind: str, job: Raw) -> str:
    """Say in a fragment why the workers of a RayJob or RayCluster cannot run elsewhere, empty when they can.

    Like `refusal.refusal`: field, what was found, what to do. Sources: kuberay:apis/ray/v1/raycluster_types.go; kuberay.md
    sections 2.4, 4.6 and 5.4.
    """
    return next(_reasons(kind, job), "")


def _reasons(kind: str, job: Raw) -> Iterator[str]:
    where = "spec.rayClusterSpec" if kind == "RayJob" else "spec"
    spec = job.get("spec") or {}
    cluster = (spec.get("rayClusterSpec") if kind == "RayJob" else spec) or {}
    tls = cluster.get("tlsOptions")
    if tls is not None and tls.get("enabled") is not False:
        yield (
            f"{where}.tlsOptions is set: a worker elsewhere would wait for a certificate with its own address, and Ray does "
            "not read a new one; leave it out, and set RAY_USE_TLS and the certificates in the templates"
        )
    if (cluster.get("authOptions") or {}).get("enableK8sTokenAuth"):
        yield (
            f"{where}.authOptions.enableK8sTokenAuth is true: the token's issuer is the cluster that a pod runs in, which the "
            "manager does not trust; use authOptions.mode token"
        )
    for index, group in enumerate(cluster.get("workerGroupSpecs") or ()):
        if (group.get("numOfHosts") or 1) > 1:
            yield (
                f"{where}.workerGroupSpecs[{index}].numOfHosts is {group['numOfHosts']}: the hosts of one replica could come "
                "into different clusters; set 1"
            )
    if annotation(job, names.RAY_RESIZE_ANNOTATION):
        yield (
            f"metadata.annotations has {names.RAY_RESIZE_ANNOTATION}: a worker elsewhere is not resized while it runs; "
            "remove it"
        )
