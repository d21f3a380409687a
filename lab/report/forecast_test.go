package report

import (
	"strings"
	"testing"
)

func TestForecastTable(t *testing.T) {
	p99, p999 := 3.4, 5.6
	r := &Report{Off: &Phase{P99: 4, P999: 40}, On: &Phase{P99: 3.5, P999: 6, ExtraLoad: .03}}
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
		"forecast with delay 2.6 (the current one) 3.40 5.60 3.10%",
		"forecast with delay 20.0 – – 0.00%",
		"measured with hedging 3.50 6.00 3.00%",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
