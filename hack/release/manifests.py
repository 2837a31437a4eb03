"""Writes a release's files for `kubectl apply --server-side -f`: one for each role of a cluster and each component.

Each file is complete: it needs no other file and no checkout. The alerts and the dashboard of the component monitoring
are separate files as well, for a Prometheus without the operator or a Grafana without the sidecar.
"""

import textwrap
from collections.abc import Mapping

import yaml

from hack.release import overlays
from hack.release.overlays import Part, Raw

RULES, DASHBOARD = "prometheus-rules.yaml", "grafana-dashboard.json"

PARTS = (
    overlays.MANAGER,
    overlays.MANAGER_WEBHOOK,
    overlays.MANAGER_METRICS_TLS,
    overlays.WORKER,
    overlays.WORKER_LOGS,
    overlays.WORKER_EXEC,
    *overlays.COMPONENTS,
)


def files(version: str, image: str, relay_image: str = "") -> Mapping[str, str]:
    """Name → content of each file."""
    applied = {
        file_of(part): _head(part, version) + dumped(overlays.objects(part, image, relay_image)) for part in PARTS
    }
    return {**applied, **_loaded(version, overlays.objects(overlays.MONITORING, image))}


def file_of(part: Part) -> str:
    """How the file of a part is called: components are told from roles by their name."""
    return f"component-{part.name}.yaml" if part in overlays.COMPONENTS else f"{part.name}.yaml"


def _loaded(version: str, objects: list[Raw]) -> Mapping[str, str]:
    """Files that are not applied to a cluster, but loaded into Prometheus and Grafana."""
    of_kind = {each["kind"]: each for each in objects}
    rules = {"groups": of_kind["PrometheusRule"]["spec"]["groups"]}
    (dashboard,) = of_kind["ConfigMap"]["data"].values()
    return {
        RULES: f"# Rayspan {version}. Alerts, a file of Prometheus' rule_files.\n{dumped([rules])}",
        DASHBOARD: dashboard,
    }


def dumped(objects: list[Raw]) -> str:
    """Objects as documents; long sentences stay on one line, as in the manifests, and nothing is an alias."""
    return "---\n".join(yaml.dump(each, Dumper=_Plain, sort_keys=False, width=10_000) for each in objects)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def _head(part: Part, version: str) -> str:
    lines = [f"Rayspan {version}. {part.says}", f"  kubectl apply --server-side -f {file_of(part)}"]
    return "".join(
        f"{line}\n" for one in lines for line in textwrap.wrap(one, 118, initial_indent="# ", subsequent_indent="# ")
    )
