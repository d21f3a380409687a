package load

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/lab/steal"
)

// ErrorKind says why a request failed.
type ErrorKind string

const (
	ErrConnect  ErrorKind = "connect"  // no connection could be opened
	ErrTimeout  ErrorKind = "timeout"  // no complete response in time
	ErrReset    ErrorKind = "reset"    // the connection ended before the response
	ErrProtocol ErrorKind = "protocol" // the response is not HTTP
	ErrStatus   ErrorKind = "status"   // the response is not 2xx
	ErrNonce    ErrorKind = "nonce"    // the response belongs to another request
	ErrStray    ErrorKind = "stray"    // a response that no request awaits; it counts beside the requests
)

// Result is what a load measured. Fields are without the warm-up unless they say otherwise.
type Result struct {
	Sent   int64 // with the warm-up
	Counts Counts
	// Latency has the nanoseconds from the intended send time to each good response, and to
	// each timeout, without which the tail would lack the slowest requests.
	Latency *hdrhistogram.Histogram
	// Lag has the nanoseconds from a request's intended send time to the moment before it was
	// written, with any wait for a connection: the generator's own part of the latencies.
	Lag         *hdrhistogram.Histogram
	Samples     []Sample      // in the order of ends, if Options.Samples is set
	Stops       []steal.Stop  // of processors, if the caller watched them
	Elapsed     time.Duration // from the end of the warm-up to the last response
	Connections int           // opened in all
}

func newResult() Result {
	return Result{
		Counts:  Counts{Errors: map[ErrorKind]int64{}, Statuses: map[int]int64{}},
		Latency: newHistogram(), Lag: newHistogram(),
	}
}

// Add adds o to r, which may be the zero value. A connection that both used counts twice.
func (r *Result) Add(o *Result) {
	if r.Latency == nil {
		*r = newResult()
	}
	r.Sent += o.Sent
	r.Counts.Requests += o.Counts.Requests
	for kind, n := range o.Counts.Errors {
		r.Counts.Errors[kind] += n
	}
	for status, n := range o.Counts.Statuses {
		r.Counts.Statuses[status] += n
	}
	r.Samples = append(r.Samples, o.Samples...)
	r.Stops = append(r.Stops, o.Stops...)
	r.Latency.Merge(o.Latency)
	r.Lag.Merge(o.Lag)
	r.Elapsed += o.Elapsed
	r.Connections += o.Connections
}

// Counts are requests by result.
type Counts struct {
	Requests int64
	Errors   map[ErrorKind]int64
	Statuses map[int]int64
}

// Failed is the sum of all kinds of error.
func (c Counts) Failed() int64 {
	var n int64
	for _, v := range c.Errors {
		n += v
	}
	return n
}

// Quantile returns the latency that the share q of the requests did not exceed.
func (r *Result) Quantile(q float64) time.Duration { return quantile(r.Latency, q) }

// Max returns the largest latency.
func (r *Result) Max() time.Duration { return time.Duration(r.Latency.Max()) }

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q * 100))
}

// newHistogram returns a histogram of 1 µs to 1 min in nanoseconds, with three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1000, int64(time.Minute), 3) }

// record counts a time beyond 1 min as 1 min.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(max(d, 0), time.Minute))) // in range: it can't fail
}

// Point is a point of a latency curve.
type Point struct {
	Quantile float64 `json:"quantile"`
	MS       float64 `json:"ms"`
}

// Curve returns the latency at quantiles that get denser towards 1: nine for each decade up to
// the fifth nine, as far as the number of requests allows.
func Curve(h *hdrhistogram.Histogram) []Point {
	total := float64(h.TotalCount())
	var points []Point
	for rest := 1.0; rest > 1e-5 && rest*total >= 1; rest /= 10 {
		for i := range 9 {
			above := rest * float64(10-i) / 10 // the share of requests above
			if above*total < 1 {
				break
			}
			q := 1 - above
			points = append(points, Point{q, ms(quantile(h, q))})
		}
	}
	return append(points, Point{1, ms(time.Duration(h.Max()))})
}

// JSON is the form of a Result for programs. Latencies are in milliseconds.
type JSON struct {
	Requests   int64               `json:"requests"`
	Sent       int64               `json:"sent"` // with the warm-up
	Errors     int64               `json:"errors"`
	ErrorKinds map[ErrorKind]int64 `json:"error_kinds"`
	Statuses   map[int]int64       `json:"statuses"`
	Seconds    float64             `json:"seconds"`
	Rate       float64             `json:"achieved_rate"` // requests per second
	Mean       float64             `json:"mean_ms"`
	Latencies
	P99SendLag  float64      `json:"p99_send_lag_ms"`
	MaxSendLag  float64      `json:"max_send_lag_ms"`
	Connections int          `json:"connections"`
	Undisturbed *Undisturbed `json:"undisturbed,omitempty"` // if samples were kept
	Histogram   string       `json:"histogram"`             // HdrHistogram V2, compressed, base64; nanoseconds
}

// Latencies describe a histogram. All values are in milliseconds.
type Latencies struct {
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	P9999 float64 `json:"p9999_ms"`
	Max   float64 `json:"max_ms"`
	Curve []Point `json:"curve"`
}

func latenciesOf(h *hdrhistogram.Histogram) Latencies {
	return Latencies{
		P50: ms(quantile(h, .5)), P90: ms(quantile(h, .9)), P99: ms(quantile(h, .99)),
		P999: ms(quantile(h, .999)), P9999: ms(quantile(h, .9999)), Max: ms(time.Duration(h.Max())),
		Curve: Curve(h),
	}
}

func (l Latencies) text() string {
	return fmt.Sprintf("p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f  p99.99 %.2f  max %.2f", l.P50, l.P90, l.P99, l.P999, l.P9999, l.Max)
}

// Undisturbed is the part of a Result that no stop of a processor disturbed.
type Undisturbed struct {
	Requests int64   `json:"requests"`
	Stops    int     `json:"stops"` // of at least steal.Least
	Stopped  float64 `json:"stopped_ms"`
	Latencies
}

// Undisturbed returns the latencies, in nanoseconds, of the samples that r.Stops did not disturb.
// Only the due time decides: slow requests are as likely to stay as fast ones.
func (r *Result) Undisturbed() *hdrhistogram.Histogram {
	h := newHistogram()
	disturbed := steal.Disturbed(r.Stops)
	for _, s := range r.Samples {
		if !disturbed(s.Due) {
			record(h, s.Latency)
		}
	}
	return h
}

// undisturbed returns nil if there are no samples.
func (r *Result) undisturbed() *Undisturbed {
	if r.Samples == nil {
		return nil
	}
	h := r.Undisturbed()
	u := &Undisturbed{Requests: h.TotalCount(), Stops: len(r.Stops), Latencies: latenciesOf(h)}
	for _, s := range r.Stops {
		u.Stopped += ms(s.To.Sub(s.From))
	}
	return u
}

// JSON converts r.
func (r *Result) JSON() (JSON, error) {
	encoded, err := r.Latency.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return JSON{}, fmt.Errorf("load: histogram: %w", err)
	}
	return JSON{
		Requests: r.Counts.Requests, Sent: r.Sent,
		Errors: r.Counts.Failed(), ErrorKinds: r.Counts.Errors, Statuses: r.Counts.Statuses,
		Seconds: r.Elapsed.Seconds(), Rate: r.rate(),
		Mean: r.Latency.Mean() / 1e6, Latencies: latenciesOf(r.Latency),
		P99SendLag: ms(quantile(r.Lag, .99)), MaxSendLag: ms(time.Duration(r.Lag.Max())),
		Connections: r.Connections,
		Undisturbed: r.undisturbed(),
		Histogram:   base64.StdEncoding.EncodeToString(encoded),
	}, nil
}

func (r *Result) rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Counts.Requests) / r.Elapsed.Seconds()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Compare writes results side by side as a Markdown table, with names as the head.
func Compare(w io.Writer, names []string, results []*Result) error {
	var b strings.Builder
	b.WriteString("\n| | " + strings.Join(names, " | ") + " |\n")
	b.WriteString("|---|" + strings.Repeat("---:|", len(names)) + "\n")
	for _, row := range []struct {
		name   string
		format string
		value  func(*Result) float64
	}{
		{"p50 ms", "%.2f", func(r *Result) float64 { return ms(r.Quantile(.5)) }},
		{"p90 ms", "%.2f", func(r *Result) float64 { return ms(r.Quantile(.9)) }},
		{"p99 ms", "%.2f", func(r *Result) float64 { return ms(r.Quantile(.99)) }},
		{"p99.9 ms", "%.2f", func(r *Result) float64 { return ms(r.Quantile(.999)) }},
		{"max ms", "%.2f", func(r *Result) float64 { return ms(r.Max()) }},
		{"requests/s", "%.0f", (*Result).rate},
		{"failed", "%.0f", func(r *Result) float64 { return float64(r.Counts.Failed()) }},
	} {
		b.WriteString("| " + row.name + " |")
		for _, r := range results {
			fmt.Fprintf(&b, " "+row.format+" |", row.value(r))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Text writes r for people.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "requests   %d in %.1f s (%.0f/s), %d errors\n",
		r.Counts.Requests, r.Elapsed.Seconds(), r.rate(), r.Counts.Failed())
	for _, k := range slices.Sorted(maps.Keys(r.Counts.Errors)) {
		fmt.Fprintf(&b, "           %-9s %d\n", k, r.Counts.Errors[k])
	}
	for _, s := range slices.Sorted(maps.Keys(r.Counts.Statuses)) {
		fmt.Fprintf(&b, "           HTTP %d  %d\n", s, r.Counts.Statuses[s])
	}
	fmt.Fprintf(&b, "latency ms mean %.2f  %s\n", r.Latency.Mean()/1e6, latenciesOf(r.Latency).text())
	fmt.Fprintf(&b, "send lag   p99 %.3f ms, max %.3f ms (the generator's own part)\n",
		ms(quantile(r.Lag, .99)), ms(time.Duration(r.Lag.Max())))
	if u := r.undisturbed(); u != nil {
		fmt.Fprintf(&b, "undisturbed %d requests: %s\n", u.Requests, u.text())
		fmt.Fprintf(&b, "           a processor stood still %d times, %.1f ms in all\n", u.Stops, u.Stopped)
	}
	fmt.Fprintf(&b, "opened     %d connections\n", r.Connections)
	_, err := io.WriteString(w, b.String())
	return err
}
