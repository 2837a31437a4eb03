"""For each alert, series on which it fires and similar ones on which it does not, in promtool's format.

One sample a minute. Each case stays clear of the bounds, which are the rules' own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from adapter.objects.unstructured import Raw

Series = Mapping[str, str]  # in promtool's notation: "0+2x20" is 0, 2, 4 and so on, with twenty samples after the first


@dataclass(frozen=True)
class Case:
    """One alert at one time: series on which it fires and series on which it does not."""

    at: str
    fires: Series
    silent: Series
    labels: Mapping[str, str] = field(default_factory=dict)  # labels of the firing alert beside its severity


def _buckets(metric: str, labels: str, **counts: str) -> Series:
    """A histogram by the upper bounds of its buckets; `inf` is the last."""
    bounds = {"inf": "+Inf"}
    more = f"{labels}," if labels else ""
    return {f'{metric}_bucket{{{more}le="{bounds.get(one, one[1:])}"}}': values for one, values in counts.items()}


_LOST, _ORPHANS = "rayspan_workers_lost_total", "rayspan_orphans_deleted_total"
_REQUESTS, _WAITING = "rayspan_api_requests_total", 'rayspan_placements{state="Waiting"}'
_TOKEN = "rayspan_cluster_token_expiry_timestamp_seconds"
_WEST = {"cluster": "west"}
_DISPATCH = ("rayspan_dispatch_duration_seconds", 'cluster="west",stage="created"')
_DAY = 1440

CASES: Mapping[str, Case] = {
    "RayspanNoLeader": Case(
        "5m",
        fires={'rayspan_leader{instance="a"}': "1 0x9", 'rayspan_leader{instance="b"}': "0x10"},
        silent={'rayspan_leader{instance="a"}': "1 0x9", 'rayspan_leader{instance="b"}': "0 1x9"},
    ),
    "RayspanClusterNotConnected": Case(
        "12m",
        fires={
            'rayspan_cluster_connected{cluster="west"}': "0x15",
            'rayspan_cluster_connected{cluster="east"}': "1x15",
        },
        silent={'rayspan_cluster_connected{cluster="west"}': "0x7 1 0x7"},  # the connection comes and goes
        labels=_WEST,
    ),
    "RayspanTokenExpiring": Case(  # promtool's clock begins at 0
        f"{2 * _DAY}m",
        fires={
            # 13 days are left: the renewal has stopped
            f'{_TOKEN}{{cluster="west"}}': f"{14 * 86400}x600 {15 * 86400}x{3 * _DAY}",
            f'{_TOKEN}{{cluster="east"}}': f"{90 * 86400}x{3 * _DAY}",
        },
        silent={
            f'{_TOKEN}{{cluster="west"}}': f"{17 * 86400}x{3 * _DAY}",
            # a token of two days that is renewed daily
            f'{_TOKEN}{{cluster="east"}}': f"{2 * 86400}x{_DAY} {3 * 86400}x{2 * _DAY}",
        },
        labels=_WEST,
    ),
    "RayspanClaimConflict": Case(
        "4m",
        fires={'rayspan_cluster_connected_reason{cluster="west",reason="ClaimConflict"}': "1x5"},
        silent={'rayspan_cluster_connected_reason{cluster="west",reason="Unreachable"}': "1x5"},
        labels=_WEST,
    ),
    "RayspanWorkersLost": Case(
        "12m",
        fires={f'{_LOST}{{cluster="west",reason="WorkerLost"}}': "0x10 1x5"},
        silent={f'{_LOST}{{cluster="west",reason="RemotePodGone"}}': "0x10 1x5"},  # drained, or preempted
        labels={**_WEST, "reason": "WorkerLost"},
    ),
    "RayspanWorkersPending": Case(
        "12m",
        fires={'rayspan_pods{cluster="west",phase="Pending"}': "3x15"},
        silent={'rayspan_pods{phase="Pending"}': "3x15"},  # waiting for capacity, without a cluster
        labels=_WEST,
    ),
    "RayspanSharesNotAdmitted": Case(
        "80m",
        fires={'rayspan_spills_total{cluster="west"}': "0+1x90", _WAITING: "2x90"},
        silent={
            'rayspan_spills_total{cluster="west"}': "0+1x90",
            _WAITING: "0x90",
            'rayspan_placements{state="Placed"}': "2x90",
        },
        labels=_WEST,
    ),
    "RayspanGangsNotAdmitted": Case(
        "15m",
        fires={"rayspan_gang_rollbacks_total": "0+2x20"},
        silent={"rayspan_gang_rollbacks_total": "0x9 5x10"},
    ),
    "RayspanDispatchSlow": Case(
        "25m",
        fires=_buckets(*_DISPATCH, _30="0x30", _60="0+5x30", inf="0+5x30"),
        silent=_buckets(*_DISPATCH, _1="0+5x30", _30="0+5x30", inf="0+5x30"),
        labels=_WEST,
    ),
    "RayspanPlansSlow": Case(
        "25m",
        fires=_buckets("rayspan_plan_duration_seconds", "", _3="0x30", _10="0+1x30", inf="0+1x30"),
        silent=_buckets("rayspan_plan_duration_seconds", "", _1="0+1x30", _3="0+1x30", inf="0+1x30"),
    ),
    "RayspanOrphansDeleted": Case(
        "15m",
        fires={f'{_ORPHANS}{{cluster="west",reason="no-share"}}': "0x10 1x10"},
        silent={f'{_ORPHANS}{{cluster="west",reason="pod-gone"}}': "0+1x20"},  # as every worker ends
        labels={**_WEST, "reason": "no-share"},
    ),
    "RayspanRequestsFail": Case(
        "20m",
        fires={f'{_REQUESTS}{{cluster="west",verb="get",kind="pods",code="403"}}': "0+30x30"},
        silent={
            f'{_REQUESTS}{{cluster="west",verb="get",kind="pods",code="404"}}': "0+30x30",
            f'{_REQUESTS}{{verb="list",kind="services",code="403"}}': "0+30x30",  # an optional right
        },
        labels=_WEST,
    ),
    "RayspanMalformedObjects": Case(
        "8m",
        fires={'rayspan_malformed_objects_total{cluster="west",kind="pods"}': "0x5 3x10"},
        silent={'rayspan_malformed_objects_total{cluster="west",kind="pods"}': "3x20"},
        labels={**_WEST, "kind": "pods"},
    ),
    "RayspanTaskFailing": Case(
        "25m",
        fires={'rayspan_task_failures_total{task="reconcile"}': "0+1x30"},
        silent={'rayspan_task_failures_total{task="reconcile"}': "0x15 2x20"},
        labels={"task": "reconcile"},
    ),
    "RayspanTasksLeak": Case(
        f"{_DAY + 90}m",
        fires={'rayspan_tasks{instance="a",coroutine="follow"}': f"20x{_DAY} 50x120"},
        silent={'rayspan_tasks{instance="a",coroutine="follow"}': f"20x{_DAY} 30x120"},
        labels={"instance": "a"},
    ),
}


def tests(rules: Iterator[Raw]) -> list[Raw]:
    """Two tests for each rule, as `promtool test rules` reads them."""
    return [made for rule in rules for made in _both(rule, CASES[rule["alert"]])]


def _both(rule: Raw, case: Case) -> Iterator[Raw]:
    told = {"exp_labels": {**rule["labels"], **case.labels}, "exp_annotations": rule["annotations"]}
    for name, series, found in (("fires", case.fires, [told]), ("is silent", case.silent, [])):
        asked = {"eval_time": case.at, "alertname": rule["alert"], "exp_alerts": found}
        given = [{"series": one, "values": values} for one, values in series.items()]
        yield {"name": f"{rule['alert']} {name}", "interval": "1m", "input_series": given, "alert_rule_test": [asked]}
