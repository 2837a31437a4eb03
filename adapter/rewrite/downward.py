"""Which values does a worker pod read of itself, and what were they in the manager?

Name, namespace, labels, annotations and uid must stay the manager's: Ray's autoscaler knows a node by the manager pod's
name (RAY_CLOUD_INSTANCE_ID, kuberay.md section 4.2), and the labels that KubeRay reads back are gone from the copy.
What is true only where the pod runs (podIP, hostIP, nodeName, limits) stays a reference.
"""

import re

from adapter.objects.raw import Raw, meta

_BY_KEY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def literal(entry: Raw, pod: Raw) -> Raw:
    """Turn an env entry that refers to the pod's metadata into the value that the manager's kubelet would give."""
    path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") or ""
    value = _value(path, meta(pod))
    if value is None:
        return entry
    # A kubelet expands $(NAME) in literals but not in referenced values; a doubled dollar is a plain one again.
    kept = {key: item for key, item in entry.items() if key != "valueFrom"}
    return {**kept, "value": value.replace("$", "$$")}


def _value(path: str, metadata: Raw) -> str | None:
    if path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return str(metadata.get(path.removeprefix("metadata.")) or "")
    if found := _BY_KEY.fullmatch(path):
        kind, key = found.groups()
        return str((metadata.get(kind) or {}).get(key) or "")  # the kubelet, too, gives "" for a key that is not there
    return None
