package main

import (
	"fmt"
	"time"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

var endpointStates = [...]string{"ok", "unused", "stalled", "unhealthy", "ejected"}

// rank is how much an endpoint's state needs a look.
func rank(e *admin.EndpointState) int {
	switch {
	case e.Ejected != "":
		return 4
	case e.Healthy != nil && !*e.Healthy:
		return 3
	case e.Stalled:
		return 2
	case e.Unused:
		return 1
	}
	return 0
}

func state(e *admin.EndpointState) string { return endpointStates[rank(e)] }

// levels are the heights of a bar that is one character.
var levels = []rune(" ▁▂▃▄▅▆▇█")

// bars draws values in so many columns, each the highest of its part.
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

// latency is a quantile of h, as the bound that it is below; "-" of nothing.
func latency(h *stats.Histogram, q float64) string {
	if h.Count() == 0 {
		return "-"
	}
	return micros(h.Quantile(q).Microseconds())
}

// micros is a time to three digits or so.
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

// short is a number to three digits or so.
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

// cut shortens a text from its front, where names and addresses are alike.
func cut(text string, length int) string {
	if runes := []rune(text); len(runes) > length {
		return "…" + string(runes[len(runes)-length+1:])
	}
	return text
}
