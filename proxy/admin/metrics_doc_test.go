package admin

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/remora-proxy/remora/internal/docgen"
	"github.com/remora-proxy/remora/internal/must"
)

const metricsPage = "../../docs/metrics.md"

//go:generate go test -run ^TestMetricsPage$ . -update

var update = flag.Bool("update", false, "write the tables of docs/metrics.md or docs/errors.md")

// TestMetricsPage: the tables of docs/metrics.md have the families. With -update it
// writes the tables.
func TestMetricsPage(t *testing.T) {
	var rows []docgen.Row
	for _, f := range families {
		labels := ""
		if len(f.labels) > 0 {
			labels = "`" + strings.Join(f.labels, "`, `") + "`"
		}
		help := f.help
		if f.kind == "histogram" {
			help = "Histogram. " + help
		}
		if (f.kind == "counter") != strings.HasSuffix(f.name, "_total") {
			t.Errorf("docs/metrics.md says that only counters end with _total; %s is a %s", f.name, f.kind)
		}
		rows = append(rows, docgen.Row{Key: f.name, Cells: []string{"`" + prefix + f.name + "`", labels, help}})
	}
	docgen.Check(t, metricsPage, rows, *update)
}

// TestRuntimeNames: docs/metrics.md names the exported metrics of Go and the operating
// system, except the many of go_memstats_*.
func TestRuntimeNames(t *testing.T) {
	page := must.ReadFile(t, metricsPage)
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:go|process)_[a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		told[m[1]] = true
	}
	for name := range newSidecar(t, twoServices).scrape() {
		if strings.HasPrefix(name, "remora_") || strings.HasPrefix(name, "go_memstats_") {
			continue
		}
		if !told[name] {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("docs/metrics.md has %s, which is not exported", name)
	}
}

// TestCardinality: docs/metrics.md has the right numbers of series.
func TestCardinality(t *testing.T) {
	page := must.ReadFile(t, metricsPage)
	said := regexp.MustCompile(`(\d+) series per service, (\d+) per endpoint and (\d+) per loop`).FindStringSubmatch(string(page))
	if said == nil {
		t.Fatal("docs/metrics.md has no number of series")
	}
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	var service, endpoint, loop int
	for _, family := range s.scrape() {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch {
			case labels["endpoint"] != "":
				endpoint += series(m)
			case labels["service"] == "compute" && labels["route"] == "":
				service += series(m)
			case labels["loop"] == "0":
				loop += series(m)
			}
		}
	}
	endpoint++ // endpoint_reported has no series here
	if got := []string{fmt.Sprint(service), fmt.Sprint(endpoint), fmt.Sprint(loop)}; strings.Join(got, " ") != strings.Join(said[1:], " ") {
		t.Errorf("there are %v series per service, endpoint and loop; docs/metrics.md says %v", got, said[1:])
	}
}

// series returns the number of series of m.
func series(m *dto.Metric) int {
	if h := m.GetHistogram(); h != nil {
		n := len(h.GetBucket()) + 2 // sum and count
		if last := len(h.GetBucket()) - 1; last < 0 || h.GetBucket()[last].GetUpperBound() < 1e300 {
			n++ // +Inf
		}
		return n
	}
	return 1
}
