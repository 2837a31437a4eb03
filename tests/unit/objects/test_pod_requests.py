"""What one pod requests of quota: quantities as Kubernetes parses and prints them, and requests as it sums them."""

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects import pod_requests

READ = [
    pytest.param("500m", "cpu", 500, "millicores are Kueue's unit", id="half a core is 500"),
    pytest.param("2", "cpu", 2000, "a bare number is cores", id="two cores are 2000"),
    pytest.param(2, "cpu", 2000, "YAML that nobody quoted", id="an unquoted integer reads like its text"),
    pytest.param(0.5, "cpu", 500, "YAML that nobody quoted", id="an unquoted fraction reads like its text"),
    pytest.param("1n", "cpu", 1, "MilliValue rounds up, never to nothing", id="the smallest cpu is one millicore"),
    pytest.param("1500u", "cpu", 2, "MilliValue rounds up", id="micro cores round up"),
    pytest.param("-1500u", "cpu", -2, "away from zero", id="below zero it rounds away from zero too"),
    pytest.param("100m", "memory", 1, "Value rounds up", id="a tenth of a byte is a byte"),
    pytest.param("1Ki", "memory", 1024, "binary", id="kibibytes"),
    pytest.param("1.5Gi", "memory", 3 * 2**29, "binary with a fraction", id="one and a half gibibytes"),
    pytest.param("1k", "memory", 1000, "small k only", id="kilobytes are decimal"),
    pytest.param("2M", "nvidia.com/gpu", 2_000_000, "decimal", id="mega"),
    pytest.param("1E", "memory", 10**18, "E alone is exa", id="exa is not an exponent"),
    pytest.param("1E3", "memory", 1000, "E with digits is an exponent", id="E3 is an exponent"),
    pytest.param("12e-1", "memory", 2, "Value rounds up", id="a negative exponent"),
    pytest.param("+.5", "cpu", 500, "ParseQuantity allows both", id="a sign and no leading digit"),
    pytest.param("1.", "cpu", 1000, "ParseQuantity allows it", id="no digit after the point"),
    pytest.param(
        "1E", "cpu", pod_requests.UNLIMITED, "AmountFromQuantity: no 64 bits hold it", id="too much cpu is unlimited"
    ),
    pytest.param("1e402", "memory", pod_requests.UNLIMITED, "ParseQuantity takes it", id="an exponent beyond all"),
    pytest.param("1e999999999", "memory", pod_requests.UNLIMITED, "and this", id="an exponent that would cost seconds"),
    pytest.param("1e-" + "9" * 99, "memory", 1, "and rounds up", id="an exponent below all"),
    pytest.param("2e" + "0" * 99 + "3", "memory", 2000, "zeros say nothing", id="an exponent with zeros before it"),
    pytest.param(
        "9" * 80, "memory", pod_requests.UNLIMITED, "ParseQuantity takes it", id="a number too long to be read"
    ),
    pytest.param("-" + "9" * 80, "memory", -pod_requests.UNLIMITED, "ParseQuantity takes it", id="the same below zero"),
    pytest.param("16Ei", "memory", pod_requests.UNLIMITED, "it is 2^64", id="too much memory is unlimited"),
]


@pytest.mark.parametrize(("text", "resource", "amount", "why"), READ)
def test_a_quantity_reads_as_kueue_counts_it(text: object, resource: str, amount: int, why: str) -> None:
    assert pod_requests.parse_quantity(text, resource) == amount, why


NO_TEXTS = [
    "",
    "m",
    ".",
    "1K",
    "1mi",
    "1 ",
    " 1",
    "1.2.3",
    "--1",
    "1e",
    "1e1.5",
    "٣",
    "NaN",
    "inf",
]


@pytest.mark.parametrize("text", [*NO_TEXTS, None, True, [], {}], ids=repr)
def test_an_invalid_quantity_is_rejected_with_a_message(text: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity such as"):
        pod_requests.parse_quantity(text, "cpu")


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        pytest.param(250, "cpu", "250m", id="a quarter core"),
        pytest.param(2000, "cpu", "2", id="two cores"),
        pytest.param(2500, "cpu", "2500m", id="two and a half cores, as kubectl writes them"),
        pytest.param(0, "cpu", "0", id="nothing has no suffix"),
        pytest.param(3 * 2**29, "memory", "1536Mi", id="memory is binary"),
        pytest.param(1_500_000_000, "memory", "1500M", id="memory that is not binary stays decimal"),
        pytest.param(8, "nvidia.com/gpu", "8", id="devices"),
        pytest.param(pod_requests.UNLIMITED, "cpu", "unlimited", id="the largest amount has a word"),
    ],
)
def test_an_amount_is_formatted_for_people(amount: int, resource: str, text: str) -> None:
    assert pod_requests.format_quantity(amount, resource) == text


@given(
    st.integers(0, 2**62), st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"])
)
def test_a_formatted_amount_reads_back_the_same(amount: int, resource: str) -> None:
    assert pod_requests.parse_quantity(pod_requests.format_quantity(amount, resource), resource) == amount


@given(st.integers(0, 10**9), st.integers(0, 9), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi"]))
def test_reading_rounds_up_to_the_unit_and_no_further(digits: int, places: int, suffix: str) -> None:
    worth = {"n": 10**-9, "u": 10**-6, "m": 10**-3, "": 1, "k": 1000, "M": 10**6, "Ki": 2**10, "Mi": 2**20}
    exact = Fraction(digits, 10**places) * Fraction(worth[suffix]).limit_denominator(10**9)
    written = f"{digits:0{places + 1}d}"
    text = f"{written[: len(written) - places]}.{written[len(written) - places :]}{suffix}"
    assert pod_requests.parse_quantity(text, "memory") == ceil(exact)
    assert pod_requests.parse_quantity(text, "cpu") == ceil(exact * 1000)


def container(
    requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits}, **more}


def cpu(amount: str, **more: Any) -> dict[str, Any]:
    return container({"cpu": amount}, **more)


SIDECAR = {"restartPolicy": "Always"}
PODS = [
    pytest.param(
        {"containers": [cpu("1"), cpu("500m")]}, {"cpu": 1500}, "they run side by side", id="containers add up"
    ),
    pytest.param(
        {"containers": [cpu("500u"), cpu("500u")]}, {"cpu": 1}, "Go adds Quantities, then rounds", id="rounding is once"
    ),
    pytest.param(
        {"containers": [cpu("1")], "initContainers": [cpu("3"), cpu("2")]},
        {"cpu": 3000},
        "init steps run one after another, before the containers",
        id="the largest init step is the floor",
    ),
    pytest.param(
        {"containers": [cpu("2")], "initContainers": [cpu("1")]},
        {"cpu": 2000},
        "KubeRay's wait-gcs-ready must cost nothing",
        id="a small init container costs nothing",
    ),
    pytest.param(
        {"containers": [cpu("2")], "initContainers": [cpu("1", **SIDECAR)]},
        {"cpu": 3000},
        "it keeps running",
        id="a sidecar adds to the containers",
    ),
    pytest.param(
        {"containers": [cpu("1")], "initContainers": [cpu("1", **SIDECAR), cpu("4")]},
        {"cpu": 5000},
        "the sidecar already runs when the init container starts",
        id="an init container after a sidecar pays for both",
    ),
    pytest.param(
        {"containers": [cpu("1")], "initContainers": [cpu("4"), cpu("1", **SIDECAR)]},
        {"cpu": 4000},
        "the sidecar does not run yet",
        id="an init container before a sidecar does not",
    ),
    pytest.param(
        {"containers": [container(None, {"nvidia.com/gpu": "1"})]},
        {"nvidia.com/gpu": 1},
        "the API server and Kueue both fill it in",
        id="a limit without a request counts",
    ),
    pytest.param(
        {"containers": [container({"cpu": "1"}, {"cpu": "4", "memory": "1Gi"})]},
        {"cpu": 1000, "memory": 2**30},
        "only what is missing is filled in",
        id="a request is kept beside its limit",
    ),
    pytest.param(
        {"containers": [cpu("1")], "overhead": {"cpu": "250m", "memory": "64Mi"}},
        {"cpu": 1250, "memory": 2**26},
        "the sandbox runs too",
        id="overhead comes on top",
    ),
    pytest.param(
        {"containers": [cpu("1")], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "1"}},
        {"cpu": 4000},
        "PodRequests replaces the sum, then adds overhead",
        id="a pod-level request replaces the sum",
    ),
    pytest.param(
        {"containers": [container({"nvidia.com/gpu": "2"})], "resources": {"requests": {"nvidia.com/gpu": "1"}}},
        {"nvidia.com/gpu": 2},
        "IsSupportedPodLevelResource: cpu, memory, hugepages",
        id="devices are never counted at pod level",
    ),
    pytest.param(
        {"containers": [cpu("1")], "resources": {"limits": {"cpu": "3"}}},
        {"cpu": 3000},
        "UseLimitsAsMissingRequestsInPod: Kueue charges a bare template so",
        id="a pod-level limit counts as the pod-level request",
    ),
    pytest.param({}, {}, "Kueue counts it as a pod all the same", id="a spec that asks for nothing"),
    pytest.param(
        {"containers": [{"resources": None}, {}], "initContainers": None, "overhead": None},
        {},
        "what clients write for empty",
        id="nulls are empty",
    ),
]


@pytest.mark.parametrize(("spec", "asked", "why"), PODS)
def test_a_pods_requests_are_those_that_kubernetes_sums(spec: dict[str, Any], asked: dict[str, int], why: str) -> None:
    assert pod_requests.pod_requests(spec) == {**asked, "pods": 1}, why


def test_an_invalid_quantity_in_a_pod_is_reported() -> None:
    with pytest.raises(ValueError, match="'lots' is not a quantity"):
        pod_requests.pod_requests({"containers": [cpu("lots")]})


millis = st.integers(0, 5000).map(lambda amount: f"{amount}m")
specs = st.fixed_dictionaries(
    {
        "containers": st.lists(millis.map(cpu), max_size=3),
        "initContainers": st.lists(
            st.tuples(millis, st.booleans()).map(lambda one: cpu(one[0], **(SIDECAR if one[1] else {}))), max_size=4
        ),
    }
)


@given(specs)
def test_a_pod_never_needs_more_at_any_moment_than_it_requests(spec: dict[str, Any]) -> None:
    """Simulate the pod's start: every init step runs with the sidecars started before it, then all containers run."""
    amounts = [
        (pod_requests.parse_quantity(c["resources"]["requests"]["cpu"], "cpu"), c) for c in spec["initContainers"]
    ]
    moments, sidecars = [0], 0
    for amount, one in amounts:
        moments.append(sidecars + amount)
        sidecars += amount if one.get("restartPolicy") else 0
    containers = [pod_requests.parse_quantity(c["resources"]["requests"]["cpu"], "cpu") for c in spec["containers"]]
    moments.append(sidecars + sum(containers))
    assert pod_requests.pod_requests(spec).get("cpu", 0) == max(moments)
