package demo

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/remora-proxy/remora/lab/report"
)

// durations are the sidecar's cumulative counts of requests by latency, in order of the bounds.
type durations []struct {
	most  float64 // seconds; +Inf in the last
	count float64
}

var bucket = regexp.MustCompile(
	`(?m)^remora_request_duration_seconds_bucket\{service="compute",le="(.*)"\} (.*)$`)

// parseDurations reads the response to GET /metrics.
func parseDurations(metrics []byte) (durations, error) {
	var out durations
	for _, line := range bucket.FindAllSubmatch(metrics, -1) {
		most, badBound := strconv.ParseFloat(string(line[1]), 64)
		count, badCount := strconv.ParseFloat(string(line[2]), 64)
		if err := cmp.Or(badBound, badCount); err != nil {
			return nil, fmt.Errorf("demo: GET /metrics: %w", err)
		}
		out = append(out, struct{ most, count float64 }{most, count})
	}
	if len(out) == 0 {
		return nil, errors.New("demo: GET /metrics: no latencies of service compute")
	}
	return out, nil
}

// since returns the counts of d after before, an earlier state of the same sidecar.
func (d durations) since(before durations) durations {
	out := slices.Clone(d)
	for i := range before {
		out[i].count -= before[i].count
	}
	return out
}

// seen returns what the table shows of d, or nil if d is empty.
func (d durations) seen() *report.Seen {
	if len(d) == 0 || d[len(d)-1].count == 0 {
		return nil
	}
	return &report.Seen{P99: d.quantile(.99), P999: d.quantile(.999)}
}

// quantile estimates the q-quantile in milliseconds. It assumes that the share of slower
// requests falls exponentially within a bucket, as tails do. The error is a few per cent if a
// bucket spans less than a factor of two. Nil means above all bounds.
func (d durations) quantile(q float64) *float64 {
	total, low, above := d[len(d)-1].count, 0.0, 1.0
	for _, b := range d {
		rest := max(1-b.count/total, .5/total) // at least half a request, because of the logarithm
		if b.count >= q*total {
			if math.IsInf(b.most, 1) {
				return nil
			}
			at := 1e3 * (low + (b.most-low)*math.Log(above/(1-q))/math.Log(above/rest))
			return &at
		}
		low, above = b.most, rest
	}
	return nil
}
