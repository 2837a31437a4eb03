"""Sets the termination message policy of containers, so that the end of a failed container's log reaches the manager.

A kubelet writes a container's termination message file into its status. With `FallbackToLogsOnError` it writes the end
of the log where the file is empty and the exit code is not 0 (docs/upstream.md, "The last words of a container"). The
mirror copies that status. The manager's API server writes the default, `File`, into each pod, so a choice of the user
cannot be told from the default. Both are replaced: the file still comes first, and a container that succeeds shows no
log. A container with its own file path stays as it is: its user reads that file, and an empty file may have a meaning.
Such a path also keeps a log out of the status. The use of the lines is not decided here.
"""

from adapter.objects.unstructured import Raw

WITH_LOG = "FallbackToLogsOnError"
_DEFAULT_POLICIES = (None, "", "File")
_DEFAULT_PATHS = (None, "", "/dev/termination-log")  # the API server's default


def with_log(container: Raw) -> Raw:
    """Make a container that fails without a message show the end of its log.

    A container with another policy or path than the default is returned as the same object.
    """
    policy, path = (container.get(f"terminationMessage{part}") for part in ("Policy", "Path"))
    if policy not in _DEFAULT_POLICIES or path not in _DEFAULT_PATHS:
        return container
    return {**container, "terminationMessagePolicy": WITH_LOG}
