"""The relay's bench judges the worst way between nodes, and reads what sidecars use from kubelets."""

from hack.bench.container_usage import ContainerUsage, parse_usage
from hack.bench.relay import Crossings, RelayCost, relay_cost, relay_values

USAGE = """\
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="rayspan-relay",namespace="default",pod="head"} 2.5 1796079058000
container_cpu_usage_seconds_total{container="rayspan-relay",namespace="other",pod="head"} 9 1796079058000
container_cpu_usage_seconds_total{container="begins",namespace="default",pod="head"} 0 1796079058000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="rayspan-relay",namespace="default",pod="head"} 6.5e+06 1796079058900
"""


def test_the_usage_of_a_namespace_is_read_with_its_time() -> None:
    (usage,) = parse_usage(USAGE, "default").items()
    assert usage == (("head", "rayspan-relay"), ContainerUsage(at=1796079058.0, cpu_s=2.5, memory_mb=6.5))


def test_the_worst_way_is_judged() -> None:
    flat = Crossings({"manager-east": 1.0, "east-west": 2.0}, {"manager-east": 400.0, "east-west": 800.0}, 1.0)
    relayed = Crossings({"manager-east": 3.5, "east-west": 3.0}, {"manager-east": 300.0, "east-west": 200.0}, 1.0)
    values = relay_values(flat, relayed, RelayCost(9.0, 12.0, {"rayspan-relay": 4.0, "router": 2.0}))
    assert (values["rate_ratio"], values["call_more_ms"], values["cpu_s_gb"]) == (0.25, 2.5, 6.0)
    assert (values["mb_s"], values["flat_mb_s"]) == (200.0, 400.0)


def test_the_cost_is_that_of_the_dearest_sidecar_and_of_all_containers_together() -> None:
    before = {_key(name): ContainerUsage(at=100.0, cpu_s=1.0, memory_mb=5.0) for name in ("head", "worker", "ended")}
    idle = {_key("head"): ContainerUsage(116.0, 1.25, 20.0), _key("worker"): ContainerUsage(108.0, 1.25, 6.0)}
    after = {key: ContainerUsage(200.0, usage.cpu_s + 3.0, 50.0) for key, usage in idle.items()}
    cost = relay_cost(before, idle, {**after, ROUTER: ContainerUsage(200.0, 1.0, 9.0)}, gb=2.0)
    assert (cost.sidecar_mb, cost.sidecar_mcpu) == (20.0, 31.25)
    assert {name: seconds for name, seconds in cost.cpu_s_gb.items() if seconds} == {
        "rayspan-relay": 3.0,
        "router": 0.5,
    }


def test_a_job_without_a_relay_costs_nothing() -> None:
    assert relay_cost({}, {}, {}, gb=1.0) == RelayCost()


ROUTER = ("manager", "router-1", "router")


def _key(pod: str) -> tuple[str, str, str]:
    return "east", pod, "rayspan-relay"
