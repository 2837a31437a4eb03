"""Shared parts of the command line: adding a verb, common options, parsing of values."""

import argparse
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

VerbParsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
RunVerb = Callable[[argparse.Namespace], int]

EXIT_OK, EXIT_ERROR = 0, 1
FILE: Final = "FILE"  # metavar of a path; the shell completes file names
_CLUSTER_NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
TOKEN_LIFETIME: Final = timedelta(days=90)  # the default
_DAYS_PATTERN = re.compile(r"(\d{1,5})d")


def add_verb(
    verbs: VerbParsers, name: str, run: RunVerb, summary: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    """Add a verb; its help keeps the line breaks of the texts. `run` returns the exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    verb = verbs.add_parser(name, help=summary, description=description, epilog=epilog, formatter_class=raw)
    verb.set_defaults(run=run)
    return verb


def add_manager_login(verb: argparse.ArgumentParser) -> None:
    """Add the options that select the manager cluster."""
    verb.add_argument("--context", default="", help="kubeconfig context of the manager cluster")
    verb.add_argument(
        "--kubeconfig",
        default="",
        metavar=FILE,
        help="path of the kubeconfig (default: $KUBECONFIG, else ~/.kube/config)",
    )


def add_output(verb: argparse.ArgumentParser) -> None:
    """Add the output format: a table, or the document behind it."""
    verb.add_argument(
        "-o", "--output", choices=("table", "json", "yaml"), default="table", help="output format (default: table)"
    )


def add_stream_output(verb: argparse.ArgumentParser) -> None:
    """Add the output format of a watch: text, or one JSON document a line for each change."""
    help_text = "output format (default: text); json prints one line for each change"
    verb.add_argument("-o", "--output", choices=("text", "json"), default="text", help=help_text)


def add_job_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of a verb about one job."""
    add_job_name(verb)
    add_output(verb)
    add_manager_login(verb)


def add_job_name(verb: argparse.ArgumentParser) -> None:
    """Add the job's name and namespace."""
    verb.add_argument(
        "job",
        metavar="JOB",
        help="name of a RayJob, RayCluster or RayService, also as rayjob/NAME, raycluster/NAME or rayservice/NAME",
    )
    verb.add_argument("-n", "--namespace", default="", help="namespace of the job (default: the context's)")


def add_wait(verb: argparse.ArgumentParser, end: str) -> None:
    """Add the options of a verb that watches until the `end`."""
    verb.add_argument(
        "--timeout",
        type=parse_duration,
        default=timedelta(0),
        help=f"how long to watch, such as 10m (default: until {end})",
    )
    verb.add_argument("--wait", choices=("true", "false"), default="true", help=f"watch until {end} (default: true)")


def add_worker_cluster(verb: argparse.ArgumentParser) -> None:
    """Add the options of a verb about a WorkerCluster."""
    verb.add_argument("cluster", metavar="WORKERCLUSTER", help="name of the WorkerCluster")
    add_manager_login(verb)


def add_membership_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of a verb that connects to both clusters of a membership."""
    verb.add_argument("name", metavar="NAME", type=parse_cluster_name, help="name of the WorkerCluster")
    verb.add_argument(
        "--worker-context", default="", metavar="CONTEXT", help="kubeconfig context of the worker cluster"
    )
    verb.add_argument(
        "--worker-kubeconfig",
        default="",
        metavar=FILE,
        help="path of the worker cluster's kubeconfig (default: the manager's kubeconfig, with --worker-context)",
    )
    add_manager_login(verb)


def add_token_lifetime(verb: argparse.ArgumentParser) -> None:
    """Add the token's lifetime."""
    verb.add_argument(
        "--expires",
        type=_parse_lifetime,
        default=TOKEN_LIFETIME,
        metavar="DURATION",
        help="lifetime of the token, such as 30d or 12h (default: 90d); the worker cluster may shorten it",
    )


def parse_duration(text: str) -> timedelta:
    """Parse an option such as 30s; argparse prints the error."""
    from adapter.objects import specs  # imports pydantic

    try:
        return specs.parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_cluster_name(text: str) -> str:
    """Parse the name of a WorkerCluster; argparse prints the error."""
    if _CLUSTER_NAME_PATTERN.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} cannot be the name of a WorkerCluster: "
        "use at most 63 lower-case letters, digits, '-' and '.', such as east"
    )


def _parse_lifetime(text: str) -> timedelta:
    from adapter import membership  # imports PyYAML

    days = _DAYS_PATTERN.fullmatch(text)
    lifetime = timedelta(days=int(days[1])) if days else parse_duration(text)
    if not membership.MIN_TOKEN_LIFETIME <= lifetime <= membership.MAX_TOKEN_LIFETIME:
        raise argparse.ArgumentTypeError(f"{text} is not a valid token lifetime: use 10m to 49710d")
    return lifetime
