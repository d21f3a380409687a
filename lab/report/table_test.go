package report

import (
	"strings"
	"testing"
)

func TestForecastTable(t *testing.T) {
	p99, p999 := 3.4, 5.6
	seen := 3.9
	r := &Report{Off: &Phase{P99: 4, P999: 40, Seen: &Seen{P99: &seen}}, On: &Phase{P99: 3.5, P999: 6, ExtraLoad: .03, Seen: &Seen{P99: &p99, P999: &p999}}}
	if got := r.ForecastTable(); got != "" {
		t.Errorf("without a forecast: %q", got)
	}
	r.Off.Forecasts = []Forecast{
		{DelayMS: 2.6, Current: true, P99: &p99, P999: &p999, ExtraLoad: .031},
		{DelayMS: 20},
	}
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(r.ForecastTable()), "\n") {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"p99 p99.9 extra load",
		"measured without hedging 4.00 40.00 0.00%",
		"as the sidecar saw it 3.90 – 0.00%",
		"forecast with delay 2.6 (the current one) 3.40 5.60 3.10%",
		"forecast with delay 20.0 – – 0.00%",
		"measured with hedging 3.50 6.00 3.00%",
		"as the sidecar saw it 3.40 5.60 3.00%",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestForecastTableUnseen checks the remark on latency outside the sidecar.
func TestForecastTableUnseen(t *testing.T) {
	for seen, want := range map[float64]string{9.5: "", 8.5: "1.50 of 10.00 ms of the p99 passed"} {
		r := &Report{Off: &Phase{P99: 10, Seen: &Seen{P99: &seen}, Forecasts: []Forecast{{DelayMS: 20}}}}
		got := r.ForecastTable()
		if said := strings.Contains(got, "passed before the sidecar"); said != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%v ms of 10 seen: %s", seen, got)
		}
	}
}
