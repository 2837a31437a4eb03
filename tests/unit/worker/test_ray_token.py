"""The token for a Ray head, and the messages when there is none. No message quotes the token."""

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
        pytest.param(head(OF_KUBERAY), KUBERAYS, id="KubeRay's Secret from authOptions"),
        pytest.param(head(PLAIN), TokenSource(value="swordfish"), id="a value in the template"),
        pytest.param(head(PLAIN, OF_KUBERAY), KUBERAYS, id="the last of two variables counts"),
        pytest.param(head(), None, id="no variable"),
        pytest.param(head({"name": "RAY_AUTH_TOKEN"}), None, id="a variable without a value"),
        pytest.param(
            head({"name": "RAY_AUTH_TOKEN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}),
            None,
            id="a value from a field",
        ),
        pytest.param({"spec": {"containers": []}}, None, id="no container"),
        pytest.param({}, None, id="no pod spec"),
    ],
)
def test_the_token_source_of_the_ray_container(pod: Raw, want: TokenSource | None) -> None:
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


def test_the_header_is_the_one_that_kuberay_sends() -> None:
    assert ray_token.auth_headers(" swordfish\n") == {"x-ray-authorization": "Bearer swordfish"}


@pytest.mark.parametrize("shown", ["", " \n", "a\r\nHost: elsewhere", "ключ", "a\x00b", "x" * 4097])
def test_an_invalid_token_is_neither_sent_nor_quoted(shown: str) -> None:
    with pytest.raises(ValueError, match=r"^no token$"):
        ray_token.auth_headers(shown)


@pytest.mark.parametrize(
    ("cause", "want"),
    [
        (ray_token.forbidden_message(KUBERAYS, "demo"),
         "the controller may not read Secret train-abc in namespace demo, which holds its token; bind "
         "ClusterRole rayspan-copies to ServiceAccount rayspan-controller of namespace rayspan-system there"),
        (ray_token.missing_secret_message(KUBERAYS, "demo"),
         "Secret train-abc with its token does not exist in namespace demo; create it again as it was"),
        (ray_token.invalid_token_message(KUBERAYS),
         "key auth_token of Secret train-abc holds no valid token; set it to one line of printable ASCII"),
        (ray_token.invalid_token_message(TokenSource(value="a\nb")),
         "env RAY_AUTH_TOKEN of its container is not a valid token; set it to one line of printable ASCII"),
        (ray_token.unauthorized_message(None, 401),
         "it answers 401, and its container has no token in env RAY_AUTH_TOKEN; set spec.authOptions.mode of the "
         "RayCluster to token, so that KubeRay sets it"),
        (ray_token.unauthorized_message(KUBERAYS, 403),
         "it answers 403 to the token in key auth_token of Secret train-abc; if that changed since the head was "
         "started, restore the old one, or start the job again"),
        (ray_token.unauthorized_message(TokenSource(value="swordfish"), 403),
         "it answers 403 to the token in env RAY_AUTH_TOKEN of its container; if that changed since the head was "
         "started, restore the old one, or start the job again"),
    ],
)  # fmt: skip
def test_the_message_for_the_user(cause: str, want: str) -> None:
    assert ray_token.head_not_asked_message(head(), cause) == (
        f"Ray's head train-abc-head does not report which workers it is still connected to: {want}. Until it does, "
        "workers in an unreachable cluster count as lost only after the policy's workerLostTimeout."
    )


def test_a_token_is_in_no_repr() -> None:
    assert "swordfish" not in repr(ray_token.token_source(head(PLAIN)))
