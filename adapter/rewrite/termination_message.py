"""Sets the termination message policy of containers, so that the end of a failed container's log reaches the manager.

With `FallbackToLogsOnError` a kubelet writes the end of the log into the container's status. It does so if the exit
code is not 0 and the message file is empty (docs/upstream.md, "The last words of a container"). The status mirror
copies the text.
The manager's API server writes the default, `File`, into each pod, so a user's own `File` is replaced, too. A container
with its own file path stays as it is: for its user an empty file may have a meaning.
"""

from adapter.objects.unstructured import Raw

WITH_LOG = "FallbackToLogsOnError"
_DEFAULT_POLICIES = (None, "", "File")
_DEFAULT_PATHS = (None, "", "/dev/termination-log")


def with_log(container: Raw) -> Raw:
    """Set the policy; a container with another policy or path comes back as the same object."""
    policy, path = (container.get(f"terminationMessage{part}") for part in ("Policy", "Path"))
    if policy not in _DEFAULT_POLICIES or path not in _DEFAULT_PATHS:
        return container
    return {**container, "terminationMessagePolicy": WITH_LOG}
