"""`rayspan plan`: print the controller's plan for a job that is not submitted.

The request goes through the manager's API server with the user's kubeconfig; no login to a worker cluster is needed.
"""

import argparse
import json
import logging
from collections.abc import Mapping
from typing import Any

from adapter import names
from adapter.cli import common, event_loop, plan_table
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE, print_error
from adapter.cli.plan_table import PlanDocument
from adapter.cli.terminal import print_text
from adapter.objects import rayservice
from adapter.objects.job_manifest import MAX_JOB_BYTES, InvalidJob
from adapter.objects.unstructured import UNREADABLE
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.user_kubeconfig import default_namespace

EXIT_FITS, EXIT_DOES_NOT_FIT = 0, 3


def main(args: argparse.Namespace) -> int:
    """Request the plan, print it, and return the exit code."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own message reports what it warns of
    try:
        job, of_service = _parse_job(_read_job_text(args.filename))
        answer = event_loop.run_command(_plan_job(args, job, of_service=of_service))
    except InvalidJob as error:
        return print_error(str(error), EXIT_USAGE)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be reached: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(error_message(error), EXIT_USAGE if error.reason == names.INVALID_JOB_REASON else EXIT_ERROR)
    try:
        print_text(_format_answer(answer, args.output))
    except (KeyError, TypeError):  # the controller has another version
        return print_error(
            "The controller's answer cannot be shown: the controller has another version; try -o json.", EXIT_ERROR
        )
    return EXIT_FITS if answer.get("fits") else EXIT_DOES_NOT_FIT


def _read_job_text(filename: str) -> str:
    text = common.read_text(filename)
    if len(text.encode()) > MAX_JOB_BYTES:
        raise InvalidJob(f"{filename} is larger than {MAX_JOB_BYTES // 2**20} MiB; remove everything but the job.")
    return text


_PLANNABLE_KINDS = (*names.RAY_KINDS, names.RAY_SERVICE)


def _parse_job(text: str) -> tuple[dict[str, Any], bool]:
    """The only RayJob, RayCluster or RayService among the objects of a file, and whether it is a RayService.

    A RayService is returned as the RayCluster that KubeRay would create.
    """
    objects = common.read_objects(text)
    jobs = [raw for raw in objects if raw.get("kind") in _PLANNABLE_KINDS]
    if len(jobs) != 1:
        kinds = ", ".join(str(raw.get("kind")) for raw in objects) or "nothing"
        wanted = f"{', '.join(names.RAY_KINDS)} or {names.RAY_SERVICE}"
        raise InvalidJob(f"The file must hold one {wanted}, found {len(jobs)} of them in: {kinds}.")
    of_service = jobs[0].get("kind") == names.RAY_SERVICE
    return _ray_cluster_of_service(jobs[0]) if of_service else jobs[0], of_service


def _ray_cluster_of_service(service: dict[str, Any]) -> dict[str, Any]:
    from adapter.admission import job_validation  # imports pydantic

    try:
        problem = job_validation.service_problem(service) or job_validation.missing_config(service)
    except UNREADABLE:
        raise InvalidJob(
            "The RayService cannot be read; `kubectl apply --dry-run=server` shows what is wrong with it."
        ) from None
    if problem:
        raise InvalidJob(f"The RayService has no plan: {problem}.")
    return rayservice.ray_cluster(service)


async def _plan_job(args: argparse.Namespace, job: dict[str, Any], *, of_service: bool) -> PlanDocument:
    namespace = _job_namespace(args, job)
    try:
        # YAML has dates, JSON does not.
        body = {"namespace": namespace, "object": job, **({"ofService": True} if of_service else {})}
        question = json.loads(json.dumps(body, default=str))
    except (TypeError, ValueError):
        raise InvalidJob(
            "The file has keys or values that JSON cannot represent; no Kubernetes object has such."
        ) from None
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        return await common.await_with_hint(request_plan(client, question), "Waiting for the controller's answer ...")
    finally:
        await client.close()


async def request_plan(client: Client, body: Mapping[str, Any]) -> PlanDocument:
    """The controller's plan; `body` has `namespace`, `object`, and for a RayService's RayCluster `ofService`."""
    return await client.create(resources.controller_proxy_path(names.PLAN_PATH), body)


def _job_namespace(args: argparse.Namespace, job: dict[str, Any]) -> str:
    """The job's namespace, as kubectl determines it; option and file must agree."""
    meta = job.get("metadata")
    job_namespace = str(meta.get("namespace") or "") if isinstance(meta, dict) else ""
    if args.namespace and job_namespace and args.namespace != job_namespace:
        raise InvalidJob(
            f"The file's namespace {job_namespace} is not {args.namespace}; leave out --namespace, or "
            "name the same one."
        )
    return job_namespace or args.namespace or default_namespace(args.kubeconfig, args.context)


def error_message(error: ApiError) -> str:
    """A sentence for an error response to a plan request."""
    service = f"Service {names.SERVICE} in namespace {names.SYSTEM_NAMESPACE}"
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        binding = f"create rolebinding {names.PLAN_ROLE} --role={names.PLAN_ROLE} {common.rolebinding_subject(error)}"
        command = f"kubectl -n {names.SYSTEM_NAMESPACE} {binding}"
        return f"You may not ask for plans here; an administrator of the manager cluster can allow it with `{command}`."
    if error.status == 404:
        return f"There is no {service}: Rayspan is not installed in this cluster, or too old to make plans."
    if error.status == 503 and error.reason != names.NOT_READY_REASON:
        return f"{service} has no ready controller behind it; see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`."
    return error.message or str(error)


def _format_answer(answer: PlanDocument, output: str) -> str:
    return plan_table.render(answer) if output == "table" else common.format_document(answer, output)
