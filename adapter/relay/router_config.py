"""The configuration of the router at the relay's one port: HAProxy, version 2.6 or later, which keeps no state.

It reads the server's name in a ClientHello, opens nothing, and passes the connection on to the head's pod, where TLS
ends. It reaches Services in its own namespace only, and of these only those of heads. `WAIT_END` must not be the last
condition of a rejection: it waits the whole delay, and then is true.
"""

from adapter import names
from adapter.relay.relay_network import CLUSTER_DOMAIN, SERVER_DOMAIN, router_service

# HAProxy does not start where twice as many connections exceed the container's limit of open files.
MAX_CONNECTIONS = 9000
_MAX_PER_ADDRESS = 4000  # a NAT's address stands for a whole cluster
# One RayCluster leaves room for others, and one address, which may be a stranger's, room for its workers.
_MAX_PER_NAME = 6000
_NAME_LENGTH = 64


def router_config(namespace: str) -> str:
    """The router's configuration; `namespace` is the router's own."""
    service, domain = router_service(""), f"{namespace}.{CLUSTER_DOMAIN}"
    return f"""\
global
  maxconn {MAX_CONNECTIONS}
  log stdout format raw local0 notice
resolvers cluster
  parse-resolv-conf
  hold valid 2s
  hold nx 2s
  resolve_retries 2
  timeout resolve 1s
  timeout retry 1s
defaults
  mode tcp
  log global
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  option clitcpka
  option srvtcpka
  clitcpka-idle 20s
  clitcpka-intvl 10s
  clitcpka-cnt 3
  srvtcpka-idle 20s
  srvtcpka-intvl 10s
  srvtcpka-cnt 3
frontend relay
  bind :{names.RELAY_ROUTER_PORT}
  maxconn {MAX_CONNECTIONS - 100}
  stick-table type ip size 100k expire 60s store conn_cur
  tcp-request connection track-sc0 src
  tcp-request connection reject if {{ sc0_conn_cur gt {_MAX_PER_ADDRESS} }}
  tcp-request inspect-delay 5s
  tcp-request content reject unless {{ req.ssl_hello_type 1 }}
  tcp-request content set-var(sess.name) req.ssl_sni,lower
  tcp-request content reject unless {{ var(sess.name) -m reg ^[a-z0-9]+\\.{SERVER_DOMAIN}$ }}
  tcp-request content set-var(sess.host) var(sess.name),regsub(^,{service}),regsub(\\.{SERVER_DOMAIN}$,.{domain})
  tcp-request content do-resolve(sess.head,cluster,ipv4) var(sess.host)
  tcp-request content reject unless {{ var(sess.head) -m found }}
  tcp-request content track-sc1 var(sess.name) table names
  tcp-request content reject if {{ sc1_conn_cur gt {_MAX_PER_NAME} }}
  tcp-request content set-dst var(sess.head)
  default_backend heads
backend names
  stick-table type string len {_NAME_LENGTH} size 10k expire 60s store conn_cur
backend heads
  server head 0.0.0.0:{names.RELAY_SERVER_PORT}
"""
