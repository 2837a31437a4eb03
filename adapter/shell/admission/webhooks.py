"""Registers the webhook handlers with kopf, and runs kopf for nothing else.

kopf watches nothing (`scanning.disabled`), has no peers (`standalone`), posts no events, and manages no configuration,
because two replicas would overwrite each other's configuration. It reads the API server's discovery once: after a later
installation of KubeRay, the Deployment must be restarted.
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
    # shell/supervise.py logs faults; kopf would log each review and the exceptions.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf.objects").setLevel(logging.CRITICAL)
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.admission.server = server
    # Without an identity kopf looks up its user's name, and the image has no users.
    identity: Any = names.ADMISSION_COMPONENT
    await kopf.operator(
        registry=_build_registry(object_warnings),
        settings=settings,
        standalone=True,
        clusterwide=True,
        identity=identity,
    )


def _build_registry(object_warnings: ObjectWarnings) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**options: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**options) or kopf.login_with_kubeconfig(**options)

    @kopf.on.mutate("", "v1", "pods", id=GATE_HANDLER, registry=registry)
    async def hold(patch: kopf.Patch, **_: Any) -> None:
        try:
            wanted = gate.required_gates(REVIEWED_OBJECT.get())
        except Exception as error:
            supervise.report_failure("gate", error)
            raise
        if wanted is not None:
            patch.spec["schedulingGates"] = wanted

    async def warn(warnings: list[str], **_: Any) -> None:
        warnings += await object_warnings.warnings_for(REVIEWED_OBJECT.get())

    for api_version, plural in _WARNED_KINDS:
        group, _, version = api_version.partition("/")
        kopf.on.validate(group, version, plural, id=WARNINGS_HANDLER, registry=registry)(warn)
    return registry
