"""A MultiKueueCluster is reused where its kubeconfig is in a Secret, and whoever wrote another one reads what to do."""

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
        pytest.param(of(kubeConfig={"location": "a-secret", "locationType": "Secret"}), id="as it is stored"),
        pytest.param(of(kubeConfig={"location": "a-secret"}), id="the default"),
        pytest.param(
            of(kubeConfig={"location": "a-secret"}) | {"status": {"conditions": "odd"}}, id="whatever its status"
        ),
    ],
)
def test_the_secret_is_named(found: Raw) -> None:
    assert multikueue.login_source("east", found) == "a-secret"


def test_a_clusterprofile_is_named_with_where_it_is_named() -> None:
    """It is where Kueue runs, as Kueue itself has it."""
    found = multikueue.login_source("east", of(clusterProfileRef={"name": "a-profile"}))
    field = "spec.source.multiKueueClusterRef: clusterProfileRef of MultiKueueCluster east"
    assert found == ProfileReference("a-profile", "kueue-system", field=field)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param(None, " names MultiKueueCluster east, which does not exist; create it, or " + INSTEAD, id="missing"),
        pytest.param(
            of(kubeConfig={"location": "/etc/multikueue/kubeconfigs/east", "locationType": "Path"}),
            ": MultiKueueCluster east has locationType Path, and a file of Kueue's pod is not ours to read; " + INSTEAD,
            id="a file",
        ),
        pytest.param(
            of(kubeConfig={"location": ""}),
            ": MultiKueueCluster east has no location, and so no Secret; " + INSTEAD,
            id="no Secret",
        ),
        pytest.param({}, ": MultiKueueCluster east cannot be read (KeyError).", id="nothing at all"),
        pytest.param(of(), ": MultiKueueCluster east cannot be read (KeyError).", id="an empty source"),
        pytest.param(of(kubeConfig="x"), ": MultiKueueCluster east cannot be read (AttributeError).", id="an odd source"),
        pytest.param(of(clusterProfileRef={}), ": MultiKueueCluster east cannot be read (KeyError).", id="a profile without a name"),
        pytest.param({"spec": "x"}, ": MultiKueueCluster east cannot be read (TypeError).", id="an odd spec"),
    ],
)  # fmt: skip
def test_what_cannot_be_reused_is_told_in_a_sentence(found: Raw | None, sentence: str) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        multikueue.login_source("east", found)
    assert str(error.value) == "spec.source.multiKueueClusterRef" + sentence


def test_a_manager_without_multikueue_says_so() -> None:
    assert str(multikueue.unreadable_error("404 NotFound: ")).startswith(
        "spec.source.multiKueueClusterRef cannot be followed: the manager cluster does not show its MultiKueueClusters (404"
    )
