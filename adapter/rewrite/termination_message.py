"""How do the last lines of a container that fails reach the manager, where its user has no access to the cluster that it ran in?

By its status: a kubelet puts there what the container left in its termination message file, and with `FallbackToLogsOnError`, where
that is empty and the exit code is not 0, the end of its log (docs/upstream.md, "The last words of a container"); the mirror carries it home.
The API server of the manager writes the default, `File`, into each pod, so a pod does not tell whether its user chose that or said nothing. Both are
taken for nothing said, since who chose it loses nothing: what stands in the file comes first, and a container that ends well shows no
log. Who names a file of his own reads it himself, and may read something into its being empty: that container stays as it is. Who shall
not see a log in a status names one, too. What is done with the lines is not decided here.
"""

from adapter.objects.unstructured import Raw

WITH_LOG = "FallbackToLogsOnError"
_DEFAULT_POLICIES = (None, "", "File")
_DEFAULT_PATHS = (None, "", "/dev/termination-log")  # what the API server writes where nothing stands


def with_log(container: Raw) -> Raw:
    """Let a container that fails without a message show the end of its log; one of which its user said otherwise stays the same object."""
    policy, path = (container.get(f"terminationMessage{part}") for part in ("Policy", "Path"))
    if policy not in _DEFAULT_POLICIES or path not in _DEFAULT_PATHS:
        return container
    return {**container, "terminationMessagePolicy": WITH_LOG}
