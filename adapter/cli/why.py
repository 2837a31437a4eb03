"""`rayspan why`: which one link keeps a job from running? Walks along its objects in the manager cluster, and asks for a plan where it waits for room.

Exit code 0: it runs, or has succeeded; 3: it waits; 4: it is refused, or failed, and needs somebody; 2: there is no such job; 1: the
manager cannot be asked. Of a RayService it is that of its RayCluster which is worse off, and 3 while it has none.
"""

import argparse
from typing import Any

from adapter.cli import common, job_reader, plan, plan_table, rayservice_report
from adapter.cli.common import format_table, join_lines
from adapter.cli.job_reader import SelectedJobs
from adapter.cli.plan_table import PlanDocument
from adapter.cli.where_table import outcome_line
from adapter.diagnosis.blocker import EXIT_CODES, Diagnosis
from adapter.diagnosis.explain import diagnose
from adapter.diagnosis.job_document import Document, describe_job
from adapter.diagnosis.job_facts import JobFacts
from adapter.shell.kube.client import ApiError, Client, Unreachable


def main(args: argparse.Namespace) -> int:
    """Read, ask, print, and return the exit code."""

    async def tell(client: Client, asked: SelectedJobs) -> int:
        links = [diagnose(facts) for facts in asked.jobs]
        found = [await _explain_job(client, facts, link) for facts, link in zip(asked.jobs, links, strict=True)]
        if args.output == "table":
            print(rayservice_report.combine_texts(asked, list(map(render, found))), end="")
        else:
            print(common.format_document(rayservice_report.combine_documents(asked, found), args.output), end="")
        return max((link.exit_code for link in links), default=EXIT_CODES["Waits"])

    return job_reader.run_on_job(args, tell)


async def _explain_job(client: Client, facts: JobFacts, link: Diagnosis) -> Document:
    return describe_job(facts) | (await _request_plan(client, facts) if link.waits_for_capacity else {})


async def _request_plan(client: Client, facts: JobFacts) -> dict[str, Any]:
    """The controller's plan for the job, or why there is none."""
    question = {"namespace": facts.namespace, "object": _job_without_status(facts)}
    try:
        answer = await common.await_with_hint(
            plan.request_plan(client, question), "Waiting for the controller's answer ..."
        )
        return {"plan": answer, "planProblem": None}
    except ApiError as error:
        return {"plan": None, "planProblem": plan.error_message(error)}
    except Unreachable as error:
        return {"plan": None, "planProblem": f"The controller cannot be asked for a plan: {error}."}


def _job_without_status(facts: JobFacts) -> dict[str, Any]:
    """The job as its user wrote it."""
    return {key: value for key, value in facts.job.items() if key != "status"}


def render(explanation: Document) -> str:
    """Lines, each ended: the way, the link, and the plan where there is one."""
    steps = [("STEP", "STATE"), *((one["stage"], one["state"]) for one in explanation["steps"])]
    lines = [outcome_line(explanation), f"See {explanation['link']['object']}."]
    parts = [
        join_lines([f"{explanation['kind']} {explanation['namespace']}/{explanation['name']}"]),
        format_table(steps),
        join_lines(lines),
    ]
    parts += [_render_plan(explanation["plan"])] if explanation.get("plan") else []
    problem = explanation.get("planProblem")
    told = [*explanation["notes"], *([f"No plan is shown: {problem}"] if problem else [])]
    return "\n".join([*parts, *([join_lines(told)] if told else [])])


def _render_plan(plan_document: PlanDocument) -> str:
    try:
        return plan_table.render(plan_document)
    except (KeyError, TypeError):  # an answer of another version's
        return join_lines(["The controller's plan cannot be shown: it is of another version; try -o json."])
