"""Any input of a tenant is read, rejected in one sentence, or becomes a pod, and none takes long."""

import json

from hypothesis import HealthCheck, given, settings

from adapter.admission import job_validation, pod_validation
from adapter.objects import job_manifest, rayjob
from adapter.objects.job_manifest import InvalidJob, JobManifest
from adapter.objects.placement import placement_name
from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, Workload, parse_workload
from adapter.rewrite import copied_objects, group_workload, rewriter
from adapter.rewrite.head_address import HeadAddress
from hack.testbed import extremes, sentence
from tests.unit import builders
from tests.unit.bounded import soon
from tests.unit.builders import CHECK, NAMESPACE, START
from tests.unit.rayschema import SCHEMAS
from tests.unit.rewrite.test_rewriter import kuberay_pod

hostile = settings(suppress_health_check=list(HealthCheck))
EAST = builders.make_target("east")


def read(job: Raw) -> JobManifest | None:
    """The job; None if its reader rejected it in a sentence."""
    try:
        return job_manifest.parse(job, NAMESPACE)
    except InvalidJob as error:
        assert sentence.fault(str(error)) == "", error
        return None


def queued(asked: JobManifest) -> Workload:
    """The job's Workload as Kueue makes it."""
    return parse_workload(job_manifest.build_workload(asked, builders.QUEUE, [CHECK], ["any"], 0, START))


@hostile
@given(extremes.jobs(SCHEMAS))
def test_a_job_is_read_or_rejected_in_a_sentence(job: Raw) -> None:
    with soon():
        asked = read(job)
        if asked is None:
            return
        work = queued(asked)
        groups = rayjob.worker_podsets(work, asked.job)
        said = job_validation.workload_rejection(work, asked.job, CHECK, groups, None, ())
    assert [one.name for one in groups] == [one.name for one in asked.podsets[1:]]
    assert not said or sentence.fault(said) == "", said


@hostile
@given(extremes.jobs(SCHEMAS))
def test_references_are_found_or_rejected_in_a_sentence(job: Raw) -> None:
    asked = read(job)
    if asked is None:
        return
    work = queued(asked)
    with soon():
        groups = [
            one for one in rayjob.worker_podsets(work, asked.job) if not pod_validation.template_problem(one.template)
        ]
        missing = dict.fromkeys(copied_objects.podset_references(groups), copied_objects.MISSING)
        never = job_validation.job_rejection(work, copied_objects.rejection_of_podsets(groups, missing))
        said = never or job_validation.missing_sources_message(
            work, copied_objects.missing_for_podsets(NAMESPACE, groups, missing)
        )
    assert not said or sentence.fault(said) == "", said


@hostile
@given(extremes.jobs(SCHEMAS))
def test_an_accepted_job_is_gated_and_becomes_a_pod(job: Raw) -> None:
    asked = read(job)
    work = queued(asked) if asked else None
    if (
        asked is None
        or work is None
        or job_validation.workload_rejection(work, asked.job, CHECK, asked.podsets[1:], None, ())
    ):
        return
    assert len(placement_name(work)) <= 63
    for podset in asked.podsets[1:]:
        with soon():
            share = group_workload.build_workload(
                EAST, NAMESPACE, [(podset.name, podset.count, podset.template)], "a-uid"
            )
            made = remote(podset)
        (held,) = share["spec"]["podSets"]
        assert json.loads(json.dumps(made)) == made
        assert group_workload.excess_requests(made["spec"], held["template"]) == "", (
            "a pod asks for no more than is held for it"
        )


def remote(podset: PodSet) -> Raw:
    """The remote pod for a podset, as far as its content comes from the user."""
    pod, template = kuberay_pod(), podset.template
    theirs = template.get("metadata") or {}
    for field in ("labels", "annotations"):
        pod["metadata"][field] = {**(pod["metadata"].get(field) or {}), **(theirs.get(field) or {})}
    pod["spec"] = {**pod["spec"], **template["spec"]}
    slot = f"east/1/{group_workload.role_of_group(podset.name)}/0"
    head = HeadAddress.from_pod(pod, "10.11.0.12")
    return rewriter.remote_pod(pod, head=head, target=EAST, role="r", slot=slot, anchor_uid="a-uid")
