#!/bin/sh
# Prints a kubeconfig for a worker cluster's account rayspan-worker, made from its token Secret.
# The token goes to standard output alone: never to standard error, never into an argument that `ps` would show.
set -eu

usage() {
    cat <<'END'
Usage: worker-kubeconfig.sh (--kubeconfig FILE | --context NAME) [--server URL]

Prints a kubeconfig with which a manager cluster reaches this worker cluster as the account rayspan-worker
(namespace rayspan-system), which `kubectl apply -k kustomize/overlays/worker` makes. Pipe it into a Secret of the manager:

  hack/worker-kubeconfig.sh --context east |
    kubectl --context manager -n rayspan-system create secret generic east --from-file=kubeconfig=/dev/stdin

  --kubeconfig FILE  an administrator's kubeconfig of the worker cluster
  --context NAME     a context in it, or in your own kubeconfig
  --server URL       the worker's API server as the manager's pods reach it, if that is another address than yours
  --help             this text

Waits up to 30 seconds for the token. KUBECTL names another kubectl than the one on your PATH.
Exit status: 0 printed; 1 the cluster did not give it, with the reason on standard error; 2 wrong arguments.
END
}

fail() { # status sentence
    echo "worker-kubeconfig.sh: $2" >&2
    exit "$1"
}

file='' context='' server=''
while [ $# -gt 0 ]; do
    case $1 in
        --kubeconfig | --context | --server)
            [ $# -ge 2 ] && [ -n "$2" ] || fail 2 "$1 needs a value; see --help."
            case $1 in
                --kubeconfig) file=$2 ;;
                --context) context=$2 ;;
                --server) server=$2 ;;
            esac
            shift 2
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) fail 2 "unknown argument \"$1\"; see --help." ;;
    esac
done
# No silent default: the wrong cluster's account would end up in the manager.
[ -n "$file$context" ] || fail 2 "say which cluster: --kubeconfig FILE or --context NAME; see --help."
[ -z "$file" ] || [ -r "$file" ] || fail 2 "the kubeconfig \"$file\" cannot be read."
kubectl=${KUBECTL:-kubectl}
command -v "$kubectl" >/dev/null || fail 1 "there is no \"$kubectl\": install kubectl, or name it in KUBECTL."

k() {
    "$kubectl" ${file:+--kubeconfig "$file"} ${context:+--context "$context"} --request-timeout=10s "$@"
}

if [ -z "$server" ]; then
    server=$(k config view --minify -o jsonpath='{.clusters[0].cluster.server}') || fail 1 "the kubeconfig names no cluster."
    case $server in
        *://127.* | *://localhost* | *://\[::1\]*)
            echo "worker-kubeconfig.sh: $server is this machine's own address, which the manager's pods cannot reach: give --server." >&2
            ;;
    esac
fi

# One line: the word "secret", the CA certificate (as base64, which is how a kubeconfig wants it) and the token.
template='secret {{with .data}}{{index . "ca.crt"}} {{with .token}}{{base64decode .}}{{end}}{{end}}'
deadline=$(($(date +%s) + 30))
while :; do
    found=$(k -n rayspan-system get secret rayspan-worker --ignore-not-found -o go-template="$template") ||
        fail 1 "the worker cluster did not give its Secret rayspan-worker."
    read -r secret ca token <<END
$found
END
    [ -n "$secret" ] ||
        fail 1 "there is no Secret rayspan-worker in rayspan-system: apply kustomize/overlays/worker to this cluster first."
    [ -z "$token" ] || break # Kubernetes writes both at once
    [ "$(date +%s)" -lt "$deadline" ] ||
        fail 1 "the Secret rayspan-worker got no token in 30 s: is there an account rayspan-worker, and does kube-controller-manager run?"
    sleep 1
done

cat <<END
apiVersion: v1
kind: Config
clusters:
  - name: worker
    cluster:
      server: $server
      certificate-authority-data: $ca
users:
  - name: rayspan-worker
    user:
      token: $token
contexts:
  - name: worker
    context:
      cluster: worker
      user: rayspan-worker
current-context: worker
END
