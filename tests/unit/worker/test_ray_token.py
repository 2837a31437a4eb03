"""Which token a head is shown, and what its job's user reads where it cannot be shown: no sentence quotes it."""

import base64
from collections.abc import Mapping

import pytest

from adapter.objects.references import SECRET, Reference
from adapter.objects.unstructured import Raw
from adapter.worker import ray_token
from adapter.worker.ray_token import TokenSource

OF_KUBERAY = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "train-abc", "key": "auth_token"}}}
KUBERAYS = TokenSource(Reference(SECRET, "train-abc"), "auth_token")
PLAIN = {"name": "RAY_AUTH_TOKEN", "value": "swordfish"}


def head(*env: Raw) -> Raw:
    other = {"name": "sidecar", "env": [{"name": "RAY_AUTH_TOKEN", "value": "of another"}]}
    ray = {"name": "ray-head", "env": [{"name": "RAY_AUTH_MODE", "value": "token"}, *env]}
    return {"metadata": {"name": "train-abc-head"}, "spec": {"containers": [ray, other]}}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(head(OF_KUBERAY), KUBERAYS, id="as KubeRay has it from authOptions"),
        pytest.param(head(PLAIN), TokenSource(value="swordfish"), id="as its user wrote it"),
        pytest.param(head(PLAIN, OF_KUBERAY), KUBERAYS, id="the last one counts"),
        pytest.param(head(), None, id="none"),
        pytest.param(head({"name": "RAY_AUTH_TOKEN"}), None, id="an empty one"),
        pytest.param(
            head({"name": "RAY_AUTH_TOKEN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}),
            None,
            id="not a Secret",
        ),
        pytest.param({"spec": {"containers": []}}, None, id="no container"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_where_a_heads_own_container_has_its_token_from(pod: Raw, want: TokenSource | None) -> None:
    assert ray_token.token_source(pod) == want


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param({"auth_token": base64.b64encode(b"swordfish\n").decode()}, "swordfish\n", id="a token"),
        pytest.param({"other": "c3dvcmRmaXNo"}, "", id="another key"),
        pytest.param({"auth_token": "!"}, "", id="no base64"),
        pytest.param({"auth_token": base64.b64encode(b"\xff\xfe").decode()}, "", id="no text"),
        pytest.param(None, "", id="an empty Secret"),
    ],
)
def test_the_token_in_a_secret(data: Mapping[str, str] | None, want: str) -> None:
    assert ray_token.decode_token({"data": data}, "auth_token") == want


def test_it_is_sent_as_kuberay_sends_it() -> None:
    assert ray_token.auth_headers(" swordfish\n") == {"x-ray-authorization": "Bearer swordfish"}


@pytest.mark.parametrize("shown", ["", " \n", "a\r\nHost: elsewhere", "ключ", "a\x00b", "x" * 4097])
def test_what_is_no_token_is_not_sent_and_not_quoted(shown: str) -> None:
    with pytest.raises(ValueError, match=r"^no token$"):
        ray_token.auth_headers(shown)


@pytest.mark.parametrize(
    ("why", "want"),
    [
        (ray_token.forbidden_message(KUBERAYS, "demo"), "the controller may not read Secret train-abc in namespace demo, which holds its token; bind "
         "ClusterRole rayspan-copies to ServiceAccount rayspan-controller of namespace rayspan-system there"),
        (ray_token.missing_secret_message(KUBERAYS, "demo"), "Secret train-abc with its token does not exist in namespace demo; create it again as it was"),
        (ray_token.invalid_token_message(KUBERAYS), "key auth_token of Secret train-abc holds no token; put one line of printable ASCII there"),
        (ray_token.invalid_token_message(TokenSource(value="a\nb")), "env RAY_AUTH_TOKEN of its container is no token; put one line of printable ASCII there"),
        (ray_token.unauthorized_message(None, 401), "it answers 401, and its container has no token in env RAY_AUTH_TOKEN; set spec.authOptions.mode of the "
         "RayCluster to token, and KubeRay puts it there"),
        (ray_token.unauthorized_message(KUBERAYS, 403), "it answers 403 to the token in key auth_token of Secret train-abc; if that changed since the head was "
         "started, put the old one back, or start the job again"),
        (ray_token.unauthorized_message(TokenSource(value="swordfish"), 403), "it answers 403 to the token in env RAY_AUTH_TOKEN of its container; if that changed "
         "since the head was started, put the old one back, or start the job again"),
    ],
)  # fmt: skip
def test_what_the_user_reads(why: str, want: str) -> None:
    assert ray_token.head_not_asked_message(head(), why) == (
        f"Ray's head train-abc-head cannot be asked which workers it still hears from: {want}. Until then, workers in a cluster that "
        "cannot be seen count as lost only when the policy's workerLostTimeout is over."
    )


def test_a_token_is_in_no_repr() -> None:
    assert "swordfish" not in repr(ray_token.token_source(head(PLAIN)))
