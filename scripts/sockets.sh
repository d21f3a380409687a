#!/usr/bin/env bash
# Unix sockets, the PROXY protocol and TLS by server name, between Remora and
# independent programs: curl, openssl, nginx and HAProxy. Needs these, Go and
# Python 3. Everything listens on free ports of 127.0.0.1 or in a temporary
# directory, and is gone at the end. The last line is the count of checks.
#
#   KEEP=DIR   keep configuration files and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need curl openssl nginx haproxy go python3
workspace
CGO_ENABLED=0 go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
free_ports http tcp v1 v2 sni plain behind accepts one two
cd "$dir"

pids=()
stop() {
	kill "${pids[@]}" 2>/dev/null || true
	wait
	if [[ -z ${KEEP:-} ]]; then rm -rf "$dir"; fi
}
trap stop EXIT

# Remora, behind and in front of the others.
cat >remora.yaml <<END
admin: {address: "unix:$dir/admin"}
listeners:
  - {name: file, address: "unix:$dir/in", mode: "0660", protocol: http, service: nginx}
  - {name: abstract, address: "unix:@$dir/in", protocol: http, service: nginx}
  - {name: http, address: "127.0.0.1:$http", protocol: http, service: nginx, proxy_protocol: {trust: [127.0.0.1]}}
  - {name: file-proxied, address: "unix:$dir/proxied", protocol: http, service: nginx, proxy_protocol: {trust: [127.0.0.1]}}
  - {name: tcp, address: "127.0.0.1:$tcp", protocol: tcp, service: haproxy, proxy_protocol: {trust: [127.0.0.1]}}
  - {name: v1, address: "127.0.0.1:$v1", protocol: tcp, service: nginx-v1}
  - {name: v2, address: "127.0.0.1:$v2", protocol: tcp, service: haproxy}
  - {name: sni, address: "127.0.0.1:$sni", protocol: tcp}
routes:
  - {match: {sni: one.test}, service: one}
  - {match: {sni: "*.two.test"}, service: two}
services:
  nginx: {discover: static, connect_timeout: 15s, protocol: http, endpoints: ["unix:$dir/nginx"], check: {http: /, interval: 200ms}}
  nginx-v1: {discover: static, connect_timeout: 15s, protocol: tcp, endpoints: ["127.0.0.1:$behind"], proxy_protocol: v1}
  haproxy: {discover: static, connect_timeout: 15s, protocol: tcp, endpoints: ["127.0.0.1:$accepts"], proxy_protocol: v2}
  one: {discover: static, connect_timeout: 15s, protocol: tcp, endpoints: ["127.0.0.1:$one"]}
  two: {discover: static, connect_timeout: 15s, protocol: tcp, endpoints: ["127.0.0.1:$two"]}
END

cat >nginx.conf <<END
daemon off;
pid $dir/nginx.pid;
error_log $dir/nginx.log;
events {}
http {
  access_log off;
  default_type text/plain;
  client_body_temp_path $dir/nginx-body; proxy_temp_path $dir/nginx-proxy; fastcgi_temp_path $dir/nginx-f;
  uwsgi_temp_path $dir/nginx-u; scgi_temp_path $dir/nginx-s;
  server { listen unix:$dir/nginx; return 200 "for \$http_x_forwarded_for\n"; }
  server { listen 127.0.0.1:$behind proxy_protocol; return 200 "by \$proxy_protocol_addr:\$proxy_protocol_port to \$proxy_protocol_server_port\n"; }
  server { listen 127.0.0.1:$one ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem; return 200 "one by \$ssl_server_name\n"; }
  server { listen 127.0.0.1:$two ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem; return 200 "two by \$ssl_server_name\n"; }
}
END

# HAProxy makes connections with a header from what 127.0.0.2 sends, and takes them from Remora.
cat >haproxy.cfg <<END
global
  maxconn 100
defaults
  mode http
  timeout connect 60s
  timeout client 60s
  timeout server 60s
  timeout check 60s
listen plain-v1
  bind $dir/haproxy-v1
  bind 127.0.0.1:$plain
  server s 127.0.0.1:$http send-proxy check inter 200ms
listen plain-v2
  bind $dir/haproxy-v2 accept-proxy
  server s 127.0.0.1:$http send-proxy-v2 proxy-v2-options crc32c,unique-id
  unique-id-format %{+X}o%ci:%cp
listen over-unix
  bind $dir/haproxy-unix accept-proxy
  server s unix@$dir/proxied send-proxy-v2
listen to-tcp
  mode tcp
  bind $dir/haproxy-tcp accept-proxy
  server s 127.0.0.1:$tcp send-proxy-v2
listen accepts
  bind 127.0.0.1:$accepts accept-proxy
  option forwardfor
  server s unix@$dir/nginx
END

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test -keyout key.pem -out cert.pem 2>openssl.log
nginx -e "$dir/nginx.log" -p "$dir" -c "$dir/nginx.conf" 2>nginx.err &
pids+=($!)
haproxy -db -f haproxy.cfg >haproxy.log 2>&1 &
pids+=($!)
bin/remora check -c remora.yaml
bin/remora run -c remora.yaml --runtime-dir "" >remora.log 2>&1 &
pids+=($!)
await 'Remora' bin/remora healthcheck -c remora.yaml
await 'nginx' test -S nginx
await 'HAProxy' test -S haproxy-tcp
await "HAProxy's check" curl -sf --max-time 60 "http://127.0.0.1:$plain/"

passed=0 failed=0
# expect NAME PATTERN COMMAND... compares what a command prints with a glob.
expect() {
	local name=$1 want=$2 got
	shift 2
	got=$("$@" 2>&1) || true
	# shellcheck disable=SC2053
	if [[ $got == $want ]]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf '%s: got %q, want %q\n' "$name" "$got" "$want"
	fi
}
# through SOCKET TEXT sends a header of version 1 and a request to a socket, and prints the body.
through() {
	python3 - "$@" <<'END'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
s.connect(sys.argv[1])
s.sendall(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 80\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
text = b""
while part := s.recv(65536):
    text += part
print(text.decode().partition("\r\n\r\n")[2].strip())
END
}
get=(curl -sS --max-time 60)

expect 'curl to a Unix socket' 'for 127.0.0.1' "${get[@]}" --unix-socket in http://a/
expect 'curl to an abstract one' 'for 127.0.0.1' "${get[@]}" --abstract-unix-socket "$dir/in" http://a/
expect 'the mode of the file' 660 stat -c %a in
expect 'curl with a header' 'for 127.0.0.1' "${get[@]}" --haproxy-protocol "http://127.0.0.1:$http/"
expect 'curl without' 'curl: *' "${get[@]}" "http://127.0.0.1:$http/"
expect 'curl from elsewhere' 'curl: *' "${get[@]}" --interface 127.0.0.2 --haproxy-protocol "http://127.0.0.1:$http/"
expect 'HAProxy, v1' 'for 127.0.0.2' "${get[@]}" --interface 127.0.0.2 "http://127.0.0.1:$plain/"
expect 'HAProxy, v2' 'for 192.0.2.1' through haproxy-v2
expect 'HAProxy, v2 over a Unix socket' 'for 192.0.2.1' through haproxy-unix
expect 'HAProxy to HAProxy, v2' 'for 192.0.2.1' through haproxy-tcp
expect 'Remora to nginx, v1' "by 127.0.0.2:* to $v1" "${get[@]}" --interface 127.0.0.2 "http://127.0.0.1:$v1/"
expect 'Remora to HAProxy, v2' 'for 127.0.0.2' "${get[@]}" --interface 127.0.0.2 "http://127.0.0.1:$v2/"
expect 'curl by name' 'one by one.test' "${get[@]}" -k --resolve "one.test:$sni:127.0.0.1" "https://one.test:$sni/"
expect 'curl by wildcard' 'two by a.two.test' "${get[@]}" -k --resolve "a.two.test:$sni:127.0.0.1" "https://a.two.test:$sni/"
expect 'curl, another name' '*unrecognized name*' "${get[@]}" -k --resolve "three.test:$sni:127.0.0.1" "https://three.test:$sni/"
expect 'openssl by name' '*CN = test*' openssl s_client -connect "127.0.0.1:$sni" -servername one.test
expect 'openssl by wildcard, TLS 1.2' '*CN = test*' openssl s_client -connect "127.0.0.1:$sni" -servername b.two.test -tls1_2
expect 'openssl without a name' '*unrecognized name*' openssl s_client -connect "127.0.0.1:$sni" -noservername
expect 'curl without TLS' 'curl: *reset*' "${get[@]}" "http://127.0.0.1:$sni/"
expect 'the count of refusals' 'remora_errors_total{code="bad-proxy-header",listener="http"} 2' \
	bash -c "curl -s --unix-socket admin http://localhost/metrics | grep bad-proxy-header"
kill "${pids[2]}"
wait "${pids[2]}" || true
unset 'pids[2]'
expect 'files at the end' '' bash -c 'ls in proxied admin 2>/dev/null'

printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
