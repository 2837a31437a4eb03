"""A fake pod's deletion takes long enough that its successor would be observed beside it."""

import yaml

from hack.lab.cluster import kwok
from hack.trials.sampler import COPIES_PERIOD


def test_a_fake_pod_is_deleted_after_a_delay() -> None:
    stage = yaml.safe_load(kwok._LEAVING)
    assert stage["kind"] == "Stage" and stage["spec"]["next"] == {"delete": True}
    delay = stage["spec"]["delay"]
    assert delay["durationMilliseconds"] >= 1000 * 5 * COPIES_PERIOD, "some samples see it"
    assert delay["durationMilliseconds"] < delay["jitterDurationMilliseconds"] <= 2000, (
        "and cleaning does not take long"
    )
    said = delay["jitterDurationFrom"]["expressionFrom"]
    assert said == f'.metadata.annotations["{kwok.LEAVES_WITHIN}"]', "or as long as the pod says"
    assert not any("delete" in name for name in kwok._STAGES), "the module's own stage deletes at once"
