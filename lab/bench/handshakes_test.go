package bench

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/config"
)

// testHandshakes makes each kind of handshake with real sidecars, for a moment.
func testHandshakes(t *testing.T, remora string) {
	rows := choose(t, HandshakeRows(), "remora-listener-ecdsa", "remora-link-rsa", "remora-dial-ecdsa")
	loads := HandshakeLoads(2, 5, 100*time.Millisecond)
	r, err := Run(t.Context(), Options{
		Tools: Tools{Lab: self(t), Remora: remora}, Kind: TLS, Rows: rows, Rounds: 1, Loads: loads, Progress: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	for _, l := range loads {
		for _, row := range rows {
			cpu, perCore := r.Samples.Values(row.Name, l.Name, CPU), r.Samples.Values(row.Name, l.Name, PerCore)
			measured := slices.Contains(row.jobs, l.job)
			if (len(cpu) == 1) != measured || (len(perCore) == 1) != (measured && l.handshakes) {
				t.Errorf("%s, %s: CPU %v, per core %v", row.Name, l.Name, cpu, perCore)
			}
		}
	}
	for _, v := range r.verdicts() {
		if beside := strings.HasSuffix(v.What, ": remora-listener-ecdsa") || strings.HasSuffix(v.What, ": remora-link-rsa"); v.Known() != beside {
			t.Errorf("%s: measured %v, want it to be: %t", v.What, v.Measured, beside)
		}
	}
}

// TestHandshakeConfigurations checks that each proxy speaks TLS, and shows certificates at links.
func TestHandshakeConfigurations(t *testing.T) {
	for _, row := range HandshakeRows() {
		for i, h := range row.chain {
			text := string(must.ReadFile(t, configFile(t, testPlace(t, h))))
			secure := map[Program]string{HAProxy: " ssl ", Nginx: " ssl;\n", Remora: "tls: {cert:"}[h.program]
			if i == 0 && len(row.chain) == 2 { // a consumer
				secure = map[Program]string{HAProxy: " ssl verify required ", Nginx: "proxy_pass https:", Remora: "tls: {cert:"}[h.program]
			}
			mutual := map[Program]string{HAProxy: " verify required ca-file", Nginx: "ssl_verify", Remora: "peers: [bench]"}[h.program]
			if !strings.Contains(text, secure) || strings.Contains(text, mutual) != !slices.Contains(row.jobs, AtListener) {
				t.Errorf("%s, proxy %d:\n%s", row.Name, i, text)
			}
			if h.Sidecar != nil {
				if _, err := config.Load(configFile(t, testPlace(t, h))); err != nil {
					t.Errorf("%s, proxy %d: %v", row.Name, i, err)
				}
			}
		}
	}
}

// TestHandshakesRefused checks that a handshake of another kind than the load's is an error, and one that the
// server refuses after the client has finished.
func TestHandshakesRefused(t *testing.T) {
	dir := t.TempDir()
	if err := writeCertificates(dir, false); err != nil {
		t.Fatal(err)
	}
	s := &Stack{dir: dir}
	own, err := s.clientTLS()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		server *tls.Config
		kind   Handshake
		want   string
	}{
		"good":            {&tls.Config{}, Handshake{AtListener, false, tls.VersionTLS13, tls.X25519}, ""},
		"resumed":         {&tls.Config{}, Handshake{AtListener, true, tls.VersionTLS12, tls.X25519}, ""},
		"without tickets": {&tls.Config{SessionTicketsDisabled: true}, Handshake{AtListener, true, tls.VersionTLS13, tls.X25519}, "resumed false"},
		"another group":   {&tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP256}}, Handshake{AtListener, false, tls.VersionTLS13, tls.X25519}, "CurveP256"},
		"refused client":  {&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}, Handshake{AtLink, false, tls.VersionTLS13, tls.X25519}, "remote error"},
	} {
		c.server.Certificates = own.Certificates
		s.Addr = serveTLS(t, c.server)
		s.Last = s.Addr
		_, err := func() (*Result, error) {
			l := c.kind.closed(1, time.Millisecond)
			if err := l.prepare(t.Context(), s); err != nil {
				return nil, err
			}
			return l.send(t.Context(), s)
		}()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// serveTLS accepts connections at the address that it returns, and closes each one after the client has.
func serveTLS(t *testing.T, config *tls.Config) string {
	t.Helper()
	ln := must.Listen(t)
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				_, _ = io.Copy(io.Discard, tls.Server(nc, config))
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).String()
}
