"""The preStop hook of each worker: drains the Ray node before its container stops.

Runs in the Ray container as `python3 -c` with three arguments: the seconds that it may wait, the seconds that the head
may be unreachable, and the drain reason for Ray. It needs Python 3.8 or later and the Ray of its image, and nothing of
ours. It never fails and never outlasts a shutdown. Observed with Ray 2.60:
- A raylet has the names of its node and its head in its flags. It ends when it is drained and its last lease is over,
  and `ray start` goes on. The command line of a zombie process is empty. The mount namespace identifies this
  container's processes, also where a pod sees its host's processes.
- Reason 2 is DRAIN_NODE_REASON_PREEMPTION: Ray cannot reject such a drain, and counts no retry or restart after it. A
  raylet that gets SIGTERM reports a preemption only after the deadline, so the deadline is the time when the hook stops
  waiting.
- A raylet that gets SIGTERM from the hook unregisters from the head at once. The container's first process may be a
  shell, which does not pass the signal on.
- The head of a relayed network has a name that resolves nowhere else. The pod's sidecar connects to it, and may need
  20 seconds more than an outage of the relay lasts.
- A client of the head may hang for half a minute, hence the thread. The timer bounds everything else.
- After a raylet is killed, `ray start --block` ends at its next check, once a second; the hook waits three seconds.
  When the hook ends, the kubelet sends SIGTERM. If `ray start` still ran then, it would drain a dead node for half a
  minute.

The text below is in each worker pod, so in etcd and in memory a thousand times: it has no types and few comments.
"""

import glob, os, signal, socket, sys, threading, time

seconds, silence, reason = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
end = time.time() + seconds
SIDECAR = "127.0.0.1:29171"
relayed = os.environ.get("grpc_proxy") == "http://" + SIDECAR  # noqa: SIM112  # gRPC reads this variable
silence *= 10 if relayed else 1


def say(text):
    try:
        with open("/proc/1/fd/1", "a") as log:  # what `kubectl logs` shows
            log.write("rayspan: " + text + "\n")
    except OSError:
        pass


def find_raylet():
    namespace = os.readlink("/proc/self/ns/mnt")
    for home in glob.glob("/proc/[0-9]*"):
        try:
            words = open(home + "/cmdline").read().split("\0")
            if words[0].endswith("/raylet") and os.readlink(home + "/ns/mnt") == namespace:
                flags = dict(word.split("=", 1) for word in words if "=" in word)
                return int(os.path.basename(home)), flags["--node_id"], flags["--gcs-address"]
        except (OSError, KeyError, ValueError):
            pass


def head_answers(address):
    host, _, port = (SIDECAR if relayed else address).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), max(0.1, min(3, end - time.time()))) as link:
            if relayed:
                link.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (address, address)).encode())
            return not relayed or link.recv(12)[-3:] == b"200"
    except OSError:
        return False


def drain(process, node, head):
    say("this pod is being stopped; its Ray node takes no more work, and has %g s to finish what it has" % seconds)
    answer = []

    def request_drain():
        try:
            from ray._raylet import GcsClient

            answer[:] = GcsClient(address=head).drain_node(node, 2, reason, int(end * 1000))
        except BaseException as error:
            answer[:] = False, repr(error)

    threading.Thread(target=request_drain, daemon=True).start()
    answered_at = time.time()
    while find_raylet() and time.time() < min(end, answered_at + silence):
        if answer and not answer[0]:
            return say("the Ray node cannot be drained: " + answer[1])
        answered_at = time.time() if head_answers(head) else answered_at
        time.sleep(0.5)
    if not find_raylet():
        return say("the Ray node is drained")
    if time.time() < end:
        say("the head does not answer and cannot fetch what is left on the Ray node, which is killed now")
        os.kill(process, signal.SIGKILL)
        return time.sleep(min(3, end - time.time()))
    say("work is left on the Ray node, which is stopped now")
    os.kill(process, signal.SIGTERM)


guard = threading.Timer(seconds + 1, os._exit, [0])
guard.daemon = True
guard.start()
try:
    target = find_raylet()
    if target:
        drain(*target)
except BaseException as error:
    say("the Ray node cannot be drained: %r" % error)
os._exit(0)
