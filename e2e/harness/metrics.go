package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/proxy/admin"
)

// AwaitLines waits until an access log has at least n lines.
func AwaitLines(t *testing.T, file string, n int) {
	t.Helper()
	eventually.Nil(t, fmt.Sprintf("%d lines in %s", n, file), func() error {
		if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "\n") < n {
			return fmt.Errorf("%q, %w", text, err)
		}
		return nil
	})
}

// AwaitHealth waits until all loops have this verdict on an endpoint, and the metrics
// show it.
func (p *Process) AwaitHealth(service, addr string, healthy bool) {
	p.T.Helper()
	line := fmt.Sprintf("remora_endpoint_healthy{endpoint=%q,service=%q} %d\n", addr, service, map[bool]int{true: 1}[healthy])
	eventually.Nil(p.T, fmt.Sprintf("the health of %s to be %v", addr, healthy), func() error {
		var state struct {
			Services map[string]struct {
				Version, Applied uint64
				Endpoints        []struct {
					Address string
					Healthy bool
				}
			}
		}
		_, body := p.Get("/endpoints")
		if err := json.Unmarshal([]byte(body), &state); err != nil {
			return err
		}
		s := state.Services[service]
		for _, e := range s.Endpoints {
			if e.Address == addr && (e.Healthy != healthy || s.Applied != s.Version) {
				return fmt.Errorf("%+v", s)
			}
		}
		if _, metrics := p.Get("/metrics"); !strings.Contains(metrics, line) {
			return fmt.Errorf("no metric %s", line)
		}
		return nil
	})
}

// Stats returns the statistics of a process.
func (p *Process) Stats() (s admin.Stats) {
	p.T.Helper()
	_, body := p.Get("/stats")
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		p.T.Fatal(err)
	}
	return s
}

// Outcome is the series of reloads with this outcome.
func Outcome(name string) string { return fmt.Sprintf("remora_config_reloads_total{outcome=%q}", name) }

// Says waits until the log of the process contains what.
func (p *Process) Says(t *testing.T, what string) {
	t.Helper()
	eventually.Nil(t, fmt.Sprintf("the log to say %q", what), func() error {
		ended := false
		select {
		case <-p.Exited:
			ended = true // so the log is complete
		default:
		}
		out := p.Output.String()
		switch {
		case strings.Contains(out, what):
			return nil
		case ended:
			t.Fatal("the process has ended")
		}
		return errors.New(out)
	})
}

// Metric returns the sum of the series whose name and first labels are those of series, or 0 if
// there are none.
func (p *Process) Metric(series string) (sum int) {
	_, body := p.Get("/metrics")
	pattern := regexp.QuoteMeta(series)
	if labels, ok := strings.CutSuffix(pattern, `\}`); ok {
		pattern = labels + `[,}].*`
	}
	for _, found := range regexp.MustCompile(`(?m)^`+pattern+` (\S+)$`).FindAllStringSubmatch(body, -1) {
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			p.T.Errorf("%s: %v", series, err)
		}
		sum += int(n)
	}
	return sum
}

// Counts checks that Metric returns n.
func (p *Process) Counts(series string, n int) {
	p.T.Helper()
	if got := p.Metric(series); got != n {
		p.T.Errorf("%s is %d, want %d", series, got, n)
	}
}

// AwaitMetric waits until a series is at least n.
func (p *Process) AwaitMetric(series string, n int) {
	p.T.Helper()
	eventually.Nil(p.T, fmt.Sprintf("%s to be %d", series, n), func() error {
		if got := p.Metric(series); got < n {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
}
