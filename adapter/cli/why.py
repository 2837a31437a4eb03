"""`rayspan why`: print the one step that keeps a job from running.

Prints a plan when the job waits for capacity, and the end of the log when a worker has not joined Ray.

`diagnosis.explain` finds the step in the objects of the manager cluster. A RayService has the exit code of its worse
RayCluster, and 3 while it has no RayCluster.
"""

import argparse
from typing import Any

from adapter.cli import common, job_reader, plan, plan_table, rayservice_report
from adapter.cli.common import format_table, join_lines
from adapter.cli.job_reader import SelectedJobs
from adapter.cli.join_evidence import read_evidence
from adapter.cli.plan_table import PlanDocument
from adapter.cli.terminal import print_text
from adapter.cli.where_table import outcome_line
from adapter.diagnosis import join_problem
from adapter.diagnosis.blocker import EXIT_CODES, Diagnosis
from adapter.diagnosis.explain import diagnose, pod_states
from adapter.diagnosis.job_document import Document, describe_job
from adapter.diagnosis.job_facts import JobFacts
from adapter.diagnosis.pod_state import PodState
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import ApiError, Client, Unreachable


def main(args: argparse.Namespace) -> int:
    """Print the diagnosis; return the exit code."""

    async def report(client: Client, selection: SelectedJobs) -> int:
        links = [diagnose(facts) for facts in selection.jobs]
        documents = [
            await _explain_job(args, client, facts, link) for facts, link in zip(selection.jobs, links, strict=True)
        ]
        if args.output == "table":
            print_text(rayservice_report.combine_texts(selection, list(map(render, documents))))
        else:
            print_text(common.format_document(rayservice_report.combine_documents(selection, documents), args.output))
        return max((link.exit_code for link in links), default=EXIT_CODES["Waits"])

    return job_reader.run_on_job(args, report)


async def _explain_job(args: argparse.Namespace, client: Client, facts: JobFacts, link: Diagnosis) -> Document:
    if link.waits_for_capacity:
        return describe_job(facts) | await _request_plan(client, facts)
    if link.reason == "NotJoined" and (unjoined := join_problem.unjoined_worker(facts, pod_states(facts))):
        return describe_job(facts) | {"joinProblem": await _join_problem(args, client, facts, *unjoined)}
    return describe_job(facts)


async def _join_problem(args: argparse.Namespace, client: Client, facts: JobFacts, worker: PodState, pod: Raw) -> str:
    """A sentence why a worker has not joined Ray, from what the user may read."""
    container = join_problem.container_to_read(worker, pod)
    evidence = await common.await_with_hint(
        read_evidence(args, client, facts, pod, container), "Reading the worker's log and the head's nodes ..."
    )
    return join_problem.explain_join(worker, pod, facts, evidence)


async def _request_plan(client: Client, facts: JobFacts) -> dict[str, Any]:
    """The controller's plan for the job, or the reason why there is none."""
    question = {"namespace": facts.namespace, "object": _job_without_status(facts)}
    try:
        answer = await common.await_with_hint(
            plan.request_plan(client, question), "Waiting for the controller's answer ..."
        )
        return {"plan": answer, "planProblem": None}
    except ApiError as error:
        return {"plan": None, "planProblem": plan.error_message(error)}
    except Unreachable as error:
        return {"plan": None, "planProblem": f"The controller cannot be reached: {error}."}


def _job_without_status(facts: JobFacts) -> dict[str, Any]:
    return {key: value for key, value in facts.job.items() if key != "status"}


def render(explanation: Document) -> str:
    """The steps, the outcome, the plan if there is one, and the notes."""
    steps = [("STEP", "STATE"), *((step["stage"], step["state"]) for step in explanation["steps"])]
    lines = [outcome_line(explanation), f"See {explanation['link']['object']}."]
    parts = [
        join_lines([f"{explanation['kind']} {explanation['namespace']}/{explanation['name']}"]),
        format_table(steps),
        join_lines(lines),
    ]
    parts += [_render_plan(explanation["plan"])] if explanation.get("plan") else []
    problem = explanation.get("planProblem")
    if explanation.get("joinProblem"):
        parts.append(join_lines([explanation["joinProblem"]]))
    remarks = [*explanation["notes"], *([f"No plan is shown: {problem}"] if problem else [])]
    return "\n".join([*parts, *([join_lines(remarks)] if remarks else [])])


def _render_plan(plan_document: PlanDocument) -> str:
    try:
        return plan_table.render(plan_document)
    except (KeyError, TypeError):  # the controller has another version
        return join_lines(["The controller's plan cannot be shown: the controller has another version; try -o json."])
