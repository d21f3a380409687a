package health

import (
	"context"
	"errors"
	"time"
)

// Verdict is what an outcome changes.
type Verdict uint8

const (
	Unchanged Verdict = iota
	Healthy           // the first pass, or enough of them after Unhealthy
	Unhealthy         // enough failures after Healthy
)

// Application checks an application that answers at some addresses, now and then
// every c.Interval until ctx is done. It passes when one of the addresses does.
// before is the verdict of checks before these; with none, Unchanged, it counts as
// unhealthy until its first pass. on gets each outcome, nil for a
// pass, and the verdict if that has changed.
func Application(ctx context.Context, c Check, addrs []string, before Verdict, on func(error, Verdict)) {
	a, j := newAsker(&c), judge{healthy: before == Healthy, unproven: before == Unchanged}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		err := a.askAny(ctx, addrs)
		if ctx.Err() != nil {
			return
		}
		v := Unchanged
		if j.note(&c, err == nil) {
			v = Unhealthy
			if j.healthy {
				v = Healthy
			}
		}
		on(err, v)
		pause.Reset(c.pause())
	}
}

// askAny returns nil when an address passes, else why none does.
func (a *asker) askAny(ctx context.Context, addrs []string) error {
	var errs []error
	for _, addr := range addrs {
		err := a.ask(ctx, addr)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
