package admin

import (
	"encoding/json"
	"strings"
	"testing"
)

const subsetAndOutlier = `
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http, service: compute}]
services:
  compute:
    discover: static
    endpoints: ["10.0.9.9:1"]
    protocol: http
    connect_timeout: 15s
    timeout: 2m
    lb: {policy: weighted_round_robin, subset: 2}
    outlier: {consecutive: 1, base: 1h}
`

// TestEjectedAndUnused: /endpoints and /metrics show which endpoints receive no requests,
// and why.
func TestEjectedAndUnused(t *testing.T) {
	s := newSidecar(t, subsetAndOutlier)
	s.update("compute", newApp(t), newApp(t), newApp(t))
	look := func() (ejected, unused []string) {
		_, body := s.get("/endpoints")
		var got endpointsBody
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		svc := got.Services["compute"]
		if svc.Panic {
			t.Errorf("panic: %s", body)
		}
		for _, e := range svc.Endpoints {
			switch {
			case e.Unused:
				unused = append(unused, e.Address)
			case e.Ejected == "consecutive":
				ejected = append(ejected, e.Address)
			case e.Ejected != "":
				t.Errorf("ejected by %q", e.Ejected)
			}
		}
		return ejected, unused
	}
	if ejected, unused := look(); len(ejected) != 0 || len(unused) != 1 {
		t.Errorf("at first %v are ejected and %v unused", ejected, unused)
	}
	s.request("GET", "/500")
	ejected, unused := look()
	if len(ejected) != 1 || len(unused) != 1 {
		t.Fatalf("after one failure %v are ejected and %v unused", ejected, unused)
	}
	f := s.scrape()
	for _, c := range []struct {
		name, labels string
		want         float64
	}{
		{"remora_ejections_total", "reason=consecutive,service=compute", 1},
		{"remora_ejections_total", "reason=success_rate,service=compute", 0},
		{"remora_ejections_total", "reason=latency,service=compute", 0},
		{"remora_endpoints_panic", "service=compute", 0},
		{"remora_endpoint_ejected", "endpoint=" + ejected[0] + ",service=compute", 1},
		{"remora_endpoint_ejections_total", "endpoint=" + ejected[0] + ",service=compute", 1},
		{"remora_endpoint_ejected", "endpoint=" + unused[0] + ",service=compute", -1},
	} {
		if got := value(f, c.name, c.labels); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// TestPassedOver: /endpoints shows the policy, and /metrics how many requests the endpoint of their
// key did not get.
func TestPassedOver(t *testing.T) {
	s := newSidecar(t, strings.Replace(subsetAndOutlier, "{policy: weighted_round_robin, subset: 2}", "{policy: consistent_hash, hash: {path: true}}", 1))
	s.update("compute", newApp(t), newApp(t))
	passed := func() float64 { return value(s.scrape(), "remora_endpoints_passed_over_total", "service=compute") }
	s.request("GET", "/500") // ejects, on one of two loops
	before := passed()
	for range 20 {
		s.request("GET", "/500?again")
	}
	if before != 0 || passed() < 1 {
		t.Errorf("%v requests passed over at first, %v after the ejection", before, passed())
	}
	if _, body := s.get("/endpoints"); !strings.Contains(body, `"policy": "consistent_hash"`) {
		t.Errorf("no policy in %s", body)
	}
}
