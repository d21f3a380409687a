package bench

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/config"
)

// testMesh measures two sidecars with mutual TLS for a moment.
func testMesh(t *testing.T, remora string) {
	load := MeshLoad(1200 * time.Millisecond) // the first scrape comes after a second
	r, err := Run(context.Background(), Options{
		Tools: Tools{Lab: self(t), Remora: remora}, Kind: Mesh, Rows: choose(t, MeshRows(), "remora-mesh-unix"), Rounds: 1,
		Loads: []Load{load}, Progress: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	noChildren(t)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	for _, f := range []Figure{Cores, FirstCores, SecondCores, FirstRSS, SecondRSS} {
		if v := r.Samples.Values("remora-mesh-unix", load.Name, f); len(v) != 1 || v[0] <= 0 {
			t.Errorf("%s: %v, expected a value above 0", f, v)
		}
	}
	var b bytes.Buffer
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "RSS of the first, MB") {
		t.Errorf("%v:\n%s", err, &b)
	}
}

// TestMeshConfigurations checks that both sides of each hop between proxies have a certificate and ask for one.
func TestMeshConfigurations(t *testing.T) {
	for _, row := range MeshRows() {
		for i, h := range row.chain {
			if h.program == Relay {
				continue // it has no configuration
			}
			file := configFile(t, testPlace(t, h))
			if h.program == Envoy {
				b, context := string(must.ReadFile(t, file)), []string{"UpstreamTlsContext", "DownstreamTlsContext"}
				for _, s := range []string{context[i], "/cert.pem", "/key.pem", "trusted_ca", "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 20003}}}"} {
					if !strings.Contains(b, s) {
						t.Errorf("%s, proxy %d lacks %q:\n%s", row.Name, i, s, b)
					}
				}
				if strings.Contains(b, context[1-i]) || strings.Contains(b, "require_client_certificate: true") != (i == 1) {
					t.Errorf("%s, proxy %d:\n%s", row.Name, i, b)
				}
				continue
			}
			c, err := config.Load(file)
			if err != nil {
				t.Fatalf("%s, proxy %d: %v", row.Name, i, err)
			}
			out, in := c.Services["out"].TLS, c.Listeners[0].TLS
			if has := []bool{out.Cert != "" && out.CA != "", in.Cert != "" && in.CA != ""}; !has[i] {
				t.Errorf("%s, proxy %d: TLS %+v, %+v", row.Name, i, in, out)
			}
		}
	}
}

func TestMeshVerdicts(t *testing.T) {
	load := MeshLoad(0).Name
	s := Samples{
		{Round: 1, Row: "envoy-mesh", Load: load, Figures: Figures{CPU: 400}},
		{Round: 1, Row: "remora-mesh", Load: load, Figures: Figures{CPU: 100, FirstRSS: 19, SecondRSS: 20}},
	}
	var holds []bool
	for _, v := range s.meshVerdicts() {
		holds = append(holds, v.Known() && v.Holds())
	}
	if len(holds) != 3 || !holds[0] || !holds[1] || holds[2] {
		t.Errorf("%v, expected that only 20 MiB in place of 20 MB do not hold", holds)
	}
}
