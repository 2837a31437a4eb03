"""Which paths are answered, and as what are they read?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.access import access_request
from adapter.access.access_request import AccessRequest, parse_path

KEY = "k" * 43
BASE = f"/default/kubectl-x7k2p/{KEY}"
PODS = f"{BASE}/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("path", "what", "pod"),
    [
        (f"{BASE}/api", access_request.VERSIONS, ""),
        (f"{BASE}/apis", access_request.GROUPS, ""),
        (f"{BASE}/api/v1", access_request.RESOURCES, ""),
        (f"{PODS}/worker-a", access_request.POD, "worker-a"),
        (f"{PODS}/worker-a/log", "log", "worker-a"),
        (f"{PODS}/worker-a/exec", "exec", "worker-a"),
        (f"{PODS}/worker-a/portforward", "portforward", "worker-a"),
    ],
)
def test_what_kubectl_asks_is_answered(path: str, what: str, pod: str) -> None:
    assert parse_path(path) == AccessRequest("default", "kubectl-x7k2p", KEY, what, pod)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="nothing"),
        pytest.param("/healthz", id="something else"),
        pytest.param(BASE, id="no request"),
        pytest.param(f"{PODS}", id="all pods"),
        pytest.param(f"{PODS}/worker-a/", id="a slash at the end"),
        pytest.param(f"{PODS}/worker-a/attach", id="a subresource that has no grants"),
        pytest.param(f"{PODS}/worker-a/proxy/x", id="a proxy"),
        pytest.param(f"{PODS}/worker-a/log/x", id="below a log"),
        pytest.param(f"{PODS}/../../secrets/x", id="dots"),
        pytest.param(f"{PODS}/%2e%2e/log", id="dots in disguise"),
        pytest.param(f"{PODS}/worker-a%2flog", id="a slash in disguise"),
        pytest.param(f"{BASE}/api/v1/namespaces/other/pods/worker-a", id="another namespace than the grant's"),
        pytest.param(f"{BASE}/api/v1/namespaces/default/secrets/worker-a", id="no pod"),
        pytest.param(f"/default/kubectl-x7k2p/{KEY[1:]}/api", id="a key that is too short"),
        pytest.param(f"/default/kubectl-x7k2p/{KEY}k/api", id="a key that is too long"),
        pytest.param(f"/Default/kubectl-x7k2p/{KEY}/api", id="no name"),
        pytest.param(f"//kubectl-x7k2p/{KEY}/api", id="no namespace"),
    ],
)
def test_nothing_else_is(path: str) -> None:
    assert parse_path(path) is None


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="/"), max_size=20))
def test_whatever_is_asked_of_a_pod_stays_with_that_pod(word: str) -> None:
    found = parse_path(f"{PODS}/{word}/log")
    assert found is None or (found.pod == word and ".." not in word.split("/") and "%" not in word)
