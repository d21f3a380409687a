// Package demo shows what Remora does, on one machine with nothing installed. Three replicas
// that freeze now and then get the same load three times: directly, through sidecars, and
// through sidecars that hedge. Replicas, etcd and sidecars are real processes. Their
// configuration files can be kept, and show how to deploy.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/remora-proxy/remora/lab/child"
	"github.com/remora-proxy/remora/lab/replica"
	"github.com/remora-proxy/remora/lab/report"
)

// Options says what the demo runs. A field without a default in its comment is required.
type Options struct {
	Seconds float64 // of each phase
	Rate    float64 // requests per second
	Mode    replica.Mode
	Shadow  bool          // run shadow mode, then hedging, and compare
	Seed    uint64        // of the replicas; they have Seed, Seed+1 and Seed+2
	Warmup  time.Duration // before each phase, not counted; default 2.5 s
	Timeout time.Duration // of one request; default 2 s

	Dir    string // for configuration files and logs; it exists
	Self   string // path of remora-lab
	Remora string // path of remora; default: found or built, see sidecarBinary
	Out    *Screen
}

// phaseKind is one way to reach the replicas.
type phaseKind struct {
	title string
	hedge string // mode of the consumer sidecar; "" means no sidecars
}

var (
	phaseDirect = phaseKind{"1/3 direct: round robin, no sidecars", ""}
	phaseOff    = phaseKind{"2/3 off: through sidecars, hedging off", "off"}
	phaseOn     = phaseKind{"3/3 on: through sidecars, hedging on", "on"}

	phaseShadow   = phaseKind{"1/2 shadow: through sidecars, hedging off and forecast; in turn with", "shadow"}
	phaseForecast = phaseKind{"2/2 on: through sidecars, hedging on", "on"}
)

// step is phases that run together, and the destinations of their figures.
type step struct {
	kinds []phaseKind
	into  []**report.Phase
}

// steps returns what to run, in order.
func (o *Options) steps(r *report.Report) []step {
	if o.Shadow {
		return []step{{[]phaseKind{phaseShadow, phaseForecast}, []**report.Phase{&r.Off, &r.On}}}
	}
	return []step{
		{[]phaseKind{phaseDirect}, []**report.Phase{&r.Direct}},
		{[]phaseKind{phaseOff}, []**report.Phase{&r.Off}},
		{[]phaseKind{phaseOn}, []**report.Phase{&r.On}},
	}
}

// modeName is the mode as the command line has it.
func (o *Options) modeName() string {
	if o.Shadow {
		return "shadow"
	}
	return string(o.Mode)
}

// Run runs the phases. All processes have ended when it returns, also after a failure or the
// end of ctx.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if o.Warmup == 0 {
		o.Warmup = 2500 * time.Millisecond
	}
	if o.Seconds <= 0 || o.Rate <= 0 {
		return nil, errors.New("demo: seconds and rate must be positive")
	}
	l, err := newLayout(o.Dir)
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
	p, err := etcd.Start("etcd", o.Self, "etcd", "--listen", l.etcd)
	if err != nil {
		return nil, err
	}
	if err := child.Await(ctx, p, "etcd", child.Gets("http://"+l.etcd+"/health")); err != nil {
		return nil, err
	}
	r := &report.Report{Mode: o.modeName(), Rate: o.Rate, Seconds: o.Seconds, Seed: o.Seed}
	for _, step := range o.steps(r) {
		phases, err := runPhases(ctx, o, l, step.kinds...)
		if err != nil {
			return r, fmt.Errorf("phase %s: %w", step.kinds[0].title, err)
		}
		for i, p := range phases {
			*step.into[i] = p
		}
	}
	return r, nil
}

// WorkDir makes the directory for files and logs: keep, or if that is "" a new one that cleanup
// removes.
func WorkDir(keep string) (dir string, cleanup func(), err error) {
	if keep != "" {
		return keep, func() {}, os.MkdirAll(keep, 0o755)
	}
	dir, err = os.MkdirTemp("", "remora-demo-")
	return dir, func() { os.RemoveAll(dir) }, err
}
