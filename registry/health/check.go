// Package health asks endpoints and applications actively whether they work. An
// answer that is slow or bad once changes nothing: a verdict changes when enough
// answers in a row contradict it.
package health

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

const (
	// maxBody is how much of an answer is read, so that the application sees it
	// taken and not reset.
	maxBody = 64 << 10

	// maxHeader bounds the header section of an answer.
	maxHeader = 64 << 10
)

// Check says what is asked, and what its answers are held against. All but Path
// are above 0.
type Check struct {
	Path     string        // of a GET; "": a TCP connect
	Interval time.Duration // from one check to the next, up to a tenth more or less
	Timeout  time.Duration // of one check, until the end of its answer

	Healthy   int // passes in a row that make the unhealthy healthy
	Unhealthy int // failures in a row that make the healthy unhealthy
}

// pause is the time from one check to the next. It varies, so that those of many
// sidecars do not fall into step.
func (c *Check) pause() time.Duration {
	return c.Interval*9/10 + rand.N(c.Interval/5+1)
}

// asker makes the checks. Each is on a new connection, for an application that
// accepts none is down, whatever its old ones do.
type asker struct {
	path   string
	client http.Client
}

func newAsker(c *Check) *asker {
	return &asker{path: c.Path, client: http.Client{
		Timeout:   c.Timeout,
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil, MaxResponseHeaderBytes: maxHeader},
		// A redirect is an answer; where it leads is not this application.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask returns nil when addr passes: it takes a connection, or answers the GET
// with a status from 200 to 399.
func (a *asker) ask(ctx context.Context, addr string) error {
	if a.path == "" {
		d := net.Dialer{Timeout: a.client.Timeout}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+a.path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "remora-check")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("GET %s answered %s", req.URL, resp.Status)
	}
	return nil
}
