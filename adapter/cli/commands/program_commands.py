"""Verbs about the program: version and completion, and the hidden ones that Deployments and a Job run."""

import argparse
from types import ModuleType
from typing import Final

from adapter import __version__
from adapter.cli import completion
from adapter.cli.commands.options import EXIT_ERROR, EXIT_OK, VerbParsers, add_manager_login, add_output, add_verb
from adapter.cli.terminal import print_line, print_note, print_text

LOG_FORMATS: Final = ("text", "json")  # of shell/log_formatters.py, which is slow to import

_VERSION_DESCRIPTION = """\
Show the version of this program and, with --context or --kubeconfig, that of the controller in the manager cluster.
"""
_VERSION_EPILOG = """\
example:
  kubectl rayspan version --context manager
  Client: 0.1.0
  Controller: 0.1.0

With `-o json` these are `clientVersion`, `controllerVersion` and, if only the image is known, `controllerImage`;
unknown values are null. The controller's version needs the right to ask for plans (Role rayspan-plan). Without it, the
controller's image is shown, if you may read its Deployment.

exit code: 0 the versions are shown, 2 the command line is wrong, 1 the controller's version cannot be read
"""
_COMPLETION_DESCRIPTION = """\
Print a script that makes a shell complete the commands and options of `rayspan`.
"""
_COMPLETION_EPILOG = """\
  bash   source <(rayspan completion bash)       in ~/.bashrc
  zsh    source <(rayspan completion zsh)        in ~/.zshrc, after compinit
  fish   rayspan completion fish | source        in ~/.config/fish/config.fish

`kubectl rayspan` is completed by kubectl's own completion, from kubectl 1.26 on: it runs the program
kubectl_complete-rayspan, which is installed beside this one.
"""


def add(verbs: VerbParsers) -> None:
    """Add the verbs that people type."""
    verb = add_verb(
        verbs,
        "version",
        _run_version,
        "show the versions of this program and of the controller",
        _VERSION_DESCRIPTION,
        _VERSION_EPILOG,
    )
    add_output(verb)
    add_manager_login(verb)
    summary = "print a shell completion script"
    verb = add_verb(verbs, "completion", _run_completion, summary, _COMPLETION_DESCRIPTION, _COMPLETION_EPILOG)
    verb.add_argument("shell", choices=tuple(completion.SCRIPTS), help="the shell that runs the script")


def add_controller(verbs: VerbParsers) -> None:
    """Add the verb of the controller's Deployment."""
    verb = verbs.add_parser("controller", description="Run the controller, as the Deployment does.")
    verb.add_argument("--port", type=int, default=8081, help="port of /healthz, /readyz and /metrics (default 8081)")
    verb.add_argument("--plan-port", type=int, default=8082, help="port of the plan server (default 8082)")
    verb.add_argument(
        "--metrics-certificate",
        metavar="FOLDER",
        help="folder of tls.crt and tls.key: serve /metrics over TLS, and not on --port",
    )
    verb.add_argument("--metrics-port", type=int, default=8443, help="port of /metrics over TLS (default 8443)")
    verb.add_argument("--verbose", action="store_true", help="log every reconciliation")
    _add_log_format(verb)
    verb.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write only while holding the Lease, so that several replicas may run (default); without it, run only one",
    )
    verb.set_defaults(run=_run_controller)


def add_access(verbs: VerbParsers) -> None:
    """Add the verb of the Deployment of the component worker-access."""
    verb = verbs.add_parser("access", description="Run the access server, as the component worker-access does.")
    verb.add_argument("--port", type=int, default=8443, help="port of the access server (default 8443)")
    verb.add_argument("--health-port", type=int, default=8081, help="port of /healthz and /metrics (default 8081)")
    _add_log_format(verb)
    verb.set_defaults(run=_run_access)


def add_admission(verbs: VerbParsers) -> None:
    """Add the verb of the Deployment of the component admission."""
    verb = verbs.add_parser(
        "admission", description="Serve the webhooks of the component admission, as its Deployment does."
    )
    verb.add_argument("--port", type=int, default=9443, help="port of the webhooks (default 9443)")
    verb.add_argument(
        "--health-port", type=int, default=8081, help="port of /healthz, /readyz and /metrics (default 8081)"
    )
    verb.add_argument(
        "--certificate",
        metavar="FOLDER",
        default="/certificate",
        help="folder of tls.crt and tls.key (default /certificate)",
    )
    _add_log_format(verb)
    verb.set_defaults(run=_run_admission)


def add_admission_certificate(verbs: VerbParsers) -> None:
    """Add the verb of the Job of the component admission."""
    verb = verbs.add_parser(
        "admission-certificate",
        description="Create the webhooks' certificate, as the Job of the component admission does.",
    )
    _add_log_format(verb)
    verb.set_defaults(run=_run_admission_certificate)


HIDDEN_VERBS = {
    "controller": add_controller,
    "access": add_access,
    "admission": add_admission,
    "admission-certificate": add_admission_certificate,
}
"""Verbs that Deployments and a Job run, by name: the function that adds the verb."""


def _add_log_format(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default=LOG_FORMATS[0],
        help="log format: lines of text (default), or one JSON object per line",
    )


def _run_version(args: argparse.Namespace) -> int:
    if args.output == "table":
        print_line(f"Client: {__version__}")
        if not (args.context or args.kubeconfig):
            return EXIT_OK
    from adapter.cli import version

    return version.main(args)


def _run_completion(args: argparse.Namespace) -> int:
    print_text(completion.SCRIPTS[args.shell])
    return EXIT_OK


def _run_access(args: argparse.Namespace) -> int:
    from adapter.cli import access

    return access.main(args.port, args.health_port, log_format=args.log_format)


def _run_controller(args: argparse.Namespace) -> int:
    from pathlib import Path

    try:
        from adapter.cli import controller
    except ModuleNotFoundError as error:
        print_note(f"The controller needs {error.name}, which the plugin does not: install rayspan[controller].")
        return EXIT_ERROR

    return controller.main(
        args.port,
        args.plan_port,
        verbose=args.verbose,
        leader_elect=args.leader_elect,
        log_format=args.log_format,
        metrics=(Path(args.metrics_certificate), args.metrics_port) if args.metrics_certificate else None,
    )


def _run_admission(args: argparse.Namespace) -> int:
    from pathlib import Path

    program = _import_admission()
    if program is None:
        return EXIT_ERROR
    code: int = program.main(args.port, args.health_port, Path(args.certificate), log_format=args.log_format)
    return code


def _run_admission_certificate(args: argparse.Namespace) -> int:
    program = _import_admission()
    if program is None:
        return EXIT_ERROR
    code: int = program.make_certificate(log_format=args.log_format)
    return code


def _import_admission() -> ModuleType | None:
    try:
        from adapter.cli import admission
    except ModuleNotFoundError as error:
        print_note(f"The webhooks need {error.name}, which the plugin does not: install rayspan[controller,admission].")
        return None
    return admission
