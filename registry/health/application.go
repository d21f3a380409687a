package health

import (
	"context"
	"errors"
	"time"
)

// Verdict is how an outcome changes the health.
type Verdict uint8

const (
	Unchanged Verdict = iota
	Healthy           // the first pass, or enough of them after Unhealthy
	Unhealthy         // enough failures after Healthy
)

// Application checks the health of an application with some addresses every c.Interval, until
// ctx is done. A check passes if one of the addresses passes. before is the verdict of earlier
// checks; Unchanged means none: the application counts as unhealthy until its first pass. on
// gets the outcome of each check, nil for a pass, and the verdict if it has changed.
func Application(ctx context.Context, c Check, addrs []string, before Verdict, on func(error, Verdict)) {
	a, j := newAsker(&c, nil), judge{healthy: before == Healthy, unproven: before == Unchanged}
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

// askAny returns nil if any address passes, and otherwise the errors of all.
func (a *asker) askAny(ctx context.Context, addrs []string) error {
	var errs []error
	for _, addr := range addrs {
		err := a.ask(ctx, addr, "")
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
