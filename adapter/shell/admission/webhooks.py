"""Which handler answers which question, and how is kopf run so that it does nothing else?

kopf reads the discovery of the API server once, which everybody may, to know the kinds; it watches nothing (`scanning.disabled`), has no
peers (`standalone`), posts no events, and manages no configuration: two replicas would overwrite each other's.
So the kinds are those that there are at the start: where KubeRay is installed later, the Deployment is to be restarted.
"""

import logging
from typing import Any

import kopf

from adapter import names
from adapter.admission import gate
from adapter.shell import supervise
from adapter.shell.admission.admission_server import REVIEWED_OBJECT, WebhookServer
from adapter.shell.admission.object_warnings import ObjectWarnings

GATE_HANDLER, WARNINGS_HANDLER = names.GATE_PATH.strip("/"), names.WARNINGS_PATH.strip("/")
_WARNED_KINDS = (
    *((names.RAY_API_VERSION, plural) for plural in ("rayjobs", "rayclusters", "rayservices")),
    *((names.API_VERSION, plural) for plural in ("workerclusters", "dispatchpolicies")),
)


async def serve(server: WebhookServer, object_warnings: ObjectWarnings) -> None:
    """Answer until cancelled, or until kopf gives up because the API server cannot be asked for its kinds."""
    logging.getLogger("kopf").setLevel(logging.WARNING)  # it tells of each question that it was answered,
    logging.getLogger("kopf.objects").setLevel(
        logging.CRITICAL
    )  # and of each fault what the exception says: shell/supervise.py tells of these
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.admission.server = server
    # Who it would be among peers: else it asks for the name of its user, and in an image that has none.
    me: Any = names.ADMISSION_COMPONENT
    await kopf.operator(
        registry=_build_registry(object_warnings), settings=settings, standalone=True, clusterwide=True, identity=me
    )


def _build_registry(object_warnings: ObjectWarnings) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**given: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**given) or kopf.login_with_kubeconfig(**given)

    @kopf.on.mutate("", "v1", "pods", id=GATE_HANDLER, registry=registry)
    async def hold(patch: kopf.Patch, **_: Any) -> None:
        try:
            wanted = gate.required_gates(REVIEWED_OBJECT.get())
        except Exception as error:
            supervise.report_failure("the gate", error)
            raise
        if wanted is not None:
            patch.spec["schedulingGates"] = wanted

    async def warn(warnings: list[str], **_: Any) -> None:
        warnings += await object_warnings.warnings_for(REVIEWED_OBJECT.get())

    for api_version, plural in _WARNED_KINDS:
        group, _, version = api_version.partition("/")
        kopf.on.validate(group, version, plural, id=WARNINGS_HANDLER, registry=registry)(warn)
    return registry
