"""Jobs that the API server and Kueue accept and KubeRay rejects: at least one for each rule of `kuberay_rules`."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from adapter import names
from adapter.objects.unstructured import Raw, RawDict

_FT_OPTIONS: Final = {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}
_AUTOSCALER: Final = {"enableInTreeAutoscaling": True}
_V2: Final = {**_AUTOSCALER, "autoscalerOptions": {"version": "v2"}}
_ELASTIC: Final = {names.ELASTIC_ANNOTATION: "true"}


@dataclass(frozen=True, slots=True)
class KubeRayRefusal:
    """A change of a sound job that KubeRay rejects."""

    title: str  # unique
    rule: str  # the title of the KubeRayRule
    sentence: str  # the beginning of our fragment; {} is the path of the RayCluster's spec
    kuberay_words: str  # words of KubeRay's message
    name: str = ""  # the job's name in place of its own
    annotations: Mapping[str, str] | None = None
    cluster: Mapping[str, Any] | None = None  # fields of the RayCluster's spec
    head: Mapping[str, Any] | None = None  # fields of the head's group
    env: Mapping[str, str] | None = None  # variables of the head's Ray container
    group: Mapping[str, Any] | None = None  # fields of the first worker group
    job: Mapping[str, Any] | None = None  # fields of a RayJob's spec; None: a RayCluster is rejected as well
    restarts: str = ""  # the group whose pods restart: "head" or "workers"


_SUBMITTER: Final = {"spec": {"restartPolicy": "Never", "containers": [{"name": "submit", "image": "ray"}]}}
_RULES: Final = [{"policy": "DeleteSelf", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 300}}]

KUBERAY_REFUSALS: Final = (
    KubeRayRefusal(
        "long name", "name", "metadata.name has 55 characters", "should be no more than 53 characters", name="c" * 55
    ),
    KubeRayRefusal(
        "long name of a RayJob",
        "name",
        "metadata.name has 52 characters",
        "should be no more than 47 characters",
        name="j" * 52,
        job={},
    ),
    KubeRayRefusal(
        "a name that begins with a digit",
        "name",
        "metadata.name is 7-trial",
        "should be a valid DNS1035 label",
        name="7-trial",
    ),
    KubeRayRefusal(
        "resources of the head twice",
        "resources twice",
        "{}.headGroupSpec has resources, and",
        "should not be set in both",
        head={"rayStartParams": {"num-cpus": "1"}, "resources": {"CPU": "1"}},
    ),
    KubeRayRefusal(
        "resources of workers twice",
        "resources twice",
        "{}.workerGroupSpecs[0] has resources, and",
        "should not be set in both",
        group={"rayStartParams": {"memory": "1000"}, "resources": {"CPU": "1"}},
    ),
    KubeRayRefusal(
        "labels of the head as a parameter",
        "labels as a parameter",
        "{}.headGroupSpec.rayStartParams has labels",
        "is not supported for Head group",
        head={"rayStartParams": {"labels": "a=b"}},
    ),
    KubeRayRefusal(
        "labels of workers as a parameter",
        "labels as a parameter",
        "{}.workerGroupSpecs[0].rayStartParams has labels",
        "is not supported for workers group",
        group={"rayStartParams": {"labels": "a=b"}},
    ),
    KubeRayRefusal(
        "a label's key with a blank",
        "label syntax",
        "{}.workerGroupSpecs[0].labels has my key",
        "invalid label key",
        group={"labels": {"my key": "a"}},
    ),
    KubeRayRefusal(
        "a label's value with a blank",
        "label syntax",
        "{}.headGroupSpec.labels has key",
        "invalid label value",
        head={"labels": {"key": "a b"}},
    ),
    KubeRayRefusal(
        "Redis without fault tolerance",
        "Redis without fault tolerance",
        "{}.headGroupSpec.template has the variable RAY_REDIS_ADDRESS",
        "GcsFaultToleranceOptions is not set",
        env={"RAY_REDIS_ADDRESS": "redis:6379"},
    ),
    KubeRayRefusal(
        "fault tolerance by annotation and options",
        "fault tolerance twice",
        "metadata.annotations has ray.io/ft-enabled",
        "are both set",
        annotations={"ray.io/ft-enabled": "true"},
        cluster=_FT_OPTIONS,
    ),
    KubeRayRefusal(
        "storage namespace by annotation and options",
        "fault tolerance twice",
        "metadata.annotations has ray.io/external-storage-namespace",
        "cannot set `ray.io/external-storage-namespace`",
        annotations={"ray.io/external-storage-namespace": "a"},
        cluster=_FT_OPTIONS,
    ),
    KubeRayRefusal(
        "Redis password as a parameter",
        "fault tolerance twice",
        "{}.headGroupSpec.rayStartParams has redis-password",
        "cannot set `redis-password`",
        head={"rayStartParams": {"redis-password": "a"}},
        cluster=_FT_OPTIONS,
    ),
    KubeRayRefusal(
        "Redis password as a variable",
        "fault tolerance twice",
        "{}.headGroupSpec.template has the variable REDIS_PASSWORD",
        "cannot set `REDIS_PASSWORD`",
        env={"REDIS_PASSWORD": "a"},
        cluster=_FT_OPTIONS,
    ),
    KubeRayRefusal(
        "Redis address twice",
        "fault tolerance twice",
        "{}.headGroupSpec.template has the variable RAY_REDIS_ADDRESS",
        "cannot set `RAY_REDIS_ADDRESS`",
        env={"RAY_REDIS_ADDRESS": "a"},
        cluster=_FT_OPTIONS,
    ),
    KubeRayRefusal(
        "Redis user as a variable",
        "Redis user",
        "{}.headGroupSpec has redis-username",
        "cannot set redis username",
        env={"REDIS_USERNAME": "a"},
        cluster=_FT_OPTIONS,
    ),
    KubeRayRefusal(
        "Redis user as a parameter",
        "Redis user",
        "{}.headGroupSpec has redis-username",
        "cannot set redis username",
        head={"rayStartParams": {"redis-username": "a"}},
    ),
    KubeRayRefusal(
        "autoscaler variable without autoscaler",
        "autoscaler variable",
        "{}.headGroupSpec.template has the variable RAY_enable_autoscaler_v2",
        "when enableInTreeAutoscaling is false",
        env={"RAY_enable_autoscaler_v2": "1"},
    ),
    KubeRayRefusal(
        "autoscaler variable and version",
        "autoscaler variable",
        "{}.headGroupSpec.template has the variable RAY_enable_autoscaler_v2",
        "please only use the former",
        annotations=_ELASTIC,
        cluster=_V2,
        env={"RAY_enable_autoscaler_v2": "1"},
    ),
    KubeRayRefusal(
        "head that restarts beside the autoscaler",
        "restarts beside the autoscaler",
        "{}.headGroupSpec.template.spec.restartPolicy is Always",
        "restartPolicy for head Pod should be Never",
        annotations=_ELASTIC,
        cluster=_V2,
        restarts="head",
    ),
    KubeRayRefusal(
        "workers that restart beside the autoscaler",
        "restarts beside the autoscaler",
        "{}.workerGroupSpecs[0].template.spec.restartPolicy is Always",
        "restartPolicy for worker group workers should be Never",
        annotations=_ELASTIC,
        cluster=_V2,
        restarts="workers",
    ),
    KubeRayRefusal(
        "suspended group beside the autoscaler",
        "suspended group beside the autoscaler",
        "{}.workerGroupSpecs[0].suspend is true",
        "cannot be suspended with Autoscaler enabled",
        annotations=_ELASTIC,
        cluster=_AUTOSCALER,
        group={"suspend": True},
    ),
    KubeRayRefusal(
        "token mode without a version",
        "Ray version of token mode",
        "{}.authOptions.mode is token, and {}.rayVersion is missing",
        "RayVersion was not specified",
        cluster={"rayVersion": "", "authOptions": {"mode": "token"}},
    ),
    KubeRayRefusal(
        "token mode with an old version",
        "Ray version of token mode",
        "{}.authOptions.mode is token, and {}.rayVersion is 2.51.1",
        "minimum Ray version is 2.52.0",
        cluster={"rayVersion": "2.51.1", "authOptions": {"mode": "token"}},
    ),
    KubeRayRefusal(
        "submitter's template of SidecarMode",
        "SidecarMode",
        "spec.submitterPodTemplate is set",
        "doesn't support SubmitterPodTemplate",
        job={"submissionMode": "SidecarMode", "submitterPodTemplate": _SUBMITTER},
    ),
    KubeRayRefusal(
        "submitter's settings of SidecarMode",
        "SidecarMode",
        "spec.submitterConfig is set",
        "doesn't support SubmitterConfig",
        job={"submissionMode": "SidecarMode", "submitterConfig": {"backoffLimit": 1}},
    ),
    KubeRayRefusal(
        "head that restarts in SidecarMode",
        "SidecarMode",
        "{}.headGroupSpec.template.spec.restartPolicy is Always",
        "restartPolicy for head Pod should be Never",
        job={"submissionMode": "SidecarMode"},
        restarts="head",
    ),
    KubeRayRefusal(
        "retries in InteractiveMode",
        "retries in InteractiveMode",
        "spec.backoffLimit is 2",
        "BackoffLimit is incompatible with InteractiveMode",
        job={"submissionMode": "InteractiveMode", "backoffLimit": 2},
    ),
    KubeRayRefusal(
        "a negative time to live",
        "numbers of a RayJob",
        "spec.ttlSecondsAfterFinished is -1",
        "TTLSecondsAfterFinished must be a non-negative integer",
        job={"ttlSecondsAfterFinished": -1},
    ),
    KubeRayRefusal(
        "a deadline of 0",
        "numbers of a RayJob",
        "spec.activeDeadlineSeconds is 0",
        "activeDeadlineSeconds must be a positive integer",
        job={"activeDeadlineSeconds": 0},
    ),
    KubeRayRefusal(
        "deletion rules",
        "deletion strategy",
        "spec.deletionStrategy.deletionRules cannot be used in a queue",
        "are mutually exclusive",
        job={"deletionStrategy": {"deletionRules": _RULES}},
    ),
    KubeRayRefusal(
        "a RayCluster that stays",
        "deletion strategy",
        "spec.deletionStrategy.onSuccess.policy is DeleteNone",
        "while deletion policy is 'DeleteNone'",
        job={"deletionStrategy": {"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteCluster"}}},
    ),
)


def refused_job(sound: Raw, refusal: KubeRayRefusal) -> RawDict:
    """The job that KubeRay rejects, made of a sound RayCluster; a RayJob where the refusal is one of RayJobs."""
    body = deepcopy(dict(sound))
    body["metadata"] |= {"name": refusal.name} if refusal.name else {}
    body["metadata"]["annotations"] = {**(body["metadata"].get("annotations") or {}), **(refusal.annotations or {})}
    cluster = body["spec"]
    cluster |= refusal.cluster or {}
    cluster["headGroupSpec"] |= refusal.head or {}
    cluster["workerGroupSpecs"][0] |= refusal.group or {}
    container = cluster["headGroupSpec"]["template"]["spec"]["containers"][0]
    if refusal.env:
        container["env"] = [{"name": name, "value": value} for name, value in refusal.env.items()]
    if refusal.restarts:
        group = cluster["headGroupSpec"] if refusal.restarts == "head" else cluster["workerGroupSpecs"][0]
        group["template"]["spec"]["restartPolicy"] = "Always"
    return body if refusal.job is None else as_ray_job(body, **refusal.job)


def as_ray_job(ray_cluster: Raw, **spec: Any) -> RawDict:
    """A RayJob whose RayCluster is this one."""
    own = {"entrypoint": "python -c 1", "shutdownAfterJobFinishes": True, "rayClusterSpec": ray_cluster["spec"]}
    return {**ray_cluster, "kind": "RayJob", "spec": {**own, **spec}}
