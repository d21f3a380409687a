package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

const (
	// checkStreak is how many checks in a row must disagree with the verdict
	// to change it: one that is slow for a moment is not down.
	checkStreak = 2

	// checkTimeout bounds a check together with its interval.
	checkTimeout = 5 * time.Second

	// checkBody is how much of an answer is read, so that the application sees
	// it taken and not reset.
	checkBody = 64 << 10
)

// verdict is what a check changes.
type verdict uint8

const (
	unchanged verdict = iota
	healthy           // the first pass, or enough of them after sick
	sick              // enough failures after healthy
)

// check asks whether the application is healthy: whether one of its addresses
// answers. Each ask is on a new connection, for an application that accepts
// none is down, whatever its old ones do.
type check struct {
	addrs    []string
	path     string // of the GET; "": a TCP connect
	interval time.Duration
	client   *http.Client

	begun  bool // has passed once
	state  verdict
	streak int // of outcomes that contradict state
}

func newCheckOf(c *config.Check, endpoints []config.Endpoint) *check {
	out := &check{path: c.HTTP, interval: c.Interval, state: sick}
	for _, e := range endpoints {
		out.addrs = append(out.addrs, e.Address)
	}
	out.client = &http.Client{
		// Below the interval, so that checks never pile up.
		Timeout:   min(checkTimeout, c.Interval*9/10),
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil},
		// A redirect is an answer; where it leads is not this application.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return out
}

// run checks now and then every interval until ctx is done, and calls on with
// each outcome, nil for a pass, and the verdict if that has changed.
func (c *check) run(ctx context.Context, on func(error, verdict)) {
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for {
		err := c.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		on(err, c.note(err == nil))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// note takes an outcome in and returns the new verdict, or unchanged. Before the
// first pass the application is sick, and that one pass makes it healthy.
func (c *check) note(passed bool) verdict {
	now := sick
	if passed {
		now = healthy
	}
	if now == c.state {
		c.streak = 0
		return unchanged
	}
	c.streak++
	if c.begun && c.streak < checkStreak {
		return unchanged
	}
	c.begun, c.state, c.streak = true, now, 0
	return now
}

// ask returns nil when an address passes, else why none does.
func (c *check) ask(ctx context.Context) error {
	var errs []error
	for _, addr := range c.addrs {
		err := c.askOne(ctx, addr)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *check) askOne(ctx context.Context, addr string) error {
	if c.path == "" {
		d := net.Dialer{Timeout: c.client.Timeout}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+c.path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "remora-check")
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, checkBody)
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("GET %s answered %s", req.URL, resp.Status)
	}
	return nil
}
