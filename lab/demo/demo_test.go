package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/proxy/config"
)

func testLayout(t *testing.T, grpc bool) *layout {
	t.Helper()
	l, err := newLayout(t.TempDir(), grpc, consumerModes)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.writeConfigs(); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestConfigurationFiles(t *testing.T) {
	l := testLayout(t, false)
	for i := range replicaCount {
		c, err := config.Load(l.providerFile(i))
		if err != nil {
			t.Fatal(err)
		}
		ln, reg := c.Listeners[0], c.Register[0]
		if ln.Protocol != config.ProtocolLink || ln.Service != "local" || ln.Address != l.links[i] ||
			reg.Service != "compute" || reg.Listener != ln.Name || reg.Advertise != l.links[i] {
			t.Errorf("provider %d: listener %+v, register %+v", i, ln, reg)
		}
		local := c.Services["local"]
		if local.MaxConcurrency != 64 || local.Protocol != config.ProtocolHTTP || local.Endpoints[0].Address != l.replicas[i] {
			t.Errorf("provider %d: %+v", i, local)
		}
	}
	for _, mode := range []string{config.HedgeOff, config.HedgeShadow, config.HedgeOn} {
		c, err := config.Load(l.consumerFile(mode))
		if err != nil {
			t.Fatal(err)
		}
		s := c.Services["compute"]
		if s.Hedge.Mode != mode || s.Idempotent[0] != config.IdempotentTrue || s.Timeout != 2*time.Second || s.Discover[0] != config.DiscoverEtcd || s.Protocol != config.ProtocolLink {
			t.Errorf("hedging %s: %+v", mode, s)
		}
		want := config.DefaultPolicy().Hedge
		want.Mode, want.Sample = mode, 1
		if s.Hedge != want {
			t.Errorf("hedge %+v: the file says that these are the defaults, which are %+v", s.Hedge, want)
		}
		if c.Listeners[0].Address != l.consumers[mode].listen || c.Routes[0].Service != "compute" || c.Admin.Address != l.consumers[mode].admin {
			t.Errorf("hedging %s: %+v %+v", mode, c.Listeners[0], c.Routes[0])
		}
	}
}

func TestConfigurationFilesOfGRPC(t *testing.T) {
	l := testLayout(t, true)
	c, err := config.Load(l.providerFile(0))
	if err != nil {
		t.Fatal(err)
	}
	if local := c.Services["local"]; local.Protocol != config.ProtocolGRPC || local.Endpoints[0].Address != l.replicas[0] {
		t.Errorf("%+v", local)
	}
	if c, err = config.Load(l.consumerFile("on")); err != nil {
		t.Fatal(err)
	}
	if s := c.Services["compute"]; s.Protocol != config.ProtocolLink || s.Idempotent[0] != config.IdempotentTrue || c.Listeners[0].Protocol != config.ProtocolHTTP {
		t.Errorf("%+v", s)
	}
	if got := (&phase{mesh: &mesh{layout: l}}).targets(); len(got) != replicaCount || got[0] != "grpc://"+l.replicas[0] {
		t.Errorf("targets %q", got)
	}
}

func TestConfigurationFilesHaveComments(t *testing.T) {
	l := testLayout(t, false)
	for _, file := range []string{l.providerFile(0), l.consumerFile("on")} {
		b := must.ReadFile(t, file)
		if n := strings.Count(string(b), "\n#") + strings.Count(string(b), " #"); n < 8 {
			t.Errorf("%s has %d comments", file, n)
		}
		if !strings.Contains(string(b), "remora run -c "+filepath.Base(file)) {
			t.Errorf("%s does not say how it is used", file)
		}
	}
}

// oneFreeze is a seed with which one replica freezes once, about 900 ms after a phase's start,
// and none again for two minutes. A phase that ends late has met that freeze all the same.
const oneFreeze = 132134

// testTimeout bounds waits. No result depends on it.
const testTimeout = 5 * time.Minute

func options(t *testing.T, out *bytes.Buffer) Options {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Seconds: 1, Rate: 200, Mode: replica.Stall, Seed: oneFreeze, Warmup: 200 * time.Millisecond,
		Timeout: testTimeout, Dir: t.TempDir(), Self: self, Remora: self, Out: NewScreen(out, false)}
}

// TestDemo runs the whole demo. This test's binary stands in for remora-lab, and for remora as
// a proxy that forwards to the providers in turn (see standin_test.go).
func TestDemo(t *testing.T) {
	t.Setenv(roleEnv, "sidecar that hedges the first ten")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var out bytes.Buffer
	o := options(t, &out)
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for name, p := range map[string]struct{ requests, errors, hedges, won int64 }{
		"direct": {200, 0, 0, 0}, "off": {200, 0, 0, 0}, "on": {200, 0, 10, 4},
	} {
		got := r.Direct
		switch name {
		case "off":
			got = r.Off
		case "on":
			got = r.On
		}
		if got.Requests != p.requests || got.Errors != p.errors || got.Hedges != p.hedges || got.HedgesWon != p.won {
			t.Errorf("%s: %+v", name, got)
		}
		if want := float64(p.hedges) / 200; got.ExtraLoad != want {
			t.Errorf("%s: extra load %v, want %v", name, got.ExtraLoad, want)
		}
		if got.P50 <= 0 || got.P99 < got.P50 || got.Max < got.P999 || len(got.Curve) < 10 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if r.On.Gates["budget"] != 7 {
		t.Errorf("gates %v", r.On.Gates)
	}
	if r.Direct.Stalls != 1 || r.Off.Stalls != 1 || r.On.Stalls != 1 {
		t.Errorf("freezes: %d, %d, %d; want one in each phase", r.Direct.Stalls, r.Off.Stalls, r.On.Stalls)
	}
	assertNothingRuns(t, o.Dir)
}

// TestShadowMode runs two phases in turn, which meet the same freezes, and checks the forecast
// of the first.
func TestShadowMode(t *testing.T) {
	t.Setenv(roleEnv, "sidecar that hedges the first ten")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var out bytes.Buffer
	o := options(t, &out)
	o.Mode = Shadow
	o.Seconds = 2 * sliceLength.Seconds()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if r.Mode != "shadow" || r.Direct != nil || r.Off.Hedges != 0 || r.On.Hedges != 10 || r.Off.Requests != 1000 || r.On.Requests != 1000 {
		t.Errorf("%+v", r)
	}
	if r.Off.ExtraLoad != 0 || r.On.ExtraLoad != .01 || r.Off.Stalls != r.On.Stalls || r.On.Stalls == 0 {
		t.Errorf("extra load %v and %v, freezes %d and %d; want 0 and 0.01, and the same freezes",
			r.Off.ExtraLoad, r.On.ExtraLoad, r.Off.Stalls, r.On.Stalls)
	}
	if len(r.Off.Forecasts) != 1 || *r.Off.Forecasts[0].P99 != 3.5 || r.Off.Seen == nil || len(r.On.Forecasts) != 0 || r.On.Seen == nil {
		t.Errorf("forecasts %+v of %+v, and %+v of %+v", r.Off.Forecasts, r.Off.Seen, r.On.Forecasts, r.On.Seen)
	}
	assertNothingRuns(t, o.Dir)
}

func TestSidecarFails(t *testing.T) {
	t.Setenv(roleEnv, "sidecar that fails")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var out bytes.Buffer
	o := options(t, &out)
	_, err := Run(ctx, o)
	if err == nil || !strings.Contains(err.Error(), "bad fish") || !strings.Contains(err.Error(), "provider-1") {
		t.Errorf("err = %v", err)
	}
	assertNothingRuns(t, o.Dir)
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	o := options(t, &out)
	o.Warmup = time.Hour
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(o.Dir, "replica-3.log")); err == nil {
				cancel()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	assertNothingRuns(t, o.Dir)
}

// assertNothingRuns dials the addresses in the configuration files of dir: a process that still
// runs would still listen.
func assertNothingRuns(t *testing.T, dir string) {
	t.Helper()
	for i := range replicaCount {
		c, err := config.Load(filepath.Join(dir, fmt.Sprintf("provider-%d.yaml", i+1)))
		if err != nil {
			t.Fatal(err)
		}
		etcd := strings.TrimPrefix(c.Registry.Etcd().Endpoints[0], "http://")
		for _, addr := range []string{c.Listeners[0].Address, c.Services["local"].Endpoints[0].Address, c.Admin.Address, etcd} {
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Errorf("something still listens on %s", addr)
			}
		}
	}
}

func TestParseHedging(t *testing.T) {
	s, err := parseHedging([]byte(`{"services":{"compute":{"mode":"on","hedges":9,"won":3,"gates":{"budget":2}}}}`), "on")
	if err != nil || s.Hedges != 9 || s.Won != 3 || s.Gates["budget"] != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{`{`, `{}`, `{"services":{"compute":{"mode":"off"}}}`, `{"services":{"other":{"mode":"on"}}}`} {
		if _, err := parseHedging([]byte(bad), "on"); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestSummarize(t *testing.T) {
	res, err := loadOf(100)
	if err != nil {
		t.Fatal(err)
	}
	measured := &phase{served: 104, stalls: 3}
	measured.before.hedging = hedgingState{Hedges: 5, Won: 1, Gates: map[string]int64{"budget": 2, "cascade": 1}}
	measured.result.Add(res)
	p := measured.summarize(state{hedging: hedgingState{Hedges: 9, Won: 3, Gates: map[string]int64{"budget": 4, "cascade": 1}}})
	if p.Requests != 100 || p.ExtraLoad != .04 || p.Hedges != 4 || p.HedgesWon != 2 || p.Stalls != 3 ||
		len(p.Gates) != 1 || p.Gates["budget"] != 2 {
		t.Errorf("%+v", p)
	}
}

// loadOf makes n requests to a fast replica.
func loadOf(n int) (*load.Result, error) {
	r, err := replica.Start(replica.Options{Mode: replica.Fast})
	if err != nil {
		return nil, err
	}
	defer r.Close(context.Background())
	return load.Run(context.Background(), load.Options{Targets: []string{"http://" + r.Addr() + "/compute"},
		Rate: 1000, Duration: time.Duration(n) * time.Millisecond, Connections: 4, Timeout: 20 * time.Second})
}

func TestScreen(t *testing.T) {
	var plain, term bytes.Buffer
	for w, isTerm := range map[*bytes.Buffer]bool{&plain: false, &term: true} {
		s := NewScreen(w, isTerm)
		s.Live("one")
		s.Live("two")
		s.Line("done")
		s.Clear()
	}
	if plain.String() != "done\n" {
		t.Errorf("plain: %q", plain.String())
	}
	if want := eraseLine + "  one" + eraseLine + "  two" + eraseLine + "done\n"; term.String() != want {
		t.Errorf("terminal: %q, want %q", term.String(), want)
	}
}
