"""The ways from the load to the replicas that tail.py compares, as configuration
files."""


def haproxy(listen, replicas):
    """One thread that passes requests on, to the replica with the fewest
    connections in use."""
    servers = "".join(f"    server s{port} 127.0.0.1:{port} maxconn 4096\n" for port in replicas)
    return f"""\
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    timeout connect 1s
    timeout client 1m
    timeout server 1m
    option http-keep-alive
    http-reuse always
frontend in
    bind 127.0.0.1:{listen}
    default_backend out
backend out
    balance leastconn
{servers}"""


# Envoy's hedging: a second request to another host once the first has had 5 ms. The
# back-off is made short, for it delays hedges too: 25 ms if nothing is said.
ENVOY_HEDGE = """
                  hedge_policy: {hedge_on_per_try_timeout: true}
                  retry_policy:
                    retry_on: "5xx,reset,connect-failure,refused-stream"
                    num_retries: 1
                    per_try_timeout: 0.005s
                    retry_back_off: {base_interval: 0.001s, max_interval: 0.001s}
                    host_selection_retry_max_attempts: 5
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config:
                        "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"""


def envoy(listen, replicas, hedge):
    """One hop, to the less loaded of two replicas. The limits are above what is needed:
    Envoy's own of 3 retries at a time would leave hardly a hedge."""
    endpoints = "".join(f"""
          - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}""" for port in replicas)
    return f"""\
static_resources:
  listeners:
  - name: in
    address: {{socket_address: {{address: 127.0.0.1, port_value: {listen}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                route:
                  cluster: replicas
                  timeout: 15s{ENVOY_HEDGE if hedge else ""}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: replicas
    type: STATIC
    connect_timeout: 1s
    lb_policy: LEAST_REQUEST
    circuit_breakers:
      thresholds:
      - {{max_connections: 10000, max_pending_requests: 10000, max_requests: 10000, max_retries: 1000}}
    load_assignment:
      cluster_name: replicas
      endpoints:
      - lb_endpoints:{endpoints}
"""


def provider(listen, replica):
    """The sidecar beside a replica."""
    return f"""\
loops: 1
log: {{level: warn, format: text}}
admin: {{address: ""}}
listeners: [{{name: ingress, address: "127.0.0.1:{listen}", protocol: link, service: local}}]
services:
  local:
    discover: static
    endpoints: ["127.0.0.1:{replica}"]
    protocol: http
    max_concurrency: 64
"""


def consumer(listen, admin, providers, hedge):
    """The sidecar beside the caller; hedge is its configuration of hedging."""
    endpoints = ", ".join(f'"127.0.0.1:{port}"' for port in providers)
    return f"""\
loops: 1
log: {{level: warn, format: text}}
admin: {{address: "127.0.0.1:{admin}"}}
listeners: [{{name: egress, address: "127.0.0.1:{listen}", protocol: http, service: compute}}]
services:
  compute:
    discover: static
    endpoints: [{endpoints}]
    protocol: link
    timeout: 2s
    idempotent: true
    hedge: {hedge}
"""
