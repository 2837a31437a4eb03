"""The program of the job that times what crosses between Ray nodes. It runs in the head; numpy is in Ray's image."""

from typing import Final

PROGRAM: Final = '''
import argparse, json, statistics, sys, time
import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

MB, REPEATS, CALLS = 256, 3, 100


@ray.remote(num_cpus=0)
class End:
    """One end of a way, on one node."""

    def ping(self):
        return None

    def put(self):
        return [ray.put(np.ones(MB * 131072))]

    def rate(self, refs):
        began = time.perf_counter()
        size = ray.get(refs[0]).nbytes
        return size / 1e6 / (time.perf_counter() - began)

    def call_ms(self, other):
        times = []
        for _ in range(CALLS):
            began = time.perf_counter()
            ray.get(other.ping.remote())
            times.append(1000 * (time.perf_counter() - began))
        return statistics.median(times)


def nodes():
    return {n["Labels"].get("rayspan.dev/cluster", "manager"): n["NodeID"] for n in ray.nodes() if n["Alive"]}


def rate(source, target):
    refs = ray.get(source.put.remote(), timeout=120)
    return ray.get(target.rate.remote(refs), timeout=300)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int)
    parser.add_argument("--idle", type=float, required=True)
    args = parser.parse_args()
    ray.init()
    deadline = time.monotonic() + 180
    while len(nodes()) < args.workers + 1:
        if time.monotonic() > deadline:
            sys.exit("Not all workers joined.")
        time.sleep(0.2)
    ends = {c: End.options(scheduling_strategy=On(n, soft=False)).remote() for c, n in nodes().items()}
    ray.get([end.ping.remote() for end in ends.values()], timeout=180)
    print("RAYSPAN-IDLE", "{}", flush=True)
    time.sleep(args.idle)
    ways = [(a, b) for a in ends for b in ends if a != b]
    result = {
        "call_ms": {f"{a}-{b}": ray.get(ends[a].call_ms.remote(ends[b]), timeout=180) for a, b in ways},
        "mb_s": {f"{a}-{b}": statistics.median(rate(ends[a], ends[b]) for _ in range(REPEATS)) for a, b in ways},
    }
    result["gb"] = len(ways) * REPEATS * MB * 131072 * 8 / 1e9
    print("RAYSPAN-RESULT", json.dumps(result), flush=True)
    time.sleep(args.idle)


main()
'''
