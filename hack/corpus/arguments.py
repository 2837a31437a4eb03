"""Says for each sample that does not run with naming why that is right, or what is missing, in one line."""

from typing import Final

from hack.corpus.samples import Sample

NOT_ARGUED: Final = "**not argued yet**"
_ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "Right. Ray sends a token of the worker cluster to the manager, which does not trust its issuer. "
    "`authOptions.mode: token` works.": (
        "k8s-token-auth", "ray-cluster.kubernetes.auth", "ray-cluster.kubernetes.auth-manual",
    ),
    "Right. The pod names no account. A token of the default account has other rights in each cluster; a named account "
    "gets its token.": ("own-token",),
    "Right. KubeRay moves workers from one RayCluster to the next, and in a queue each has quota of its own. "
    "`NewCluster` works.": ("ray-service.incremental-upgrade",),
    "Right. Kueue requires `shutdownAfterJobFinishes: true`, and KubeRay rejects it beside `deletionRules`. No queue "
    "of Kueue takes such a job.": ("ray-job.deletion-rules",),
    "Right. The file is a template with variables. It runs when they are filled in.": (
        "placeholders", "vllm/ray-service.vllm-tpu-v6e-singlehost",
    ),
    "Right. The API server knows no such field. Rayspan's message names the right one.": ("wrong-field",),
    "Right. The field belongs to a later KubeRay.": ("history-options", "native-mtls"),
    "Right. A worker needs an address and ports of its own, which other clusters reach.": ("host-network",),
    "Right. A remote pod is not resized while it runs, because its share holds a fixed quota.": ("in-place-resize",),
    "Right. Without requests no quota is reserved, and the worker would run on the quota of others.": ("no-requests",),
    "Not yet. The Secret of a volume driver is not copied, because each driver reads it by its own rules.": (
        "csi-secret",
    ),
}  # fmt: skip


def argument_of(sample: Sample) -> str:
    """The line for a sample, by its file's name without the ending."""
    return _BY_SAMPLE.get(sample.name.removesuffix(".yaml"), NOT_ARGUED)


def argued() -> frozenset[str]:
    """The samples that have a line."""
    return frozenset(_BY_SAMPLE)


_BY_SAMPLE: Final = {name: argument for argument, samples in _ARGUMENTS.items() for name in samples}
