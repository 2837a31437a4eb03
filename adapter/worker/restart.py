"""May a container that ended start again: the API server's own answer, which decides what a status may say next.

Follows k8s:pkg/api/v1/pod/util.go, ContainerShouldRestart and AllContainersCouldRestart (1.36).
"""

from adapter.objects.raw import Raw


def may_restart(container: Raw | None, pod_spec: Raw, exit_code: int) -> bool:
    """Whether the API server lets this container's status leave `terminated`; never for a name the spec has not."""
    if any(_restarts_all(one) for kind in ("initContainers", "containers") for one in pod_spec.get(kind) or ()):
        return True
    if container is None:
        return False
    if container.get("restartPolicy"):
        return _rule_restarts(container, exit_code) or _policy_restarts(container["restartPolicy"], exit_code)
    return _policy_restarts(pod_spec.get("restartPolicy") or "Always", exit_code)


def _policy_restarts(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _restarts_all(container: Raw) -> bool:
    return any(rule.get("action") == "RestartAllContainers" for rule in container.get("restartPolicyRules") or ())


def _rule_restarts(container: Raw, exit_code: int) -> bool:
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        listed = exit_code in (codes.get("values") or ())
        if codes and listed == (codes.get("operator") == "In"):
            return bool(rule.get("action") == "Restart")  # the first rule that matches decides
    return False
