package peers

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// scripts/tls.sh sets it.
var tlsPeers = flag.Bool("tls-peers", false, "test TLS with other programs")

// peerFiles has a folder of configurations and programs of the peers for each suite.
const peerFiles = "../../scripts"

const storePassword = "changeit"

// peerNames are the names in the first certificate of a server.
var peerNames = []string{"app.test", "localhost"}

// peerLab has the certificates that the other programs use.
type peerLab struct {
	ca, strange                                            *testcerts.CA
	good, other, expired, untrusted, client, expiredClient testcerts.Dir
	trust, keys                                            string // Java's stores: ca, and client
	classes                                                string // of Java
}

func newPeerLab(t *testing.T) *peerLab {
	t.Helper()
	if !*tlsPeers {
		t.Skip("needs other programs: see scripts/tls.sh")
	}
	l := &peerLab{ca: testcerts.New(t), strange: testcerts.New(t)}
	expired := func(names ...string) testcerts.Dir {
		cert, key := l.ca.Issue(testcerts.Leaf{Names: names, Expired: true})
		return testcerts.NewDir(t, l.ca, cert, key)
	}
	l.good, l.other = harness.CertFiles(t, l.ca, peerNames...), harness.CertFiles(t, l.ca, "other.test")
	l.expired, l.untrusted = expired(peerNames...), harness.CertFiles(t, l.strange, peerNames...)
	l.client, l.expiredClient = harness.CertFiles(t, l.ca, "spiffe://test/client"), expired("spiffe://test/client")
	dir := t.TempDir()
	l.trust, l.keys = filepath.Join(dir, "trust.p12"), l.store(t, l.client)
	l.classes = filepath.Join(dir, "classes")
	mustRun(t, "javac", "-d", l.classes, filepath.Join(peerFiles, "tls/Get.java"), filepath.Join(peerFiles, "tls/Serve.java"))
	mustRun(t, "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", l.good.CA, "-keystore", l.trust, "-storetype", "PKCS12", "-storepass", storePassword)
	return l
}

// store writes a certificate and its key as Java wants them.
func (l *peerLab) store(t *testing.T, d testcerts.Dir) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "keys.p12")
	mustRun(t, "openssl", "pkcs12", "-export", "-in", d.Cert, "-inkey", d.Key, "-out", file, "-passout", "pass:"+storePassword)
	return file
}

// bundle writes a certificate and its key as HAProxy wants them.
func bundle(t *testing.T, d testcerts.Dir) (file string) {
	t.Helper()
	cert, err := os.ReadFile(d.Cert)
	key, err2 := os.ReadFile(d.Key)
	file = filepath.Join(t.TempDir(), "bundle.pem")
	if err := errors.Join(err, err2, os.WriteFile(file, append(cert, key...), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

func mustRun(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := runPeer(argv...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// runPeer runs a program without input to its end, and returns its output.
func runPeer(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.WaitDelay = harness.Patience
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// startPeer starts a server, and waits until it accepts connections at addr.
func startPeer(t *testing.T, dir, addr string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	harness.StartProgram(t, cmd)
	harness.AwaitListener(t, argv[0], addr)
}

// startConfigured starts nginx, HAProxy or Envoy with a configuration of peerFiles.
func startConfigured(t *testing.T, config string, values map[string]string) (addr string) {
	t.Helper()
	addr = harness.FreeAddrs(t, 1)[0]
	dir := t.TempDir()
	text := must.ReadFile(t, filepath.Join(peerFiles, config))
	_, port, _ := net.SplitHostPort(addr)
	all := map[string]string{"DOLLAR": "$", "DIR": dir, "LISTEN": addr, "PORT": port}
	maps.Copy(all, values)
	file := filepath.Join(dir, filepath.Base(config))
	expanded := os.Expand(string(text), func(name string) string { return all[name] })
	must.WriteFile(t, file, expanded)
	switch program, _, _ := strings.Cut(filepath.Base(config), "-"); program {
	case "nginx":
		startPeer(t, dir, addr, "nginx", "-e", "stderr", "-c", file)
	case "haproxy":
		startPeer(t, dir, addr, "haproxy", "-db", "-f", file)
	case "envoy":
		startPeer(t, dir, addr, "envoy", "-c", file, "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
	}
	return addr
}

// versions are versions of TLS as the programs name them.
var versions = []struct{ openssl, nginx, haproxy string }{{"-tls1_2", "TLSv1.2", "TLSv1.2"}, {"-tls1_3", "TLSv1.3", "TLSv1.3"}}

// TestTLSPeersCall: other programs call a listener with TLS.
func TestTLSPeersCall(t *testing.T) {
	l := newPeerLab(t)
	app := harness.Describing(t)
	open := func(certificate testcerts.Dir, more string) string {
		_, addr := harness.StartHTTPS(t, app, fmt.Sprintf("cert: %q, key: %q, certificates: [{cert: %q, key: %q}]%s",
			certificate.Cert, certificate.Key, l.other.Cert, l.other.Key, more))
		return addr
	}
	clients := fmt.Sprintf(", ca: %q, client_certificate: required, peers: [\"spiffe://test/client\"]", l.good.CA)
	plain, mutual := open(l.good, ""), open(l.good, clients)
	expired, untrusted := open(l.expired, ""), open(l.untrusted, "")

	t.Run("curl", func(t *testing.T) {
		for _, c := range []struct {
			name, at, host string
			options        []string
			want           string // in the output
		}{
			{"right name", plain, "app.test", nil, "https app.test"},
			{"by its name", plain, "other.test", nil, "https other.test"},
			{"TLS 1.2", plain, "app.test", []string{"--tls-max", "1.2"}, "https app.test"},
			{"TLS 1.3", plain, "app.test", []string{"--tlsv1.3"}, "https app.test"},
			{"HTTP/2 offered", plain, "app.test", []string{"--http2"}, "https app.test"},
			{"wrong name", plain, "wrong.test", nil, "no alternative certificate subject name"},
			{"expired", expired, "app.test", nil, "certificate has expired"},
			{"untrusted", untrusted, "app.test", nil, "certificate"},
			{"certificate", mutual, "app.test", []string{"--cert", l.client.Cert, "--key", l.client.Key}, "https app.test"},
			{"no certificate", mutual, "app.test", nil, "alert"},
			{"expired certificate", mutual, "app.test", []string{"--cert", l.expiredClient.Cert, "--key", l.expiredClient.Key}, "alert"},
			{"wrong certificate", mutual, "app.test", []string{"--cert", l.good.Cert, "--key", l.good.Key}, "alert"},
		} {
			t.Run(c.name, func(t *testing.T) {
				_, port, _ := net.SplitHostPort(c.at)
				out, err := runPeer(append([]string{"curl", "-sS", "-m", "60", "--cacert", l.good.CA, "--resolve", c.host + ":" + port + ":127.0.0.1",
					"https://" + c.host + ":" + port + "/"}, c.options...)...)
				if !strings.Contains(out, c.want) || (err == nil) != strings.HasPrefix(c.want, "https") {
					t.Errorf("%v: %s, want %q", err, out, c.want)
				}
			})
		}
	})
	t.Run("openssl", func(t *testing.T) { opensslCalls(t, l, plain, mutual) })
	t.Run("java", func(t *testing.T) {
		call := func(options []string, hosts ...string) string {
			argv := append([]string{"java", "-Xshare:auto", "-cp", l.classes, "-Djavax.net.ssl.trustStore=" + l.trust, "-Djavax.net.ssl.trustStorePassword=" + storePassword}, options...)
			return mustRun(t, append(append(argv, "Get"), hosts...)...)
		}
		url := func(host, addr string) string {
			_, port, _ := net.SplitHostPort(addr)
			return "https://" + host + ":" + port + "/"
		}
		lines := strings.Split(call(nil, url("localhost", plain), url("127.0.0.1", plain), url("localhost", expired), url("localhost", untrusted), url("localhost", mutual)), "\n")
		for i, want := range []string{"HTTP_2 200 https localhost", "No subject alternative names", "validity check failed", "does not chain", "certificate_required"} {
			// With TLS 1.3 a client without a certificate has sent its request when it is refused. It
			// may see the end of the connection before the alert.
			ended := want == "certificate_required" && i < len(lines) && strings.HasPrefix(lines[i], "java.io.IOException")
			if i >= len(lines) || !strings.Contains(lines[i], want) && !ended {
				t.Errorf("line %d of %q, want %q", i, lines, want)
			}
		}
		own := []string{"-Djavax.net.ssl.keyStore=" + l.keys, "-Djavax.net.ssl.keyStorePassword=" + storePassword}
		if got := call(own, url("localhost", mutual)); !strings.HasPrefix(got, "HTTP_2 200 https localhost") {
			t.Errorf("with a certificate: %s", got)
		}
	})
	for _, v := range versions {
		for _, c := range []struct {
			name, remora, sni, identity string
			ok                          bool
		}{
			{"right name", plain, "app.test", "", true},
			{"by its name", plain, "other.test", "", true},
			{"wrong name", plain, "wrong.test", "", false},
			{"expired", expired, "app.test", "", false},
			{"untrusted", untrusted, "app.test", "", false},
			{"certificate", mutual, "app.test", "own", true},
			{"no certificate", mutual, "app.test", "", false},
		} {
			values := map[string]string{"REMORA": c.remora, "NAME": c.sni, "CA": l.good.CA, "PROTOCOLS": v.nginx, "MINVERSION": v.haproxy, "MAXVERSION": v.haproxy}
			for program, identity := range map[string]string{
				"tls/nginx-client.conf":  fmt.Sprintf("proxy_ssl_certificate %s; proxy_ssl_certificate_key %s;", l.client.Cert, l.client.Key),
				"tls/haproxy-client.cfg": "crt " + bundle(t, l.client),
			} {
				t.Run(program+"/"+v.nginx+"/"+c.name, func(t *testing.T) {
					if values["IDENTITY"] = ""; c.identity != "" {
						values["IDENTITY"] = identity
					}
					proxy := startConfigured(t, program, values)
					for range 2 { // the second one may resume
						resp, _ := must.Get(t, http.DefaultClient, "http://"+proxy+"/")
						if (resp.StatusCode == 200) != c.ok || !c.ok && resp.StatusCode < 502 {
							t.Errorf("%s", resp.Status)
						}
					}
				})
			}
		}
	}
}

// opensslCalls: openssl s_client sees the right certificate, resumes, and is refused clearly.
func opensslCalls(t *testing.T, l *peerLab, plain, mutual string) {
	client := func(addr string, options ...string) string {
		t.Helper()
		argv := append([]string{"openssl", "s_client", "-connect", addr, "-CAfile", l.good.CA, "-verify_return_error", "-ign_eof"}, options...)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n")
		out, _ := cmd.CombinedOutput() // the exit status differs by version
		return string(out)
	}
	has := func(what, out, want string) {
		t.Helper()
		if !strings.Contains(out, want) {
			t.Errorf("%s: %s\nwant %q", what, out, want)
		}
	}
	for _, v := range versions {
		session := filepath.Join(t.TempDir(), "session")
		first := client(plain, v.openssl, "-servername", "app.test", "-verify_hostname", "app.test", "-alpn", "http/1.1", "-sess_out", session)
		has(v.openssl, first, "New, "+v.nginx)
		has(v.openssl, first, "ALPN protocol: http/1.1")
		has(v.openssl, first, "https app.test 0")
		has(v.openssl+", resumed", client(plain, v.openssl, "-servername", "app.test", "-sess_in", session), "Reused, "+v.nginx)
		has(v.openssl+", by name", client(plain, v.openssl, "-servername", "other.test", "-verify_hostname", "other.test"), "https app.test 0")
		has(v.openssl+", wrong name", client(plain, v.openssl, "-servername", "wrong.test", "-verify_hostname", "wrong.test"), "hostname mismatch")
		own := []string{v.openssl, "-servername", "app.test", "-cert", l.client.Cert, "-key", l.client.Key, "-sess_out", session}
		has(v.openssl+", mutual", client(mutual, own...), "https app.test 0")
		again := client(mutual, append(own, "-sess_in", session)...)
		has(v.openssl+", mutual, resumed", again, "Reused, "+v.nginx)
		has(v.openssl+", mutual, resumed", again, "https app.test 0")
		has(v.openssl+", no certificate", client(mutual, v.openssl, "-servername", "app.test"), "alert")
	}
	has("TLS 1.1", client(plain, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"), "alert protocol version")
	has("HTTP/2 offered", client(plain, "-alpn", "http/1.1,h2"), "ALPN protocol: h2")
	has("nothing known offered", client(plain, "-alpn", "spdy/3"), "alert no application protocol")
}

// TestTLSPeersServe: a service with TLS calls the servers of other programs.
func TestTLSPeersServe(t *testing.T) {
	l := newPeerLab(t)
	type server func(t *testing.T, first testcerts.Dir, version, verify string) (addr string)
	servers := map[string]server{
		"nginx": func(t *testing.T, first testcerts.Dir, version, verify string) string {
			return startConfigured(t, "tls/nginx-server.conf", map[string]string{
				"CERT": first.Cert, "KEY": first.Key, "CERT2": l.other.Cert, "KEY2": l.other.Key, "CA": l.good.CA, "PROTOCOLS": version,
				"VERIFY": map[string]string{"": "off", "required": "on"}[verify],
			})
		},
		"haproxy": func(t *testing.T, first testcerts.Dir, version, verify string) string {
			return startConfigured(t, "tls/haproxy-server.cfg", map[string]string{
				"BUNDLE": bundle(t, first), "BUNDLE2": bundle(t, l.other), "CA": l.good.CA, "MINVERSION": version, "MAXVERSION": version,
				"VERIFY": map[string]string{"": "none", "required": "required"}[verify],
			})
		},
		"openssl": func(t *testing.T, first testcerts.Dir, version, verify string) string {
			addr, dir := harness.FreeAddrs(t, 1)[0], t.TempDir()
			argv := []string{"openssl", "s_server", "-www", "-accept", addr, "-cert", first.Cert, "-key", first.Key, "-servername", "other.test",
				"-cert2", l.other.Cert, "-key2", l.other.Key, "-CAfile", l.good.CA, map[string]string{"TLSv1.2": "-tls1_2", "TLSv1.3": "-tls1_3"}[version]}
			if verify != "" {
				argv = append(argv, "-Verify", "1", "-verify_return_error")
			}
			startPeer(t, dir, addr, argv...)
			return addr
		},
		"java": func(t *testing.T, first testcerts.Dir, version, _ string) string {
			addr, dir := harness.FreeAddrs(t, 1)[0], t.TempDir()
			_, port, _ := net.SplitHostPort(addr)
			startPeer(t, dir, addr, "java", "-Xshare:auto", "-cp", l.classes, "-Djdk.tls.server.protocols="+version, "Serve", port, l.store(t, first), storePassword)
			return addr
		},
	}
	identity := fmt.Sprintf(", cert: %q, key: %q", l.client.Cert, l.client.Key)
	for name, start := range servers {
		for _, v := range versions {
			t.Run(name+"/"+v.nginx, func(t *testing.T) {
				t.Parallel()
				addr := start(t, l.good, v.nginx, "")
				call := func(what, addr, block, host string, want int) {
					t.Helper()
					p, egress := harness.CallHTTPS(t, addr, fmt.Sprintf("ca: %q, %s", l.good.CA, block), "")
					for i := range 3 {
						status, body, err := harness.GetAs(egress, host, "/")
						if err != nil || status != want && !(want == 502 && status == 400) {
							t.Errorf("%s: %d %.300q, %v", what, status, body, err)
						}
						if name == "java" || want != 200 {
							break
						}
						if resumed := p.Metric("remora_tls_resumed_total"); resumed != i {
							t.Errorf("%s: %d sessions were resumed, want %d", what, resumed, i)
						}
					}
				}
				call("right name", addr, "sni: app.test", "app.test", 200)
				call("wrong name", addr, "sni: wrong.test", "app.test", 502)
				if name != "java" { // it has one certificate, and asks for none
					call("by Host", addr, "sni: host", "other.test", 200)
					mutual := start(t, l.good, v.nginx, "required")
					call("certificate", mutual, "sni: app.test"+identity, "app.test", 200)
					call("no certificate", mutual, "sni: app.test", "app.test", 502)
				}
				call("expired", start(t, l.expired, v.nginx, ""), "sni: app.test", "app.test", 502)
				call("untrusted", start(t, l.untrusted, v.nginx, ""), "sni: app.test", "app.test", 502)
			})
		}
	}
}
