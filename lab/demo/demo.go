// Package demo shows what Remora does, on one machine with nothing installed. Three replicas
// that freeze now and then get the same load directly, through sidecars, and through sidecars
// that hedge. All are real processes, whose configuration files show how to deploy.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/report"
)

// Options says what the demo runs. A field without a default in its comment is required.
type Options struct {
	Seconds float64       // of each phase
	Rate    float64       // requests per second
	Mode    replica.Mode  // of the replicas, or Shadow
	GRPC    bool          // the requests are unary gRPC calls; else HTTP/1.1
	Seed    uint64        // of the replicas; they have Seed, Seed+1 and Seed+2
	Warmup  time.Duration // before each phase, not counted; default 2.5 s
	Timeout time.Duration // of one request; default 2 s

	Dir    string // for configuration files and logs; it exists
	Self   string // path of remora-lab
	Remora string // path of remora; default: found or built, see sidecarBinary
	Out    *Screen
}

// Shadow is Stall, with shadow mode and hedging in turn, to compare them.
const Shadow replica.Mode = "shadow"

// phaseKind is one way to reach the replicas.
type phaseKind struct {
	title   string
	hedge   string         // mode of the consumer sidecar; "" means no sidecars
	figures **report.Phase // where the phase puts them
}

// steps returns what to run, in order. The phases of a step take turns.
func (o *Options) steps(r *report.Report) [][]phaseKind {
	if o.Mode == Shadow {
		return [][]phaseKind{{
			{"1/2 shadow: through sidecars, hedging off and forecast; in turn with", "shadow", &r.Off},
			{"2/2 on: through sidecars, hedging on", "on", &r.On},
		}}
	}
	return [][]phaseKind{
		{{"1/3 direct: round robin, no sidecars", "", &r.Direct}},
		{{"2/3 off: through sidecars, hedging off", "off", &r.Off}},
		{{"3/3 on: through sidecars, hedging on", "on", &r.On}},
	}
}

// Run runs the phases. It leaves no process, also after a failure or the end of ctx.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	o.Warmup = cmp.Or(o.Warmup, 2500*time.Millisecond)
	r := &report.Report{Mode: string(o.Mode), Rate: o.Rate, Seconds: o.Seconds, Seed: o.Seed}
	steps := o.steps(r)
	if o.Mode == Shadow {
		o.Mode = replica.Stall
	}
	switch {
	case o.Seconds <= 0 || o.Rate <= 0:
		return nil, errors.New("demo: seconds and rate must be positive")
	case o.Mode == replica.Expiry || o.Mode == replica.Unequal:
		return nil, fmt.Errorf("demo: mode %s is one of the feature service", o.Mode)
	case !slices.Contains(replica.Modes, o.Mode):
		return nil, fmt.Errorf("demo: unknown mode %q: want one of %v or %s", o.Mode, replica.Modes, Shadow)
	}
	l, err := newLayout(o.Dir, o.GRPC, consumerModes)
	if err != nil {
		return nil, err
	}
	if err := l.writeConfigs(); err != nil {
		return nil, err
	}
	o.Out.Line("looking for the sidecar, or building it")
	if o.Remora, err = sidecarBinary(ctx, o.Remora, o.Self, o.Dir); err != nil {
		return nil, err
	}
	etcd := &child.Group{Dir: o.Dir}
	defer etcd.Stop()
	if err := startEtcd(ctx, etcd, o.Self, l.etcd); err != nil {
		return nil, err
	}
	for _, kinds := range steps {
		if err := runPhases(ctx, o, l, kinds...); err != nil {
			return r, fmt.Errorf("phase %s: %w", kinds[0].title, err)
		}
	}
	return r, nil
}

func startEtcd(ctx context.Context, procs *child.Group, self, addr string) error {
	health := child.Gets("http://" + addr + "/health")
	_, err := procs.StartServer(ctx, health, nil, "etcd", self, "etcd", "--listen", addr)
	return err
}
