package bench

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

const h2loadOutput = `starting benchmark...
Application protocol: h2c

finished in 3.00s, 4.00 req/s, 39.83MB/s
requests: 20 total, 20 started, 12 done, 12 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 12 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 119.50KB (12530) total, 1.29KB (1354) headers (space savings 94.74%), 2.20KB (2255) data
                     min         max         mean         sd        +/- sd
`

func TestParseH2load(t *testing.T) {
	r, err := parseH2load([]byte(h2loadOutput), 200)
	if want := (Result{Requests: 12, Errors: 1, Seconds: 3}); err != nil || !reflect.DeepEqual(*r, want) { // 11 messages came
		t.Errorf("%+v, %v", r, err)
	}
	r, err = parseH2load([]byte(strings.NewReplacer("12 2xx", "9 2xx", "3.00s", "500.00ms").Replace(h2loadOutput)), 200)
	if want := (Result{Requests: 12, Errors: 3, Seconds: .5}); err != nil || !reflect.DeepEqual(*r, want) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := parseH2load([]byte("unable to connect"), 200); err == nil {
		t.Error("no result was accepted")
	}
}

// TestStreams checks that h2load gets whole seconds, the message and a log of its own.
func TestStreams(t *testing.T) {
	dir := t.TempDir()
	h2load := filepath.Join(dir, "program")
	script := "#!/bin/sh\necho \"$@\" >" + dir + "/args\nwc -c <" + dir + "/request >>" + dir + "/args\n" +
		"printf '1\\t200\\t50\\n1\\t200\\t70\\n' >>" + dir + "/calls\necho '" + h2loadOutput + "'\n"
	if err := os.WriteFile(h2load, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &Stack{Tools: Tools{H2load: h2load}, URL: "http://x/compute", dir: dir}
	for range 2 {
		r, err := Streams(64, 1500*time.Millisecond).send(t.Context(), s)
		if err != nil || r.Requests != 12 || int(r.Figures[P50]) != 50 || int(r.Figures[Max]) != 70 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || !strings.HasPrefix(string(args), "-t1 -c8 -m8 -D2 -d ") || !strings.HasSuffix(string(args), " http://x/compute\n305\n") {
		t.Errorf("%s, %v", args, err)
	}
}

// TestGRPCConfigurations checks that each proxy speaks HTTP/2 on both sides.
func TestGRPCConfigurations(t *testing.T) {
	want := map[Program][]string{
		Nginx:   {"backlog=4096 http2;", "grpc_pass grpc://out;", "keepalive 1024;"},
		HAProxy: {"bind " + testListen + " proto h2", "maxconn 4096 proto h2"},
		Envoy:   {"codec_type: HTTP2", "http2_protocol_options: {}"},
		Remora:  {"protocol: http\n", "protocol: grpc\n"},
	}
	for _, row := range append(GRPCRows(), TailRows(true)...) {
		for i, h := range row.chain {
			file := configFile(t, testPlace(t, h))
			b := must.ReadFile(t, file)
			found := 0
			for _, s := range want[h.program] {
				if strings.Contains(string(b), s) {
					found++
				}
			}
			sides := len(want[h.program])
			if h.Sidecar != nil && len(row.chain) == 2 {
				sides = 1 // the other is a link
			}
			if found != sides || strings.Contains(string(b), "proxy_pass") {
				t.Errorf("%s, proxy %d:\n%s", row.Name, i+1, b)
			}
		}
	}
}
