"""A small schema like those of KubeRay's CRDs, for tests: each way to describe a field once, and the fields that are
read.

The complete schema, a megabyte of YAML, is in a cluster with KubeRay: there the same draws are tested
(tests/integration).
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "format": "int32"}
YES: Schema = {"type": "boolean"}
AMOUNT: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
ANYTHING: Schema = {"x-kubernetes-preserve-unknown-fields": True}


def mapping(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def many(of: Schema, *keys: str) -> Schema:
    return {"type": "array", "items": of, **({"x-kubernetes-list-map-keys": [*keys]} if keys else {})}


def made(*required: str, **fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, **({"required": [*required]} if required else {})}


RESOURCES = made(requests=mapping(AMOUNT), limits=mapping(AMOUNT))
SELECTOR = made("name", name=TEXT, optional=YES)
EXPRESSION = made("key", "operator", key=TEXT, operator=TEXT, values=many(TEXT))
TERM = made(matchExpressions=many(EXPRESSION), matchFields=many(EXPRESSION))
NEAR = made(
    "topologyKey", topologyKey=TEXT, labelSelector=made(matchLabels=mapping(TEXT), matchExpressions=many(EXPRESSION))
)
VALUE_FROM = made(
    secretKeyRef=made("key", key=TEXT, name=TEXT, optional=YES),
    configMapKeyRef=made("key", key=TEXT, name=TEXT, optional=YES),
    fieldRef=made("fieldPath", fieldPath=TEXT),
)
CONTAINER = made(
    "name",
    name=TEXT, image=TEXT, command=many(TEXT), args=many(TEXT), resources=RESOURCES,
    env=many(made("name", name=TEXT, value=TEXT, valueFrom=VALUE_FROM), "name"),
    envFrom=many(made(secretRef=SELECTOR, configMapRef=SELECTOR)),
    ports=many(made("containerPort", containerPort=NUMBER, protocol={**TEXT, "default": "TCP"}), "containerPort"),
    restartPolicy={**TEXT, "enum": ["Always", "Never"]},
    volumeMounts=many(made("name", "mountPath", name=TEXT, mountPath=TEXT), "mountPath"),
    lifecycle=made(preStop=made(exec=made(command=many(TEXT)))),
)  # fmt: skip
CLAIM = made(dataSource=made("name", name=TEXT, kind=TEXT), volumeName=TEXT)
TOKEN = made("path", path=TEXT, audience=TEXT)
VOLUME = made(
    "name",
    name=TEXT, hostPath=made("path", path=TEXT), persistentVolumeClaim=made("claimName", claimName=TEXT),
    secret=made(secretName=TEXT, optional=YES), configMap=SELECTOR,
    csi=made("driver", driver=TEXT, nodePublishSecretRef=SELECTOR),
    ephemeral=made(volumeClaimTemplate=made("spec", spec=CLAIM)),
    projected=made(sources=many(made(secret=SELECTOR, configMap=SELECTOR, serviceAccountToken=TOKEN))),
)  # fmt: skip
REQUIRED, PREFERRED = (f"{which}DuringSchedulingIgnoredDuringExecution" for which in ("required", "preferred"))
POD = made(
    "containers",
    containers=many(CONTAINER, "name"), initContainers=many(CONTAINER, "name"), volumes=many(VOLUME, "name"),
    nodeName=TEXT, nodeSelector=mapping(TEXT), hostNetwork=YES, serviceAccountName=TEXT, schedulerName=TEXT,
    tolerations=many(made(key=TEXT, operator=TEXT, effect=TEXT, value=TEXT, tolerationSeconds={"type": "integer"})),
    imagePullSecrets=many(made(name={**TEXT, "default": ""}), "name"), overhead=mapping(AMOUNT), resources=RESOURCES,
    resourceClaims=many(made("name", name=TEXT, resourceClaimName=TEXT, resourceClaimTemplateName=TEXT), "name"),
    terminationGracePeriodSeconds={"type": "integer"},
    affinity=made(
        nodeAffinity=made(**{REQUIRED: made("nodeSelectorTerms", nodeSelectorTerms=many(TERM))}),
        podAffinity=made(**{REQUIRED: many(NEAR),
                            PREFERRED: many(made("podAffinityTerm", podAffinityTerm=NEAR, weight=NUMBER))}),
    ),
)  # fmt: skip
TEMPLATE = made(metadata=made(labels=mapping(TEXT), annotations=mapping(TEXT), name=TEXT), spec=POD)
GROUP = made(
    "groupName", "rayStartParams", "template",
    groupName=TEXT, replicas={**NUMBER, "default": 0}, minReplicas=NUMBER, maxReplicas={**NUMBER, "minimum": 0},
    numOfHosts=NUMBER,
    suspend=YES, rayStartParams=mapping(TEXT), template=TEMPLATE, scaleStrategy=made(workersToDelete=many(TEXT)),
)  # fmt: skip
CLUSTER = made(
    "headGroupSpec",
    headGroupSpec=made("template", template=TEMPLATE, rayStartParams=mapping(TEXT)), workerGroupSpecs=many(GROUP),
    enableInTreeAutoscaling=YES, tlsOptions=made(enabled=YES),
    authOptions=made(mode={**TEXT, "enum": ["token", "disabled"]}, enableK8sTokenAuth=YES),
    rayVersion=TEXT, suspend=YES, autoscalerOptions=ANYTHING,
)  # fmt: skip
JOB = made(
    entrypoint=TEXT, runtimeEnvYAML=TEXT, shutdownAfterJobFinishes=YES, rayClusterSpec=CLUSTER,
    clusterSelector=mapping(TEXT),
    submissionMode={**TEXT, "enum": ["K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"]},
    backoffLimit={**NUMBER, "minimum": 0},
    ttlSecondsAfterFinished=NUMBER, suspend=YES, submitterPodTemplate=TEMPLATE,
)  # fmt: skip

SCHEMAS = {
    kind: made(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=spec)
    for kind, spec in (("RayCluster", CLUSTER), ("RayJob", JOB))
}
