"""Does a RayCluster that encrypts with its user's certificates span the clusters? By the head's address; by its name: test_token.py."""

import pytest

from adapter import names
from hack.testbed import tls
from hack.testbed.rayjob import NAMESPACE, Job


@pytest.mark.long  # a Secret that Ray needs for joining is copied in test_token.py, too
@pytest.mark.usefixtures("authority")
def test_workers_elsewhere_speak_tls_with_the_users_certificates(pair: Job) -> None:
    """The head takes nobody who has no certificate of that CA, and every worker is taken."""
    pair.submit(change=tls.encrypt)
    pair.wait_for_workers()
    for name, cluster in pair.fleet.workers.items():
        copies = [
            one for kind in ("secrets", "configmaps") for one in cluster.items(kind, NAMESPACE, names.MANAGER_LABEL)
        ]
        origins = {one["metadata"].get("annotations", {}).get(names.COPY_OF_ANNOTATION) for one in copies}
        assert origins == {f"Secret {tls.NAME}", f"ConfigMap {tls.NAME}", None}, name  # and the anchor
    assert "Verification: OK" in _asked_by(
        pair, "-cert", tls.FILES["RAY_TLS_SERVER_CERT"], "-key", tls.FILES["RAY_TLS_SERVER_KEY"]
    )
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    assert {node["cluster"] for node in pair.result()["nodes"]} == {"manager", "east", "west"}


def _asked_by(job: Job, *certificate: str) -> str:
    """What the head's GCS answers to a client in the head's own pod."""
    which = f"{names.RAY_GCS_CLUSTER_LABEL}={job.status()['rayClusterName']},{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"
    (head,) = job.manager.items("pods", NAMESPACE, which)
    ask = ("openssl", "s_client", "-brief", "-connect", "127.0.0.1:6379", "-CAfile", tls.CA, *certificate)
    shell = f"{' '.join(ask)} </dev/null 2>&1 || true"  # a gRPC server ends such a talk in a way that s_client calls an error
    return job.manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "sh", "-c", shell)
