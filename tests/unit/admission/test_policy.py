"""A policy's clusters, by name, selector or MultiKueueConfig: always in one order, or one sentence."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.admission import policy
from adapter.objects import specs
from adapter.objects.unstructured import Raw
from tests.unit.builders import make_worker_cluster


def borrowed(name: str, ref: str) -> Raw:
    """A WorkerCluster that stands for a MultiKueueCluster."""
    return make_worker_cluster(name, source={"multiKueueClusterRef": {"name": ref}})


def config(*clusters: str) -> dict[str, Raw]:
    return {"all": {"metadata": {"name": "all"}, "spec": {"clusters": list(clusters)}}}


def by_config(name: str = "all") -> specs.ClusterSelection:
    return specs.ClusterSelection.model_validate({"multiKueueConfigRef": {"name": name}})


def by_label(*expressions: Raw, **labels: str) -> specs.ClusterSelection:
    selector = ({"matchLabels": labels} if labels else {}) | (
        {"matchExpressions": list(expressions)} if expressions else {}
    )
    return specs.ClusterSelection.model_validate({"selector": selector})


def resolve(
    clusters: specs.ClusterSelection, known: Iterable[Raw] = (), configs: Mapping[str, Raw] | None = None
) -> tuple[str, ...]:
    return policy.resolve_clusters(clusters, known, configs)


def refusal(
    clusters: specs.ClusterSelection, known: Iterable[Raw] = (), configs: Mapping[str, Raw] | None = None
) -> str:
    with pytest.raises(specs.InvalidSpec) as error:
        resolve(clusters, known, configs)
    return str(error.value)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("configs", [None, {}], ids=["without MultiKueue", "without a config"])
def test_names_are_kept_in_order_even_if_unknown(configs: Mapping[str, Raw] | None) -> None:
    named = specs.ClusterSelection.model_validate({"names": ["west", "nowhere", "east", "west"]})
    assert resolve(named, [make_worker_cluster("east")], configs) == ("west", "nowhere", "east")


# --- selector --------------------------------------------------------------------------------------------------------

GOLD = make_worker_cluster("north", labels={"tier": "gold"}, zone="z-1", region="eu")
ALSO_GOLD = make_worker_cluster("east", labels={"tier": "gold"}, region="us")
SILVER = make_worker_cluster("west", labels={"tier": "silver"}, zone="z-1")
BROKEN = {"metadata": {"name": "broken"}, "spec": {"labels": {"tier": "gold"}}}


@pytest.mark.parametrize(
    ("clusters", "want"),
    [
        pytest.param(by_label(tier="gold"), ("east", "north"), id="a label, in the order of names"),
        pytest.param(by_label(**{names.RAY_ZONE_LABEL: "z-1"}), ("north", "west"), id="the zone"),
        pytest.param(
            by_label(**{names.RAY_ZONE_LABEL: "east"}),
            ("east",),
            id="a cluster without a zone has its name as zone",
        ),
        pytest.param(by_label(**{names.RAY_REGION_LABEL: "us"}), ("east",), id="the region"),
        pytest.param(by_label(**{names.CLUSTER_LABEL: "west"}), ("west",), id="the cluster's name"),
        pytest.param(by_label(tier="gold", **{names.RAY_ZONE_LABEL: "z-1"}), ("north",), id="all labels must match"),
        pytest.param(
            by_label({"key": "tier", "operator": "In", "values": ["silver", "bronze"]}), ("west",), id="an operator In"
        ),
        pytest.param(
            by_label({"key": names.RAY_REGION_LABEL, "operator": "DoesNotExist"}),
            ("west",),
            id="an operator DoesNotExist",
        ),
        pytest.param(
            by_label({"key": "tier", "operator": "NotIn", "values": ["gold"]}), ("west",), id="an operator NotIn"
        ),
    ],
)
def test_a_selector_matches_the_labels_of_ray_nodes(clusters: specs.ClusterSelection, want: tuple[str, ...]) -> None:
    """A WorkerCluster that cannot be read is never chosen, because its labels are unknown."""
    assert resolve(clusters, [SILVER, GOLD, BROKEN, ALSO_GOLD]) == want


def test_a_selector_may_match_nothing_yet() -> None:
    assert resolve(by_label(tier="gold"), [SILVER, BROKEN]) == ()
    assert resolve(by_label(tier="gold"), []) == ()


def test_an_unreadable_selector_has_a_message() -> None:
    odd = specs.ClusterSelection.model_validate({"selector": {"matchLabels": "tier=gold"}})
    assert refusal(odd, [GOLD]).startswith("spec.clusters.selector cannot be read (")


# --- a MultiKueueConfig ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "known", "want"),
    [
        pytest.param(
            ("mk-west", "mk-east"),
            [borrowed("east", "mk-east"), borrowed("west", "mk-west")],
            ("west", "east"),
            id="WorkerClusters that refer to the listed clusters, in the config's order",
        ),
        pytest.param(
            ("east",), [make_worker_cluster("east")], ("east",), id="a WorkerCluster of the listed name",
        ),
        pytest.param(
            ("east",), [make_worker_cluster("east"), borrowed("site-1", "east")], ("site-1",),
            id="a reference comes before an equal name"
        ),
        pytest.param(
            ("mk",), [borrowed("b", "mk"), borrowed("a", "mk")], ("a",), id="the first name of two references",
        ),
        pytest.param(
            ("mk", "a"), [borrowed("a", "mk")], ("a",), id="one cluster is not listed twice"
        ),
        pytest.param(("mk-north",), [], ("mk-north",), id="an unknown cluster is kept for the plan's reason"),
        pytest.param(
            ("mk",), [BROKEN, borrowed("a", "mk")], ("a",), id="a WorkerCluster that cannot be read is skipped",
        ),
    ],
)  # fmt: skip
def test_a_config_lists_worker_clusters(listed: tuple[str, ...], known: list[Raw], want: tuple[str, ...]) -> None:
    assert resolve(by_config(), known, config(*listed)) == want


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        pytest.param({}, " names MultiKueueConfig all, which does not exist; create it", id="missing"),
        pytest.param(
            None,
            " cannot be resolved, because the controller cannot read the MultiKueueConfigs of the manager cluster; "
            "install Kueue's CRDs, and apply kustomize/overlays/manager, or list the clusters in spec.clusters.names",
            id="no MultiKueue, or no right to read it",
        ),
        pytest.param(
            config(), ": MultiKueueConfig all lists no clusters; name one in its spec.clusters", id="an empty list"
        ),
        pytest.param(
            {"all": {}}, ": MultiKueueConfig all lists no clusters; name one in its spec.clusters", id="no spec"
        ),
        pytest.param(
            {"all": {"spec": {"clusters": "east"}}},
            ": MultiKueueConfig all lists no clusters; name one in its spec.clusters",
            id="no list",
        ),
    ],
)
def test_an_unusable_config_is_one_sentence(configs: Mapping[str, Raw] | None, sentence: str) -> None:
    said = refusal(by_config(), [make_worker_cluster("east")], configs)
    assert said == "spec.clusters.multiKueueConfigRef" + sentence


# --- all three -------------------------------------------------------------------------------------------------------

NAMES = st.lists(st.sampled_from(["a", "b", "c", "mk-a", "mk-b"]), min_size=1, max_size=5, unique=True)


@given(NAMES, st.permutations([borrowed("a", "mk-a"), borrowed("b", "mk-b"), make_worker_cluster("c")]))
def test_the_order_of_known_clusters_does_not_matter(listed: list[str], known: list[Raw]) -> None:
    """Stores have no order, and a plan must not depend on one. No cluster is listed twice."""
    ways = [by_config(), by_label({"key": names.CLUSTER_LABEL, "operator": "Exists"})]
    for way in ways:
        found = resolve(way, known, config(*listed))
        assert found == resolve(way, known[::-1], config(*listed))
        assert len(found) == len(set(found)) > 0
