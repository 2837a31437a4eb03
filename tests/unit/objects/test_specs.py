"""Specs that users write are parsed, or rejected with a message that names object, field and value."""

from datetime import timedelta

import pytest

from adapter.objects import specs
from adapter.objects.unstructured import Raw
from tests.unit import builders as make


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("30s", timedelta(seconds=30), id="seconds"),
        pytest.param("5m", timedelta(minutes=5), id="minutes"),
        pytest.param("1h30m", timedelta(hours=1, minutes=30), id="hours and minutes"),
        pytest.param("1h0m5s", timedelta(hours=1, seconds=5), id="hours, minutes and seconds, with a zero"),
        pytest.param("90m", timedelta(minutes=90), id="more minutes than an hour has"),
        pytest.param("0s", timedelta(0), id="a duration of zero"),
    ],
)
def test_a_duration_is_parsed(text: str, want: timedelta) -> None:
    assert specs.parse_duration(text) == want


@pytest.mark.parametrize("text", ["", "30", "s", "1.5h", "-5s", "5s5m", "1d", "5 m", "PT5M", None, 30, [], "forever"])
def test_the_message_for_an_invalid_duration_shows_the_format(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not a duration such as 30s, 5m or 1h30m$"):
        specs.parse_duration(text)


def test_a_duration_beyond_all_calendars_is_rejected() -> None:
    with pytest.raises(ValueError, match="is too long"):
        specs.parse_duration("99999999999h")


@pytest.mark.parametrize("text", ["10.1.0.0/16", "fd00:1::/48", "10.1.0.1/32"])
def test_a_range_of_addresses_is_parsed(text: str) -> None:
    spec = specs.parse_worker_cluster(make.make_worker_cluster(podCIDRs=[text]))
    assert [str(one) for one in spec.pod_cidrs] == [text]


@pytest.mark.parametrize("text", ["", "x", "10.1.0.1/16", "10.1.0.0/33", None, []])
def test_the_message_for_an_invalid_address_range_shows_the_format(text: object) -> None:
    with pytest.raises(
        specs.InvalidSpec, match=r"WorkerCluster east: spec\.podCIDRs\.0: .* is not a range of addresses such as 10"
    ):
        specs.parse_worker_cluster(make.make_worker_cluster(podCIDRs=[text]))


def test_the_smallest_worker_cluster_has_defaults() -> None:
    spec = specs.parse_worker_cluster(make.make_worker_cluster())
    assert spec.source.kube_config
    assert spec.source.kube_config.secret_ref.name == "east"
    assert (spec.zone, spec.region, spec.labels, spec.resources) == ("", "", {}, {})
    assert spec.head.address == "PodIP"
    assert (spec.cordoned, spec.draining, spec.max_unavailable, spec.max_priority) == (False, False, 1, 10**9)


@pytest.mark.parametrize(
    ("ref", "place"),
    [
        ({"name": "a"}, ("a", "rayspan-system", None)),
        ({"name": "a", "namespace": "fleet", "tokenSecretRef": {"name": "b"}}, ("a", "fleet", "b")),
    ],
)
def test_a_clusterprofile_is_in_our_namespace_by_default(ref: Raw, place: tuple[str, str, str | None]) -> None:
    found = specs.parse_worker_cluster(
        make.make_worker_cluster(source={"clusterProfileRef": ref})
    ).source.cluster_profile_ref
    assert found
    assert (found.name, found.namespace, found.token_secret_ref and found.token_secret_ref.name) == place


def test_a_complete_worker_cluster_is_parsed() -> None:
    raw = make.make_worker_cluster(
        zone="us-east-1a",
        region="us-east-1",
        labels={"a": "b"},
        resources={"link": 1},
        cordoned=True,
        draining=True,
        maxUnavailable=3,
        maxPriority=-1,
    )
    spec = specs.parse_worker_cluster(raw)
    assert (spec.zone, spec.region, spec.labels, spec.resources) == ("us-east-1a", "us-east-1", {"a": "b"}, {"link": 1})
    assert (spec.cordoned, spec.draining, spec.max_unavailable, spec.max_priority) == (True, True, 3, -1)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({"address": "Magic"}, r"spec\.head\.address: .*'PodIP', 'ServiceMirror', 'ClusterSet' or 'Static'"),
        ({"address": "Static"}, r"spec\.head: address Static needs a template, and no other address has one"),
        ({"address": "PodIP", "template": "{service}.x"}, r"and no other address has one"),
        ({"address": "Static", "template": "{service}.{zone}"}, r"template '\{service\}\.\{zone\}' is not a host name"),
        ({"address": "Static", "template": "http://{service}"}, r"is not a host name with an optional port"),
        ({"address": "Static", "template": "{service}:port"}, r"is not a host name with an optional port"),
        ({"address": "Static", "template": "{service}:65536"}, r"template '\{service\}:65536' has a port above 65535"),
        ({"address": "Static", "template": "{service}:0"}, r"is not a host name with an optional port"),
        ({"address": "Static", "template": "{service.__class__}"}, r"is not a host name with an optional port"),
        ({"address": "Static", "template": "ray.example.com"}, r"neither \{service\} nor \{cluster\}"),
    ],
)
def test_an_invalid_head_address_is_reported(head: Raw, said: str) -> None:
    with pytest.raises(specs.InvalidSpec, match=rf"^WorkerCluster east: .*{said}"):
        specs.parse_worker_cluster(make.make_worker_cluster(head=head))


@pytest.mark.parametrize(
    "head",
    [
        {"address": "ServiceMirror"},
        {"address": "ClusterSet"},
        {"address": "Static", "template": "{service}.{namespace}.{cluster}.ray.example.com"},
        {"address": "Static", "template": "head-{cluster}:16379"},
        {"address": "Static", "template": "head-{cluster}:65535"},
    ],
)
def test_head_address_modes(head: Raw) -> None:
    assert specs.parse_worker_cluster(make.make_worker_cluster(head=head)).head.address == head["address"]


def test_a_drain_that_moves_no_worker_is_rejected() -> None:
    with pytest.raises(
        specs.InvalidSpec, match=r"WorkerCluster east: spec\.maxUnavailable: .* greater than or equal to 1"
    ):
        specs.parse_worker_cluster(make.make_worker_cluster(maxUnavailable=0))


def test_the_smallest_policy_has_defaults() -> None:
    spec = specs.parse_dispatch_policy(make.make_policy())
    assert spec.clusters.names == ("east", "west")
    assert (spec.strategy, spec.gang) == ("FillInOrder", "AllOrNothing")
    assert spec.reservation_timeout == timedelta(seconds=30)


def test_a_policy_has_its_own_timeout() -> None:
    assert specs.parse_dispatch_policy(make.make_policy(reservationTimeout="2m")).reservation_timeout == timedelta(
        minutes=2
    )


def test_an_unknown_field_is_ignored() -> None:
    """Objects may be written under an older or newer schema than the reader's."""
    assert specs.parse_dispatch_policy(make.make_policy(workerLostTimeout="5m")).clusters.names == ("east", "west")
    assert specs.parse_worker_cluster(make.make_worker_cluster(namespaces={"a": "b"})).source


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        pytest.param(
            make.make_policy(clusters=()) | {"spec": {}},
            ["DispatchPolicy default: ", "spec.clusters: ", "Field required"],
            id="a policy without clusters",
        ),
        pytest.param(
            make.make_policy(clusters=["east", 5]),
            ["DispatchPolicy default: ", "spec.clusters.names.1: ", "found 5."],
            id="a cluster with an invalid name",
        ),
        pytest.param(
            make.make_policy(strategy="Random"),
            ["DispatchPolicy default: ", "spec.strategy: ", "'FillInOrder'", "found 'Random'."],
            id="a strategy that does not exist",
        ),
        pytest.param(
            {"metadata": {"name": "default"}, "spec": {"clusters": {"names": ["east"], "selector": {}}}},
            ["DispatchPolicy default: ", "spec.clusters: ", "exactly one of names, selector and multiKueueConfigRef"],
            id="two ways to choose clusters",
        ),
        pytest.param(
            make.make_policy(gang="BestEffort"),
            ["DispatchPolicy default: ", "spec.minWorkers: ", "BestEffort needs minWorkers", "found 0."],
            id="a partial gang without a minimum",
        ),
        pytest.param(
            make.make_policy(gang="SameCluster", strategy="Spread"),
            ["DispatchPolicy default: ", "spec.strategy: ", "contradict each other, found 'Spread'."],
            id="one cluster and a spread",
        ),
        pytest.param(
            make.make_policy(reservationTimeout="soon"),
            [
                "DispatchPolicy default: ",
                "spec.reservationTimeout: ",
                "'soon' is not a duration such as 30s, 5m or 1h30m.",
            ],
            id="an invalid timeout",
        ),
        pytest.param(
            {"metadata": {"name": "old"}},
            ["DispatchPolicy old: ", "spec.clusters: ", "Field required"],
            id="no spec at all",
        ),
        pytest.param({}, ["DispatchPolicy None: ", "spec.clusters: "], id="no spec and no name"),
    ],
)
def test_an_invalid_policy_is_reported_with_its_field(raw: Raw, parts: list[str]) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        specs.parse_dispatch_policy(raw)
    _reads(str(error.value), parts)


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        pytest.param(
            make.make_worker_cluster(source={}),
            [
                "WorkerCluster east: ",
                "spec.source: ",
                "kubeConfig.secretRef, multiKueueClusterRef and clusterProfileRef",
            ],
            id="no source",
        ),
        pytest.param(
            make.make_worker_cluster(source={"kubeConfig": {"secretRef": {}}}),
            ["WorkerCluster east: ", "spec.source.kubeConfig.secretRef.name: ", "Field required"],
            id="a Secret without a name",
        ),
        pytest.param(
            make.make_worker_cluster(head={"address": "Carrier"}),
            ["WorkerCluster east: ", "spec.head.address: ", "'PodIP'", "found 'Carrier'."],
            id="an unknown head address mode",
        ),
        pytest.param(
            make.make_worker_cluster(resources={"link": "many"}),
            ["WorkerCluster east: ", "spec.resources.link: ", "found 'many'."],
            id="a resource that is no number",
        ),
    ],
)
def test_an_invalid_worker_cluster_is_reported_with_its_field(raw: Raw, parts: list[str]) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        specs.parse_worker_cluster(raw)
    _reads(str(error.value), parts)


def test_a_message_names_one_fault_at_a_time() -> None:
    """The text has the first of two faults, because a condition's message is one line."""
    with pytest.raises(specs.InvalidSpec) as error:
        specs.parse_dispatch_policy(make.make_policy(strategy="Random", reservationTimeout="soon"))
    assert str(error.value).count("spec.") == 1
    assert "\n" not in str(error.value)


NO_DURATION = "spec.reservationTimeout: 'soon' is not a duration such as 30s, 5m or 1h30m."
NEEDS = "gang BestEffort needs minWorkers of 1 or more, and no other gang has one"
NO_STRATEGY = (
    "spec.strategy: Input should be 'FillInOrder', 'AvailableCapacity', 'Spread' or 'Cheapest', found 'Random'."
)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"reservationTimeout": "soon"}, [NO_DURATION], id="one"),
        pytest.param({"strategy": "Random", "clusters": [], "reservationTimeout": "soon"},
            ["spec.clusters: must set exactly one of names, selector and multiKueueConfigRef, found {'names': []}.",
             NO_STRATEGY, NO_DURATION], id="three faults, in the order of the fields"),
        pytest.param({"gang": "BestEffort", "strategy": "Random"}, [NO_STRATEGY, f"spec.minWorkers: {NEEDS}, found 0."],
            id="two fields disagree, and a third has a fault"),
        pytest.param({"gang": "SameCluster", "strategy": "Spread", "minWorkers": 2},
            ["spec.strategy: strategy Spread and gang SameCluster contradict each other, found 'Spread'.",
             f"spec.minWorkers: {NEEDS}, found 2."], id="two pairs disagree"),
        pytest.param({"gang": "Most", "strategy": "Spread", "minWorkers": 2},
            ["spec.gang: Input should be 'AllOrNothing', 'SameCluster' or 'BestEffort', found 'Most'."],
            id="an invalid field is not compared with others"),
        pytest.param({"clusters": [1, "east", 2]},
            ["spec.clusters.names.0: Input should be a valid string, found 1.",
             "spec.clusters.names.2: Input should be a valid string, found 2."], id="two faults in a list"),
    ],
)  # fmt: skip
def test_all_faults_of_a_policy_are_kept(spec: Raw, want: list[str]) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        specs.parse_dispatch_policy(make.make_policy(**spec))
    assert error.value.messages == tuple(f"DispatchPolicy default: {one}" for one in want)
    assert str(error.value) == error.value.messages[0]


LISTS = {
    "serviceAccounts": "name", "persistentVolumeClaims": "name", "runtimeClasses": "name", "schedulers": "name",
    "priorityClasses": "name", "hostPaths": "prefix",
}  # fmt: skip


@pytest.mark.parametrize("field", LISTS)
def test_an_entry_with_a_misspelt_list_of_namespaces_is_invalid(field: str) -> None:
    """Without its list it would count for every tenant."""
    entry = {LISTS[field]: "/a", "namespace": ["payroll"]}
    with pytest.raises(specs.InvalidSpec) as error:
        specs.parse_worker_cluster(make.make_worker_cluster(pods={field: [entry]}))
    assert str(error.value) == (
        f"WorkerCluster east: spec.pods.{field}.0.namespace: is no field of this entry; correct its name, or "
        "remove it, found ['payroll']."
    )
    with pytest.raises(specs.InvalidSpec, match="has no entries: name the namespaces"):
        specs.parse_worker_cluster(make.make_worker_cluster(pods={field: [{LISTS[field]: "/a", "namespaces": None}]}))


def test_all_faults_of_a_worker_cluster_are_kept() -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        specs.parse_worker_cluster(
            make.make_worker_cluster(
                source={}, head={"address": "Static", "template": "ray:65536"}, maxUnavailable=0, podCIDRs=["x"]
            )
        )
    found = [one.removeprefix("WorkerCluster east: ").partition(", found ")[0] for one in error.value.messages]
    assert found == [
        "spec.source: must name exactly one of kubeConfig.secretRef, multiKueueClusterRef and clusterProfileRef",
        (
            "spec.head: template 'ray:65536' has a port above 65535, and neither "
            "{service} nor {cluster}: every head would have the same name"
        ),
        "spec.maxUnavailable: Input should be greater than or equal to 1",
        "spec.podCIDRs.0: 'x' is not a range of addresses such as 10.1.0.0/16 or fd00:1::/48.",
    ]


def test_the_number_of_kept_faults_is_bounded() -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        specs.parse_dispatch_policy(make.make_policy(clusters=range(5_000)))
    assert len(error.value.messages) == 100


def test_specs_are_immutable() -> None:
    spec = specs.parse_dispatch_policy(make.make_policy())
    with pytest.raises(ValueError, match="frozen"):
        spec.min_workers = 1


def _reads(sentence: str, parts: list[str]) -> None:
    """The parts follow each other in the sentence."""
    position = 0
    for part in parts:
        position = sentence.find(part, position)
        assert position >= 0, f"{part!r} is not where it belongs in: {sentence}"
    assert sentence.endswith("."), sentence
