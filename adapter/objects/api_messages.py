"""Recognises API server messages for which there is no code, each phrase in one function.

A phrase that a later version words differently is not recognised; each function says what follows then.
"""

import re

_USER = re.compile(r'User "([^"]+)"')
_CONTAINER_BOUND = re.compile(r"m(?:in|ax)imum (\S+) usage per Container is [^ ,]+, but (request|limit) is ([^\s,\]]+)")


def lacks_right(message: str, verb: str) -> bool:
    """Whether RBAC forbids the request with this verb; a webhook may answer with the same status.

    Unrecognised, a cluster whose account may not create pods is passed over instead of used without a dry run, and
    events name no component to apply. (k8s:apiserver/pkg/endpoints/handlers/responsewriters/errors.go,
    forbiddenMessage: `User "x" cannot create resource "pods" ...`.)
    """
    return f"cannot {verb} resource" in message


def forbidden_user(message: str) -> str:
    """The user in a `lacks_right` message; empty where it names none."""
    user = _USER.search(message)
    return user[1] if user else ""


def names_object(message: str, name: str) -> bool:
    """Whether a 404 is about the object of that name, and not about its kind. Unrecognised, the kind counts as missing.

    (k8s:apimachinery/pkg/api/errors/errors.go, NewNotFound: `pods "x" not found`.)
    """
    return f'"{name}"' in message


def is_uid_conflict(message: str) -> bool:
    """Whether a 422 says that the object has another uid than the request. Unrecognised, the request is repeated.

    (k8s:apimachinery/pkg/api/validation/objectmeta.go, ValidateObjectMetaUpdate: `metadata.uid: field is immutable`.)
    """
    return "metadata.uid" in message


def wrote_nothing(message: str) -> bool:
    """Whether a 500 comes from a webhook, which is called before anything is written.

    Unrecognised, the pod keeps its slot until its creation was repeated.

    (k8s:apiserver/pkg/util/webhook/error.go.)
    """
    return "failed calling webhook" in message


def takes_no_dry_run(message: str) -> bool:
    """Whether a webhook supports no dry runs. Unrecognised, the cluster is passed over.

    (k8s:apiserver/pkg/admission/plugin/webhook/errors/statuserror.go.)
    """
    return "does not support dry run" in message


def policy_message(message: str) -> str:
    """The own message of a ValidatingAdmissionPolicy that denies a request; without one, the whole message.

    (k8s:apiserver/pkg/admission/plugin/policy/validating/dispatcher.go: `... denied request: MESSAGE`.)
    """
    return message.rpartition("denied request: ")[2]


def container_bounds(message: str) -> list[tuple[str, str, str]]:
    """What a LimitRange denies of containers, which it does not name: resource, `request` or `limit`, and amount.

    Unrecognised, the denial names no container.
    (k8s:plugin/pkg/admission/limitranger/admission.go: `minimum cpu usage per Container is 250m, but request is 200m`.)
    """
    return _CONTAINER_BOUND.findall(message)
