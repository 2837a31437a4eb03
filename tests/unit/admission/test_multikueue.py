"""A MultiKueueCluster whose kubeconfig is in a Secret is reused; any other one is rejected with the remedy."""

from typing import Any

import pytest

from adapter.admission import multikueue
from adapter.admission.clusterprofile import ProfileReference
from adapter.objects import specs
from adapter.objects.unstructured import RawDict as Raw

INSTEAD = "put a kubeconfig into a Secret, and name that in spec.source.kubeConfig."


def of(**source: Any) -> Raw:
    return {"metadata": {"name": "east"}, "spec": {"clusterSource": source}}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(
            of(kubeConfig={"location": "a-secret", "locationType": "Secret"}),
            id="kubeConfig as it is stored",
        ),
        pytest.param(of(kubeConfig={"location": "a-secret"}), id="the default location type"),
        pytest.param(
            of(kubeConfig={"location": "a-secret"}) | {"status": {"conditions": "odd"}},
            id="a status that cannot be read",
        ),
    ],
)
def test_the_secret_is_named(found: Raw) -> None:
    assert multikueue.login_source("east", found) == "a-secret"


def test_a_clusterprofile_is_named_with_its_namespace() -> None:
    """ClusterProfiles are in Kueue's namespace, as in Kueue itself."""
    found = multikueue.login_source("east", of(clusterProfileRef={"name": "a-profile"}))
    field = "spec.source.multiKueueClusterRef: clusterProfileRef of MultiKueueCluster east"
    assert found == ProfileReference("a-profile", "kueue-system", field=field)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param(
            None, " names MultiKueueCluster east, which does not exist; create it, or " + INSTEAD, id="missing",
        ),
        pytest.param(
            of(kubeConfig={"location": "/etc/multikueue/kubeconfigs/east", "locationType": "Path"}),
            ": MultiKueueCluster east has locationType Path, which is a file in Kueue's pod that Rayspan cannot "
            "read; " + INSTEAD,
            id="a kubeconfig in a file",
        ),
        pytest.param(
            of(kubeConfig={"location": ""}),
            ": MultiKueueCluster east has no location, and so no Secret; " + INSTEAD,
            id="an empty location",
        ),
        pytest.param({}, ": MultiKueueCluster east cannot be read (KeyError).", id="an empty object"),
        pytest.param(of(), ": MultiKueueCluster east cannot be read (KeyError).", id="an empty source"),
        pytest.param(
            of(kubeConfig="x"), ": MultiKueueCluster east cannot be read (AttributeError).",
            id="a source of another type",
        ),
        pytest.param(
            of(clusterProfileRef={}), ": MultiKueueCluster east cannot be read (KeyError).",
            id="a profile without a name",
        ),
        pytest.param(
            {"spec": "x"}, ": MultiKueueCluster east cannot be read (TypeError).", id="a spec of another type",
        ),
    ],
)  # fmt: skip
def test_an_unusable_multikueuecluster_is_one_sentence(found: Raw | None, sentence: str) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        multikueue.login_source("east", found)
    assert str(error.value) == "spec.source.multiKueueClusterRef" + sentence


def test_a_manager_without_multikueue_says_so() -> None:
    assert str(multikueue.unreadable_error("404 NotFound: ")).startswith(
        "spec.source.multiKueueClusterRef cannot be resolved: the controller cannot read the MultiKueueClusters of "
        "the manager cluster (404"
    )
