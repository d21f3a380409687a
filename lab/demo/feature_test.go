package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/proxy/config"
)

func featureOptions(t *testing.T, out *bytes.Buffer) FeatureOptions {
	return FeatureOptions{Options: options(t, out), Minute: time.Second}
}

// TestFeatureDemo runs the whole demo with a stand-in for the sidecar that hashes and caches nothing.
// A slow machine only adds to latencies and errors, which are not looked at.
func TestFeatureDemo(t *testing.T) {
	t.Setenv(roleEnv, "sidecar that hedges the first ten")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var out bytes.Buffer
	o := featureOptions(t, &out)
	r, err := RunFeature(ctx, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if r.Mode != "stall" || r.Rate != 200 || r.FanOut != 10 || r.Minute != 1 || len(r.Phases) != 5 {
		t.Fatalf("%+v", r)
	}
	for i, name := range FeaturePhases {
		p := r.Phases[i]
		if p.Name != name || p.Requests != 200 || p.Users != 20 || p.Slowest10 == nil || p.Stalls != 1 || p.Second0.Requests == 0 {
			t.Errorf("%s: %+v", name, p)
		}
		if p.P50 <= 0 || p.P99 < p.P50 || p.P999 < p.P99 || *p.Slowest10 < p.P50 || p.CPU <= 0 || p.Busy <= 0 || p.SidecarCPU >= p.CPU {
			t.Errorf("%s: %+v", name, p)
		}
		if p.HitRate <= 0 || p.HitRate >= 1 || p.StoreSecond0+p.StoreLater == 0 {
			t.Errorf("%s: hit rate %v; store %v and %v per s", name, p.HitRate, p.StoreSecond0, p.StoreLater)
		}
		hedges := int64(0)
		if name != "direct" && name != "off" {
			hedges = 10
		}
		if p.Hedges != hedges || p.ExtraLoad != float64(hedges)/200 {
			t.Errorf("%s: %d hedges, extra load %v", name, p.Hedges, p.ExtraLoad)
		}
	}
	assertNothingRuns(t, o.Dir)
}

func TestFeatureOptions(t *testing.T) {
	var out bytes.Buffer
	for want, change := range map[string]func(*FeatureOptions){
		"must be positive": func(o *FeatureOptions) { o.Rate = 0 },
		"no whole minutes": func(o *FeatureOptions) { o.Minute = 7 * time.Second },
		"unknown mode":     func(o *FeatureOptions) { o.Mode = Shadow },
		"unknown phase":    func(o *FeatureOptions) { o.Phases = []string{"direct", "none"} },
		"is no file":       func(o *FeatureOptions) { o.Remora = "/none" },
	} {
		o := featureOptions(t, &out)
		change(&o)
		if r, err := RunFeature(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, r, err)
		}
	}
	o := options(t, &out)
	o.Mode = replica.Expiry
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "feature service") {
		t.Errorf("mode expiry: %v", err)
	}
}

// TestFeatureConfiguration reads the file of a tier that the sidecar always has had.
func TestFeatureConfiguration(t *testing.T) {
	l, err := newLayout(t.TempDir(), false, FeaturePhases)
	if err != nil {
		t.Fatal(err)
	}
	file := l.dir + "/consumer.yaml"
	f := fields{Phase: "fixed", Admin: "127.0.0.1:1", Etcd: "127.0.0.1:2", Listen: "127.0.0.1:3", Hedge: "on", Delay: "5ms"}
	if err := render("feature.yaml", file, f); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Services["compute"]
	if s.Timeout != deadline || s.Hedge.Mode != config.HedgeOn || s.Hedge.Delay != "5ms" {
		t.Errorf("%+v", s)
	}
}
