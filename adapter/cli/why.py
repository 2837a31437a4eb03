"""`rayspan why`: which one link keeps a job from running? Walks along its objects in the manager cluster, and asks for a plan where it waits for room.

Exit code 0: it runs, or has succeeded; 3: it waits; 4: it is refused, or failed, and needs somebody; 2: there is no such job; 1: the
manager cannot be asked. Of a RayService it is that of its RayCluster which is worse off, and 3 while it has none.
"""

import argparse
from typing import Any

from adapter.cli import common, job_reader, plan, plan_table, rayservice_report
from adapter.cli.common import as_lines, columns
from adapter.cli.job_reader import Asked
from adapter.cli.plan_table import Answer
from adapter.cli.where_table import verdict
from adapter.diagnosis.blocker import EXIT_CODES, Link
from adapter.diagnosis.explain import walk
from adapter.diagnosis.job_document import Document, document
from adapter.diagnosis.job_facts import Facts
from adapter.shell.kube.client import ApiError, Client, Unreachable


def main(given: argparse.Namespace) -> int:
    """Read, ask, print, and return the exit code."""

    async def tell(client: Client, asked: Asked) -> int:
        links = [walk(facts) for facts in asked.jobs]
        found = [await _told(client, facts, link) for facts, link in zip(asked.jobs, links, strict=True)]
        if given.output == "table":
            print(rayservice_report.rendered(asked, list(map(render, found))), end="")
        else:
            print(common.written(rayservice_report.document(asked, found), given.output), end="")
        return max((link.exit_code for link in links), default=EXIT_CODES["Waits"])

    return job_reader.attempt(given, tell)


async def _told(client: Client, facts: Facts, link: Link) -> Document:
    return document(facts) | (await _planned(client, facts) if link.wants_room else {})


async def _planned(client: Client, facts: Facts) -> dict[str, Any]:
    """The controller's plan for the job, or why there is none."""
    question = {"namespace": facts.namespace, "object": _submitted(facts)}
    try:
        answer = await common.told(plan.answered(client, question), "Waiting for the controller's answer ...")
        return {"plan": answer, "planProblem": None}
    except ApiError as error:
        return {"plan": None, "planProblem": plan.explained(error)}
    except Unreachable as error:
        return {"plan": None, "planProblem": f"The controller cannot be asked for a plan: {error}."}


def _submitted(facts: Facts) -> dict[str, Any]:
    """The job as its user wrote it."""
    return {key: value for key, value in facts.job.items() if key != "status"}


def render(found: Document) -> str:
    """Lines, each ended: the way, the link, and the plan where there is one."""
    steps = [("STEP", "STATE"), *((one["stage"], one["state"]) for one in found["steps"])]
    lines = [verdict(found), f"See {found['link']['object']}."]
    parts = [as_lines([f"{found['kind']} {found['namespace']}/{found['name']}"]), columns(steps), as_lines(lines)]
    parts += [_plan(found["plan"], lines[0])] if found.get("plan") else []
    problem = found.get("planProblem")
    told = [*found["notes"], *([f"No plan is shown: {problem}"] if problem else [])]
    return "\n".join([*parts, *([as_lines(told)] if told else [])])


def _plan(answer: Answer, above: str) -> str:
    try:
        return plan_table.render(answer, above)
    except (KeyError, TypeError):  # an answer of another version's
        return as_lines(["The controller's plan cannot be shown: it is of another version; try -o json."])
