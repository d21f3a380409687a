package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// ForecastTable shows the forecast of shadow mode beside what hedging then did. It is ""
// without shadow mode.
func (r *Report) ForecastTable() string {
	if r.Off == nil || len(r.Off.Forecasts) == 0 {
		return ""
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tp99\tp99.9\textra load\t")
	row := func(name string, p99, p999 *float64, load float64) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f%%\t\n", name, milliseconds(p99), milliseconds(p999), 100*load)
	}
	measured := func(name string, p *Phase) {
		row("measured "+name, &p.P99, &p.P999, p.ExtraLoad)
		if p.Seen != nil {
			row("as the sidecar saw it", p.Seen.P99, p.Seen.P999, p.ExtraLoad)
		}
	}
	measured("without hedging", r.Off)
	for _, f := range r.Off.Forecasts {
		name := fmt.Sprintf("forecast with delay %.1f", f.DelayMS)
		if f.Current {
			name += " (the current one)"
		}
		row(name, f.P99, f.P999, f.ExtraLoad)
	}
	if r.On != nil {
		measured("with hedging", r.On)
	}
	w.Flush() // to memory, which can't fail
	b.WriteString(r.unseen())
	b.WriteString("\n")
	return b.String()
}

// unseenShare is the part of the P99 that may pass outside the sidecar without a remark.
const unseenShare = 0.1

// unseen says how much of the latency passed outside the sidecar, if it is much. The forecast
// can't know it.
func (r *Report) unseen() string {
	s := r.Off.Seen
	if s == nil || s.P99 == nil || r.Off.P99-*s.P99 <= unseenShare*r.Off.P99 {
		return ""
	}
	return fmt.Sprintf("\n%.2f of %.2f ms of the p99 passed before the sidecar had the request or after it had the\n"+
		"response: the caller, the kernel and the sidecar waiting for a CPU. No hedge helps there, and the\n"+
		"forecast does not know of it: compare it with what the sidecar saw.\n", r.Off.P99-*s.P99, r.Off.P99)
}

func milliseconds(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return fmt.Sprintf("%.2f", *ms)
}
