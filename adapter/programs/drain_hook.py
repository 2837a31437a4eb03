"""How does a Ray node leave without losing work? The preStop hook of each worker, in the Ray container itself.

Run as `python3 -c` with three words: for how many seconds it may wait, for how many the head may be silent, and the reason that
Ray is told. Needs Python 3.8 or later and the Ray of its image, and nothing else: nothing of ours is there. It never fails and
never outlasts a shutdown. Found out about Ray 2.60:
- A raylet names its node and its head in its own flags, and ends when it is drained and its last lease is over; `ray start`
  stays. Of a dead process that nobody has reaped yet the command line is empty. The mount namespace tells this container's
  processes from all others, even where a pod sees those of its host.
- 2 is DRAIN_NODE_REASON_PREEMPTION, which Ray cannot refuse and after which no retry or restart is counted. A raylet that is
  told to stop (SIGTERM) calls it a preemption only after the deadline, so the deadline is when the hook stops waiting.
- Who is stopped by SIGTERM from here takes leave of the head at once, even where the container's first process is a shell,
  which does not pass the signal on.
- A client of the head may hang for half a minute, hence the thread, and the timer for what else may.
- A raylet that is killed, and not stopped, makes `ray start --block` end when it looks next, once a second: the hook gives it
  three. The SIGTERM of the kubelet, which comes when the hook ends, would have it drain a node that is gone for half a minute.

All below stands in each worker pod, so in an etcd and in memory a thousand times: hence no types and few comments.
"""

import glob, os, signal, socket, sys, threading, time

seconds, silence, reason = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
end = time.time() + seconds


def say(text):
    try:
        with open("/proc/1/fd/1", "a") as log:  # what `kubectl logs` shows
            log.write("rayspan: " + text + "\n")
    except OSError:
        pass


def find_raylet():
    here = os.readlink("/proc/self/ns/mnt")
    for home in glob.glob("/proc/[0-9]*"):
        try:
            words = open(home + "/cmdline").read().split("\0")
            if words[0].endswith("/raylet") and os.readlink(home + "/ns/mnt") == here:
                flags = dict(word.split("=", 1) for word in words if "=" in word)
                return int(os.path.basename(home)), flags["--node_id"], flags["--gcs-address"]
        except (OSError, KeyError, ValueError):
            pass


def head_answers(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 3).close()
        return True
    except OSError:
        return False


def drain(process, node, head):
    say("this pod is being stopped; its Ray node takes no more work, and has %g s to finish what it has" % seconds)
    answer = []

    def ask():
        try:
            from ray._raylet import GcsClient

            answer[:] = GcsClient(address=head).drain_node(node, 2, reason, int(end * 1000))
        except BaseException as error:
            answer[:] = False, repr(error)

    threading.Thread(target=ask, daemon=True).start()
    heard = time.time()
    while find_raylet() and time.time() < min(end, heard + silence):
        if answer and not answer[0]:
            return say("the Ray node cannot be drained: " + answer[1])
        heard = time.time() if head_answers(head) else heard
        time.sleep(0.5)
    if not find_raylet():
        return say("the Ray node is drained")
    if time.time() < end:
        say("the head does not answer, so nobody can take what is left on the Ray node, which is killed now")
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
