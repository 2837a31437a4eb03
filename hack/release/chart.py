"""Makes the Helm chart: the manifests of a release as templates, with only the values of values.yaml left open.

The objects of the overlay are written as they are. A mark is put into the object where a value goes, and in the text
its line becomes a line of Helm's. Where an object also exists with metrics over TLS, each line that only one of the two
has is put under that switch. Any other text of a manifest that looks like a template is rejected, not escaped.
"""

import copy
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

import yaml

from adapter import names
from hack.lab.base.progress import LabError
from hack.lab.base.versions import OTHERS
from hack.release import overlays, values
from hack.release.manifests import dumped, file_of
from hack.release.overlays import Raw

NAME = "rayspan"
_OWN = f"{values.MANAGER}.manager"
_MARK = re.compile(r"^( *)(- )?(?:(\w+): )?'?@(\w+) ([\w.]+)@'?$", re.MULTILINE)
_IMAGE = f'"{{{{ .Values.{_OWN}.image.repository }}}}:{{{{ .Values.{_OWN}.image.tag | default .Chart.AppVersion }}}}"'
_RELAY_IMAGE = (
    f"{{{{ .Values.{values.RELAY}.image.repository }}}}:"
    f"{{{{ .Values.{values.RELAY}.image.tag | default .Chart.AppVersion }}}}"
)
_GROUPS = {  # kinds of the manager's objects by their file
    "crds": ("CustomResourceDefinition",),
    "rights": ("Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"),
    "controller": ("Service", "Deployment", "PodDisruptionBudget"),
    "policies": (
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ),
}
_POLICIES = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
_FIRST = "1.36.0"  # the first that serves them as v1
_NEEDS = "needs Kubernetes 1.36, the first that serves its MutatingAdmissionPolicy"
_GATED = "enableAdmissionGate"
_UNGATED = (
    f"The gate of worker pods {_NEEDS}: for an older cluster set enableAdmission and {_GATED}, "
    "which is a webhook (docs/admission.md)"
)
_WRONG = {  # of a component: when it must not be installed, and the message then
    "multikueue": (
        f"not .Values.{values.MULTIKUEUE_SECRETS}",
        f"enableMultiKueue needs {values.MULTIKUEUE_SECRETS}: name the Secrets in {names.KUEUE_NAMESPACE} "
        "that your MultiKueueClusters refer to",
    ),
    "local-remote": (
        ".Values.enableSharedFlavor",
        "enableSharedFlavor and enableLocalRemote are two layouts of the queue ray: choose one",
    ),
    "admission-gate": (
        "not .Values.enableAdmission",
        f"{_GATED} needs enableAdmission, whose pods answer for it",
    ),
}
_NOTES = """\
Rayspan {{ .Chart.AppVersion }} is installed in the namespace rayspan-system. Next, each worker cluster joins:
  kubectl rayspan join NAME --worker-context CONTEXT
then write a DispatchPolicy, and put an AdmissionCheck into a ClusterQueue.
"""


def files(version: str, repository: str, tag: str = "", relay_tag: str = "") -> Mapping[str, str]:
    """Path in the chart → content; the tags are defaults for those of the images, where not the version alone."""
    manager = overlays.objects(overlays.MANAGER, overlays.DEVELOPED)
    (deployment,) = (each for each in manager if each["kind"] == "Deployment")
    table = values.values(deployment, repository, tag, relay_tag)
    return {
        "Chart.yaml": _chart(version),
        "values.yaml": values.file(table),
        "values.schema.json": values.schema(table),
        "templates/NOTES.txt": _NOTES,
        **{f"templates/{group}.yaml": _template(chosen) for group, chosen in _grouped(manager).items()},
        **{f"templates/{file_of(part)}": _component(part) for part in overlays.COMPONENTS},
    }


def _chart(version: str) -> str:
    """The chart's own version has no v, as Helm asks; the image's has one, as the tag of the release."""
    head = {
        "apiVersion": "v2",
        "name": NAME,
        "description": "Spans one RayCluster over many Kubernetes clusters, "
        "with every cluster's own Kueue deciding on quota",
        "type": "application",
        "version": version.removeprefix("v"),
        "appVersion": version,
        # The oldest that was run, with the webhook for a gate. The suffix lets versions with a suffix pass, as clouds
        # have them.
        "kubeVersion": f">={min(map(_minor, OTHERS['kubernetes']))}.0-0",
    }
    return yaml.safe_dump(head, sort_keys=False, width=10_000)


def _minor(version: str) -> str:
    return version.removeprefix("v").rpartition(".")[0]


def _grouped(manager: Sequence[Raw]) -> dict[str, list[Raw]]:
    group_of = {kind: group for group, kinds in _GROUPS.items() for kind in kinds}
    grouped: dict[str, list[Raw]] = {group: [] for group in _GROUPS}
    for each in manager:
        if each["kind"] not in group_of:
            raise LabError(
                f"The chart has no file for {each['kind']} {each['metadata']['name']}: add the kind to _GROUPS."
            )
        grouped[group_of[each["kind"]]].append(each)
    return grouped


def _template(objects: Sequence[Raw]) -> str:
    return "---\n".join(map(_one, objects))


def _one(raw: Raw) -> str:
    text = _written(raw)
    if raw["kind"] in _POLICIES and raw["metadata"]["name"] == names.GATE_POLICY:
        return f"{{{{- if not .Values.{_GATED} }}}}\n{_too_old(_UNGATED)}{text}{{{{- end }}}}\n"
    if raw["kind"] != "Namespace":
        return text
    # If Helm made the release's namespace, it exists already, and Helm would not adopt it.
    return f'{{{{- if ne .Release.Namespace "{names.SYSTEM_NAMESPACE}" }}}}\n{text}{{{{- end }}}}\n'


def _opened(raw: Raw) -> Raw:
    """An object with marks where values go."""
    opened = copy.deepcopy(raw)
    if raw["kind"] in ("Deployment", "Job"):
        _run_as_chosen(opened["spec"]["template"]["spec"])
    if (raw["kind"], raw["metadata"]["name"]) == ("Deployment", names.DEPLOYMENT):
        _run_the_controller_as_chosen(opened["spec"])
    if (raw["kind"], raw["metadata"]["name"]) == ("ServiceAccount", names.CONTROLLER_ACCOUNT):
        opened["metadata"]["annotations"] = f"@optional {values.MANAGER}.serviceAccount.annotations@"
    if (raw["kind"], raw["metadata"]["name"]) == ("Service", values.RELAY_SERVICE):
        _open_the_port_as_chosen(opened)
    return opened


def _component(part: overlays.Part) -> str:
    found = overlays.objects(part, overlays.DEVELOPED)
    text = _template(_secrets_open(found) if part.name == "multikueue" else found)
    text = _account_open(text) if part.name == "rayservice" else text
    text = text.replace(overlays.RELAY_DEVELOPED, _RELAY_IMAGE)  # of containers, and in what policies say
    return f"{{{{- if .Values.{values.switch_of(part)} }}}}\n{_refusal(part)}{text}{{{{- end }}}}\n"


def _refusal(part: overlays.Part) -> str:
    """Invalid combinations of values. A Role that names no Secret would cover all of them."""
    own, (wrong, said) = values.switch_of(part), _WRONG.get(part.name, ("", ""))
    refused = f'{{{{- if {wrong} }}}}\n{{{{- fail "{said}" }}}}\n{{{{- end }}}}\n' if wrong else ""
    mutates = any(each["kind"] in _POLICIES for each in overlays.objects(part, overlays.DEVELOPED))
    return refused + (_too_old(f"{own} {_NEEDS}: leave it out, or upgrade the cluster") if mutates else "")


def _too_old(said: str) -> str:
    """Before 1.36 the API server takes no MutatingAdmissionPolicy of the version v1."""
    older = f'semverCompare "<{_FIRST}-0" .Capabilities.KubeVersion.Version'
    return f'{{{{- if {older} }}}}\n{{{{- fail "{said}" }}}}\n{{{{- end }}}}\n'


def _secrets_open(objects: Sequence[Raw]) -> list[Raw]:
    opened = copy.deepcopy([*objects])
    for each in opened:
        for rule in each.get("rules", ()):
            if rule["resources"] == ["secrets"]:
                rule["resourceNames"] = f"@block {values.MULTIKUEUE_SECRETS}@"
    return opened


def _account_open(text: str) -> str:
    """The account of KubeRay's operator is a part of an expression, so no line of its own."""
    before, name, after = text.partition(f":{values.KUBERAY}$')")
    if not name or values.KUBERAY in before + after:
        raise LabError(f"The component rayservice does not name {values.KUBERAY} once: mend what opens it for a value.")
    return f"{before}:{{{{ .Values.{values.KUBERAY_ACCOUNT} }}}}$'){after}"


def _run_as_chosen(pod: Raw) -> None:
    """Common to all our pods."""
    for key in ("imagePullSecrets", "nodeSelector", "tolerations"):
        pod[key] = f"@optional {values.MANAGER}.{key}@"
    (container,) = pod["containers"]
    container["imagePullPolicy"] = f"@scalar {_OWN}.image.pullPolicy@"
    if container["image"] == overlays.DEVELOPED:
        container["args"] += [f"@json {_OWN}.logFormat@"]
        container["image"] = f"@image {_OWN}.image@"


def _run_the_controller_as_chosen(spec: Raw) -> None:
    spec["replicas"] = f"@scalar {values.MANAGER}.replicas@"
    spec["template"]["metadata"]["annotations"] = f"@optional {_OWN}.podAnnotations@"
    pod = spec["template"]["spec"]
    pod["affinity"] = f"@optional {values.MANAGER}.affinity@"
    pod["priorityClassName"] = f"@optionalscalar {_OWN}.priorityClassName@"
    (container,) = pod["containers"]
    container["args"].insert(1, f"@verbose {_OWN}.logLevel@")
    container["resources"] = f"@block {_OWN}.resources@"


def _open_the_port_as_chosen(service: Raw) -> None:
    own = f"{values.RELAY}.service"
    service["metadata"]["annotations"] = f"@optional {own}.annotations@"
    service["spec"]["type"] = f"@scalar {own}.type@"
    (port,) = service["spec"]["ports"]
    port["nodePort"] = f"@scalar {own}.nodePort@"


def _written(raw: Raw) -> str:
    plain, secured = (dumped([_opened(each)]) for each in (raw, _secured().get(_called(raw), raw)))
    if "{{" in plain + secured:
        raise LabError(
            f"{raw['kind']} {raw['metadata']['name']} has two braces, which Helm would read: write it without."
        )
    return _MARK.sub(_line, "".join(_either(plain.splitlines(keepends=True), secured.splitlines(keepends=True))))


@functools.cache
def _secured() -> Mapping[tuple[str, ...], Raw]:
    """The objects with metrics over TLS, by what they are called."""
    return {_called(each): each for each in overlays.objects(overlays.MANAGER_METRICS_TLS, overlays.DEVELOPED)}


def _called(raw: Raw) -> tuple[str, ...]:
    return raw["kind"], raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


def _either(plain: Sequence[str], secured: Sequence[str]) -> Iterator[str]:
    """What both have, once, and what only one of them has, under its switch.

    Marks are still lines, so no block is cut.
    """
    for what, begin, end, and_begin, and_end in SequenceMatcher(None, plain, secured, autojunk=False).get_opcodes():
        if what == "equal":
            yield from plain[begin:end]
            continue
        yield from _under(f"not .Values.{values.METRICS_TLS}", plain[begin:end])
        yield from _under(f".Values.{values.METRICS_TLS}", secured[and_begin:and_end])


def _under(condition: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        indent = lines[0].removesuffix(lines[0].lstrip())
        yield f"{indent}{{{{- if {condition} }}}}\n"
        yield from lines
        yield f"{indent}{{{{- end }}}}\n"


def _line(mark: re.Match[str]) -> str:
    """A line with a mark, as Helm's lines. Each begins with the indent, which `{{-` removes where it is not YAML's."""
    indent, dash, key, form, value = mark[1], mark[2] or "", mark[3], mark[4], f".Values.{mark[5]}"
    into = len(indent) + len(dash) + 2
    head = f"{indent}{dash}{key}:"
    forms = {
        "scalar": f"{head} {{{{ {value} }}}}",
        "image": f"{head} {_IMAGE}",
        "block": f"{head}\n{indent}  {{{{- toYaml {value} | nindent {into} }}}}",
        "optional": f"{indent}{{{{- with {value} }}}}\n{head}\n{indent}  {{{{- toYaml . | nindent {into} }}}}\n"
        f"{indent}{{{{- end }}}}",
        "optionalscalar": f"{indent}{{{{- with {value} }}}}\n{head} {{{{ . | quote }}}}\n{indent}{{{{- end }}}}",
        "verbose": f'{indent}{{{{- if eq {value} "debug" }}}}\n{indent}- --verbose\n{indent}{{{{- end }}}}',
        "json": f'{indent}{{{{- if eq {value} "json" }}}}\n{indent}- --log-format=json\n{indent}{{{{- end }}}}',
    }
    return forms[form]
