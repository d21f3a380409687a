package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/printable"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// frame is what "remora top" shows: two readings of a sidecar's statistics, and the
// difference between them.
type frame struct {
	before, now *admin.Stats
	recent      admin.Milliseconds
}

func (f *frame) seconds() float64 { return f.now.Uptime - f.before.Uptime }

// lines returns the frame as lines of at most so many characters.
func (f *frame) lines(columns int) []string {
	up := (time.Duration(f.now.Uptime) * time.Second).String()
	out := []string{fmt.Sprintf("remora %s  %s  %s  up %s  %d connections", f.now.Node, f.now.Phase, f.now.Version, up, f.now.Connections)}
	out = append(out, f.sources()...)
	out = append(out, f.loops(), "")
	if f.now.Try != "" {
		out = append(out, "no traffic yet: try "+f.now.Try, "")
	}
	out = append(out, f.services(columns)...)
	out = append(out, f.gates())
	out = append(out, f.verdicts()...)
	out = append(out, f.errors(columns)...)
	out = append(out, "")
	out = append(out, f.timeline(columns)...)
	out = append(out, "")
	out = append(out, f.endpoints(columns)...)
	for i, line := range out {
		out[i] = cutLine(line, columns)
	}
	return out
}

// cutLine returns the printable beginning of a line that fits into so many columns.
func cutLine(line string, columns int) string {
	runes := []rune(printable.Text(line, ""))
	return string(runes[:min(len(runes), columns)])
}

// sources returns lines about the configuration and the sources of endpoints.
func (f *frame) sources() []string {
	c := &f.now.Config
	line := fmt.Sprintf("configuration %d", c.Generation)
	for i := range f.now.Sources {
		line += "  " + f.now.Sources[i].String()
	}
	out := []string{line}
	if r := c.Refused; r != nil {
		reason, _, _ := strings.Cut(r.Reason, "\n")
		out = append(out, fmt.Sprintf("last reload refused at %s (%s): %s", r.At.Format(time.TimeOnly), r.Code, reason))
	}
	return out
}

// loops returns the line about the load of the loops.
func (f *frame) loops() string {
	var turns stats.Histogram
	var events uint64
	for i, l := range f.now.Loops {
		was := admin.LoopStats{Turns: make([]uint64, len(l.Turns))}
		if i < len(f.before.Loops) {
			was = f.before.Loops[i]
		}
		events += l.Events - was.Events
		for k := range min(len(l.Turns), len(was.Turns), len(turns.Counts)) {
			turns.Counts[k] += l.Turns[k] - was.Turns[k]
		}
	}
	return fmt.Sprintf("%d loops  %s turns/s of %.1f events  turn P50 %s  P99 %s  longest %s", len(f.now.Loops),
		short(float64(turns.Count())/f.seconds()), float64(events)/float64(max(turns.Count(), 1)),
		latency(&turns, .5), latency(&turns, .99), latency(&turns, 1))
}

// noService is the name of the row of requests that were refused before they had a service.
const noService = "(no service)"

func (f *frame) services(columns int) []string {
	t := table{columns: []column{
		{"service", 20, true, 0}, {"req/s", 9, false, 0}, {"P50", 9, false, 4}, {"P99", 9, false, 1}, {"P99.9", 9, false, 6},
		{"failed/s", 9, false, 0}, {"hedged", 8, false, 5}, {"won", 8, false, 8}, {"pending", 8, false, 3}, {"queued", 7, false, 7},
	}}
	if more := f.now.Unrouted() - min(f.before.Unrouted(), f.now.Unrouted()); more > 0 {
		rate := short(float64(more) / f.seconds())
		t.rows = append(t.rows, []string{noService, rate, "-", "-", "-", rate, "-", "-", "-", "-"})
	}
	for _, name := range slices.Sorted(maps.Keys(f.now.Services)) {
		s, was := f.now.Services[name], f.before.Services[name]
		d := s.Delta(&was)
		var h stats.Histogram
		copy(h.Counts[:], d.Counts)
		requests := d.Requests()
		hedged := d.Hedges.Sent - min(d.Hedges.Missed, d.Hedges.Sent) // a hedge that missed may have been sent before
		t.rows = append(t.rows, []string{
			name, short(float64(requests) / f.seconds()), latency(&h, .5), latency(&h, .99), latency(&h, .999),
			short(float64(d.Outcomes["5xx"]+d.Outcomes["failed"]) / f.seconds()),
			percent(hedged, requests), percent(d.Hedges.Won, hedged), strconv.Itoa(s.Pending), strconv.Itoa(s.Queued),
		})
	}
	return t.lines(columns)
}

// maxErrors is how many error codes a frame shows.
const maxErrors = 8

// errors returns the table of the sidecar's own error responses, most frequent ones of the frame first.
func (f *frame) errors(columns int) []string {
	type row struct {
		listener, code string
		more, all      uint64
	}
	var list []row
	for name, l := range f.now.Listeners {
		for code, n := range l.Errors {
			r := row{listener: name, code: code, more: n, all: n}
			if was := f.before.Listeners[name]; was != nil && was.Errors[code] <= n {
				r.more -= was.Errors[code]
			}
			list = append(list, r)
		}
	}
	if list == nil {
		return nil
	}
	slices.SortFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.more, a.more), cmp.Compare(b.all, a.all), cmp.Compare(a.listener, b.listener), cmp.Compare(a.code, b.code))
	})
	t := table{columns: []column{{"errors of listener", 20, true, 0}, {"code", 24, true, 0}, {"each second", 11, false, 0}, {"in all", 9, false, 1}}}
	for _, r := range list[:min(len(list), maxErrors)] {
		t.rows = append(t.rows, []string{r.listener, r.code, short(float64(r.more) / f.seconds()), strconv.FormatUint(r.all, 10)})
	}
	out := append([]string{""}, t.lines(columns)...)
	if more := len(list) - maxErrors; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// gates returns the line about the gates that stopped hedges, most frequent first.
func (f *frame) gates() string {
	sums := map[string]uint64{}
	for name, s := range f.now.Services {
		was := f.before.Services[name]
		for gate, n := range s.Delta(&was).Hedges.Gates {
			sums[gate] += n
		}
	}
	var out []string
	for _, gate := range slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b))
	}) {
		if sums[gate] > 0 {
			out = append(out, fmt.Sprintf("%s %d", gate, sums[gate]))
		}
	}
	if out == nil {
		return "not hedged: -"
	}
	return "not hedged: " + strings.Join(out, "  ")
}

// maxVerdicts is for how many services a frame says what hedging brings.
const maxVerdicts = 3

// verdicts returns lines that say what hedging brings, or would bring, to the busiest services, which delay was
// chosen, and in which period replicas stall together.
func (f *frame) verdicts() (out []string) {
	requests := map[string]uint64{}
	for name, s := range f.now.Services {
		if s.Hedges.Verdict != "" {
			was := f.before.Services[name]
			d := s.Delta(&was)
			requests[name] = d.Requests()
		}
	}
	busiest := slices.SortedFunc(maps.Keys(requests), func(a, b string) int {
		return cmp.Or(cmp.Compare(requests[b], requests[a]), cmp.Compare(a, b))
	})
	for _, name := range busiest[:min(len(busiest), maxVerdicts)] {
		hedges := f.now.Services[name].Hedges
		out = append(out, shorten(name, 20)+": "+hedges.Verdict)
		if hedges.Choice != "" {
			out = append(out, shorten(name, 20)+": "+hedges.Choice)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.now.Services)) {
		if line := f.now.Services[name].Hedges.Periodic; line != "" && len(out) < 3*maxVerdicts {
			out = append(out, line)
		}
	}
	return out
}

// timeline returns the charts of the last milliseconds. A column shows the highest value
// of its milliseconds.
func (f *frame) timeline(columns int) []string {
	ms := &f.recent
	n := len(ms.Arrivals)
	if n == 0 {
		return nil
	}
	total := uint64(0)
	for _, k := range ms.Arrivals {
		total += uint64(k)
	}
	most, width := slices.Max(ms.Arrivals), max(columns-10, 10)
	return []string{
		fmt.Sprintf("last %.1f s by the millisecond: at most %d requests in one (%s/s), %s/s on average; worst latency %s",
			float64(n)/1000, most, short(float64(most)*1000), short(float64(total)*1000/float64(n)), orDash(slices.Max(ms.Worst))),
		"requests  " + bars(ms.Arrivals, width),
		"bytes     " + bars(ms.Bytes, width),
		"latency   " + bars(ms.Worst, width),
	}
}

func (f *frame) endpoints(columns int) []string {
	type row struct {
		service string
		now     admin.EndpointState
		was     admin.EndpointState
	}
	var list []row
	for name, s := range f.now.Services {
		was := map[string]admin.EndpointState{}
		for _, e := range f.before.Services[name].Endpoints {
			was[e.Address] = e
		}
		for _, e := range s.Endpoints {
			before, known := was[e.Address]
			if !known { // of many, /stats has only the worst
				before = e
			}
			list = append(list, row{name, e, before})
		}
	}
	// Endpoints with problems come first.
	slices.SortFunc(list, func(a, b row) int {
		return cmp.Or(-cmp.Compare(a.now.Severity(), b.now.Severity()), -cmp.Compare(a.now.Pending, b.now.Pending),
			cmp.Compare(a.service, b.service), cmp.Compare(a.now.Address, b.now.Address))
	})
	t := table{columns: []column{
		{"endpoint", 28, true, 0}, {"service", 20, true, 5}, {"state", 10, true, 0}, {"pending", 8, false, 2},
		{"attempts/s", 11, false, 4}, {"failed/s", 9, false, 1}, {"latency", 9, false, 3}, {"conns", 6, false, 6},
	}}
	for _, r := range list {
		t.rows = append(t.rows, []string{
			r.now.Address, r.service, admin.EndpointStates[r.now.Severity()], strconv.Itoa(r.now.Pending), f.rate(r.was.Attempts, r.now.Attempts),
			f.rate(r.was.Failed, r.now.Failed), orDash(int64(r.now.LatencyMS * 1000)), strconv.Itoa(r.now.Connections),
		})
	}
	return t.lines(columns)
}

// rate returns the rate of a counter, which may have been reset.
func (f *frame) rate(was, now uint64) string {
	if now < was {
		was = 0
	}
	return short(float64(now-was) / f.seconds())
}

// levels are the characters for the heights of a bar.
var levels = []rune(" ▁▂▃▄▅▆▇█")

// bars draws values in the given number of columns. A column shows the highest value of
// its part.
func bars[T uint32 | uint64 | int64](values []T, columns int) string {
	columns = min(columns, len(values))
	var top T
	for _, v := range values {
		top = max(top, v)
	}
	out := make([]rune, columns)
	for i := range out {
		var high T
		for _, v := range values[i*len(values)/columns : (i+1)*len(values)/columns] {
			high = max(high, v)
		}
		level := 0
		if high > 0 {
			level = 1 + int(float64(high)/float64(top)*float64(len(levels)-2))
		}
		out[i] = levels[level]
	}
	return string(out)
}

// latency formats the upper bound of a quantile of h, or "-" if h is empty.
func latency(h *stats.Histogram, q float64) string {
	if h.Count() == 0 {
		return "-"
	}
	return micros(h.Quantile(q).Microseconds())
}

// orDash is micros, or "-" of nothing.
func orDash(us int64) string {
	if us == 0 {
		return "-"
	}
	return micros(us)
}

// micros formats a time with up to three digits.
func micros(us int64) string {
	switch d := time.Duration(us) * time.Microsecond; {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", us)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(us)/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", us/1000)
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

// short formats a number with about three digits.
func short(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.1fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 10 || x == 0:
		return fmt.Sprintf("%.0f", x)
	default:
		return fmt.Sprintf("%.1f", x)
	}
}

func percent(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// shorten shortens a text at its beginning, where names and addresses are often equal.
func shorten(text string, length int) string {
	if runes := []rune(text); len(runes) > length {
		return "…" + string(runes[len(runes)-length+1:])
	}
	return text
}
