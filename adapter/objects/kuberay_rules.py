"""The rules by which KubeRay rejects a RayJob or RayCluster that the API server and Kueue accept, as a table.

KubeRay reads them after Kueue has reserved quota; it then creates no pod. The table has the rules that KubeRay 1.5.1
and 1.6.2 share, so that no supported KubeRay runs a job that we reject. KubeRay's own events cover all other rules.
Source: kuberay:ray-operator/controllers/ray/utils/validation.go.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from adapter import names
from adapter.objects import raycluster
from adapter.objects.unstructured import (
    Raw,
    annotation,
    mapping_field,
    mapping_list,
    meta,
    printable,
    text_field,
    whole_field,
)

# kuberay:ray-operator/controllers/ray/utils/constant.go. KubeRay appends six characters to the name of a RayJob or a
# RayService for its RayCluster.
MAX_RAY_CLUSTER_NAME: Final = 53
MAX_OWNER_NAME: Final = MAX_RAY_CLUSTER_NAME - 6
MAX_FAULTS: Final = 16
_GENERATED_SUFFIX: Final = "xxxxx"  # as long as what an API server appends to generateName
_DNS_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_DOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})")
_MIN_TOKEN_VERSION: Final = (2, 52)

_REDIS_ADDRESS: Final = "RAY_REDIS_ADDRESS"
_REDIS_PASSWORD: Final = "REDIS_PASSWORD"
_REDIS_USERNAME: Final = "REDIS_USERNAME"
_FT_ANNOTATION: Final = f"{names.RAY_DOMAIN}/ft-enabled"
_STORAGE_ANNOTATION: Final = f"{names.RAY_DOMAIN}/external-storage-namespace"
_RESOURCE_PARAMS: Final = ("num-cpus", "num-gpus", "memory", "resources")

HEAD_ENV: Final = frozenset({_REDIS_ADDRESS, _REDIS_PASSWORD, _REDIS_USERNAME, names.RAY_AUTOSCALER_V2_ENV})
"""The variables of the head's Ray container that the rules read."""
START_PARAMS: Final = frozenset({*_RESOURCE_PARAMS, "labels", "redis-password", "redis-username"})
"""The rayStartParams that the rules read."""

DELETION_RULES_FAULT: Final = (
    "spec.deletionStrategy.deletionRules cannot be used in a queue: Kueue requires spec.shutdownAfterJobFinishes: "
    "true, and KubeRay rejects a RayJob that has both; remove deletionRules, and set shutdownAfterJobFinishes: true"
)


@dataclass(frozen=True, slots=True)
class KubeRayObject:
    """A RayJob or RayCluster as KubeRay validates it."""

    kind: str
    raw: Raw
    path: str  # of the RayCluster's spec
    cluster: Raw  # the RayCluster's spec

    @property
    def spec(self) -> Raw:
        return mapping_field(self.raw, "spec")

    @property
    def head(self) -> Raw:
        return mapping_field(self.cluster, "headGroupSpec")

    @property
    def groups(self) -> list[tuple[str, Raw]]:
        """The path and spec of each worker group."""
        groups = mapping_list(self.cluster, "workerGroupSpecs")
        return [(f"{self.path}.workerGroupSpecs[{index}]", group) for index, group in enumerate(groups)]

    @property
    def all_groups(self) -> list[tuple[str, Raw]]:
        """The head's group, and those of the workers."""
        return [(f"{self.path}.headGroupSpec", self.head), *self.groups]

    @property
    def head_env(self) -> dict[str, str]:
        """The variables of the head's Ray container, which is the first."""
        containers = mapping_list(mapping_field(mapping_field(self.head, "template"), "spec"), "containers")
        env = mapping_list(containers[0], "env") if containers else []
        return {text_field(variable, "name"): text_field(variable, "value") for variable in env}

    @property
    def head_params(self) -> Raw:
        return mapping_field(self.head, "rayStartParams")

    @property
    def has_fault_tolerance(self) -> bool:
        return isinstance(self.cluster.get("gcsFaultToleranceOptions"), dict)

    @property
    def autoscaling(self) -> bool:
        return bool(self.cluster.get("enableInTreeAutoscaling"))

    @property
    def autoscaler_version(self) -> str:
        return text_field(mapping_field(self.cluster, "autoscalerOptions"), "version")


def kuberay_faults(kind: str, raw: Raw, *, of_service: bool = False) -> tuple[str, ...]:
    """A fragment for each rule that a RayJob or RayCluster breaks; never raises."""
    cluster, path = raycluster.spec_and_path(kind, raw, of_service=of_service)
    validated = KubeRayObject(kind, raw, path, cluster)
    return tuple(islice((fault for rule in KUBERAY_RULES for fault in rule.faults(validated)), MAX_FAULTS))


def service_faults(service: Raw) -> tuple[str, ...]:
    """A fragment for each rule that a RayService breaks beside those of its RayCluster; never raises."""
    config = mapping_field(mapping_field(service, "spec"), "rayClusterConfig")
    head_service = mapping_field(mapping_field(config, "headGroupSpec"), "headService")
    named = text_field(mapping_field(head_service, "metadata"), "name")
    fault = "spec.rayClusterConfig.headGroupSpec.headService.metadata.name is set: KubeRay rejects it; remove it"
    return (*_name_faults(service, MAX_OWNER_NAME), *((fault,) if named else ()))


# --- the rules, for the object's name --------------------------------------------------------------------------------


def _object_name(validated: KubeRayObject) -> Iterator[str]:
    yield from _name_faults(validated.raw, MAX_OWNER_NAME if validated.kind == "RayJob" else MAX_RAY_CLUSTER_NAME)


def _name_faults(raw: Raw, longest: int) -> Iterator[str]:
    prefix = text_field(meta(raw), "generateName")
    name = text_field(meta(raw), "name") or (f"{prefix}{_GENERATED_SUFFIX}" if prefix else "")
    if len(name) > longest:
        yield (f"metadata.name has {len(name)} characters, and KubeRay rejects more than {longest}; use a shorter name")
    elif name and not _DNS_LABEL.fullmatch(name):
        yield (
            f"metadata.name is {printable(name)}: KubeRay rejects a name that does not begin with a letter, or has "
            "other characters than a-z, 0-9 and -; use another name"
        )


# --- the rules, for the RayCluster's spec ----------------------------------------------------------------------------


def _resources_twice(validated: KubeRayObject) -> Iterator[str]:
    for path, group in validated.all_groups:
        params = mapping_field(group, "rayStartParams")
        given = [name for name in _RESOURCE_PARAMS if params.get(name)]
        if given and group.get("resources"):
            yield (
                f"{path} has resources, and rayStartParams has {', '.join(given)}: KubeRay rejects a group that has "
                "both; remove these rayStartParams"
            )


def _labels_as_param(validated: KubeRayObject) -> Iterator[str]:
    for path, group in validated.all_groups:
        if "labels" in mapping_field(group, "rayStartParams"):
            yield f"{path}.rayStartParams has labels: KubeRay rejects it; use {path}.labels"


def _label_syntax(validated: KubeRayObject) -> Iterator[str]:
    for path, group in validated.all_groups:
        for key, value in mapping_field(group, "labels").items():
            if not _is_label(key, value):
                yield (
                    f"{path}.labels has {printable(key)}: {printable(value)}, which is no label of Kubernetes: KubeRay "
                    "rejects it; use a key and a value of at most 63 letters, digits, dashes, dots and underscores"
                )


def _is_label(key: str, value: object) -> bool:
    domain, slash, name = key.rpartition("/")
    is_key = bool(_LABEL_NAME.fullmatch(name)) and (not slash or bool(_LABEL_DOMAIN.fullmatch(domain)))
    return is_key and (value == "" or bool(_LABEL_NAME.fullmatch(str(value))))


def _redis_without_fault_tolerance(validated: KubeRayObject) -> Iterator[str]:
    by_annotation = annotation(validated.raw, _FT_ANNOTATION).lower() == "true"
    if _REDIS_ADDRESS in validated.head_env and not validated.has_fault_tolerance and not by_annotation:
        yield (
            f"{validated.path}.headGroupSpec.template has the variable {_REDIS_ADDRESS}, and "
            f"{validated.path}.gcsFaultToleranceOptions is missing: KubeRay rejects it; set "
            "gcsFaultToleranceOptions.redisAddress in place of the variable"
        )


def _fault_tolerance_twice(validated: KubeRayObject) -> Iterator[str]:
    if not validated.has_fault_tolerance:
        return
    options = f"{validated.path}.gcsFaultToleranceOptions"
    for key, remedy in ((_FT_ANNOTATION, "remove the annotation"), (_STORAGE_ANNOTATION, "externalStorageNamespace")):
        if annotation(validated.raw, key):
            advice = remedy if key == _FT_ANNOTATION else f"use {options}.{remedy}"
            yield f"metadata.annotations has {key}: KubeRay rejects it beside {options}; {advice}"
    if validated.head_params.get("redis-password"):
        path = f"{validated.path}.headGroupSpec.rayStartParams has redis-password"
        yield f"{path}: KubeRay rejects it beside {options}; use {options}.redisPassword"
    for name, field in ((_REDIS_PASSWORD, "redisPassword"), (_REDIS_ADDRESS, "redisAddress")):
        if name in validated.head_env:
            path = f"{validated.path}.headGroupSpec.template has the variable {name}"
            yield f"{path}: KubeRay rejects it beside {options}; use {options}.{field}"


def _redis_username(validated: KubeRayObject) -> Iterator[str]:
    if validated.head_params.get("redis-username") or _REDIS_USERNAME in validated.head_env:
        yield (
            f"{validated.path}.headGroupSpec has redis-username in rayStartParams or the variable {_REDIS_USERNAME}: "
            f"KubeRay rejects it; use {validated.path}.gcsFaultToleranceOptions.redisUsername"
        )


def _autoscaler_variable(validated: KubeRayObject) -> Iterator[str]:
    path = f"{validated.path}.headGroupSpec.template has the variable {names.RAY_AUTOSCALER_V2_ENV}"
    if not validated.autoscaling and validated.head_env.get(names.RAY_AUTOSCALER_V2_ENV) in ("1", "true"):
        yield f"{path}: KubeRay rejects it without {validated.path}.enableInTreeAutoscaling: true; remove it"
    elif validated.autoscaling and validated.autoscaler_version and names.RAY_AUTOSCALER_V2_ENV in validated.head_env:
        yield f"{path}: KubeRay rejects it beside {validated.path}.autoscalerOptions.version; remove it"


def _restarts_beside_autoscaler(validated: KubeRayObject) -> Iterator[str]:
    if not validated.autoscaling or validated.autoscaler_version != "v2":
        return
    for path, group in validated.all_groups:
        if (policy := _restart_policy(group)) not in ("", "Never"):
            yield (
                f"{path}.template.spec.restartPolicy is {printable(policy)}: KubeRay rejects it beside "
                f"{validated.path}.autoscalerOptions.version v2; use Never"
            )


def _suspended_beside_autoscaler(validated: KubeRayObject) -> Iterator[str]:
    for path, group in validated.groups if validated.autoscaling else ():
        if group.get("suspend") is True:
            yield f"{path}.suspend is true: KubeRay rejects it beside enableInTreeAutoscaling; remove it"


def _token_version(validated: KubeRayObject) -> Iterator[str]:
    if text_field(mapping_field(validated.cluster, "authOptions"), "mode") != "token":
        return
    version = text_field(validated.cluster, "rayVersion")
    numbers = _VERSION.match(version)
    if not numbers or (int(numbers[1]), int(numbers[2])) < _MIN_TOKEN_VERSION:
        yield (
            f"{validated.path}.authOptions.mode is token, and {validated.path}.rayVersion is "
            f"{printable(version) or 'missing'}: KubeRay rejects it; set rayVersion to the image's, 2.52.0 or later"
        )


# --- the rules, for the RayJob's spec --------------------------------------------------------------------------------


def _sidecar(validated: KubeRayObject) -> Iterator[str]:
    if validated.kind != "RayJob" or text_field(validated.spec, "submissionMode") != "SidecarMode":
        return
    for field in ("submitterPodTemplate", "submitterConfig"):
        if validated.spec.get(field) is not None:
            yield f"spec.{field} is set: KubeRay rejects it beside submissionMode SidecarMode; remove it"
    if (policy := _restart_policy(validated.head)) not in ("", "Never"):
        yield (
            f"{validated.path}.headGroupSpec.template.spec.restartPolicy is {printable(policy)}: KubeRay rejects it "
            "beside submissionMode SidecarMode; use Never"
        )


def _interactive_retries(validated: KubeRayObject) -> Iterator[str]:
    limit = whole_field(validated.spec, "backoffLimit")
    if validated.kind == "RayJob" and text_field(validated.spec, "submissionMode") == "InteractiveMode" and limit:
        yield f"spec.backoffLimit is {limit}: KubeRay rejects it beside submissionMode InteractiveMode; remove it"


def _job_numbers(validated: KubeRayObject) -> Iterator[str]:
    least = {"ttlSecondsAfterFinished": 0, "backoffLimit": 0, "activeDeadlineSeconds": 1}
    for field, minimum in least.items() if validated.kind == "RayJob" else ():
        value = whole_field(validated.spec, field)
        if value is not None and value < minimum:
            yield f"spec.{field} is {value}: KubeRay rejects less than {minimum}; use {minimum} or more"


def _deletion_strategy(validated: KubeRayObject) -> Iterator[str]:
    strategy = mapping_field(validated.spec, "deletionStrategy") if validated.kind == "RayJob" else {}
    if strategy.get("deletionRules"):
        yield DELETION_RULES_FAULT
    for field in ("onSuccess", "onFailure"):
        policy = text_field(mapping_field(strategy, field), "policy")
        path = f"spec.deletionStrategy.{field}.policy is {policy}"
        if policy == "DeleteNone" and validated.spec.get("shutdownAfterJobFinishes") is True:
            yield f"{path}: KubeRay rejects it beside shutdownAfterJobFinishes: true; use DeleteCluster"
        if policy == "DeleteWorkers" and validated.autoscaling:
            yield f"{path}: KubeRay rejects it beside enableInTreeAutoscaling; use DeleteCluster"


def _restart_policy(group: Raw) -> str:
    return text_field(mapping_field(mapping_field(group, "template"), "spec"), "restartPolicy")


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KubeRayRule:
    """A rule of KubeRay, with the fragments on what breaks it."""

    title: str
    faults: Callable[[KubeRayObject], Iterator[str]]


KUBERAY_RULES: Final = (
    KubeRayRule("name", _object_name),
    KubeRayRule("resources twice", _resources_twice),
    KubeRayRule("labels as a parameter", _labels_as_param),
    KubeRayRule("label syntax", _label_syntax),
    KubeRayRule("Redis without fault tolerance", _redis_without_fault_tolerance),
    KubeRayRule("fault tolerance twice", _fault_tolerance_twice),
    KubeRayRule("Redis user", _redis_username),
    KubeRayRule("autoscaler variable", _autoscaler_variable),
    KubeRayRule("restarts beside the autoscaler", _restarts_beside_autoscaler),
    KubeRayRule("suspended group beside the autoscaler", _suspended_beside_autoscaler),
    KubeRayRule("Ray version of token mode", _token_version),
    KubeRayRule("SidecarMode", _sidecar),
    KubeRayRule("retries in InteractiveMode", _interactive_retries),
    KubeRayRule("numbers of a RayJob", _job_numbers),
    KubeRayRule("deletion strategy", _deletion_strategy),
)
