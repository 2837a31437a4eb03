"""The AdmissionCheck and the DispatchPolicy of a gang follow the stores."""

from tests.unit import builders
from tests.unit.stores import Sight


def test_a_check_is_ours_while_it_names_our_controller() -> None:
    sight = Sight({"east": 1})
    checks, policies = sight.manager.checks, sight.facts.policies
    work = sight.manager.read_workload(builders.make_workload())
    ours = builders.make_check()
    theirs = {**ours, "spec": {**ours["spec"], "controllerName": "example.com/other"}}
    for at, (check, name) in enumerate([(ours, builders.CHECK), (theirs, ""), (ours, builders.CHECK)]):
        checks.put({**check, "metadata": {**check["metadata"], "resourceVersion": str(100 + at)}})
        assert policies.check_of(work) == name and (builders.CHECK in policies.our_checks()) is bool(name)
    checks.remove({**ours, "metadata": {**ours["metadata"], "resourceVersion": "200"}})
    assert policies.check_of(work) == "" and not policies.our_checks()
