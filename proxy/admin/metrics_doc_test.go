package admin

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

const metricsPage = "../../docs/metrics.md"

// TestMetricsPage: docs/metrics.md tells of every metric what it is.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, line := range strings.Split(string(page), "\n") {
		if name, ok := strings.CutPrefix(line, "| `remora_"); ok {
			name, _, _ = strings.Cut(name, "`")
			rows[name] = line
		}
	}
	for _, f := range families {
		if want := row(f); rows[f.name] != want {
			t.Errorf("docs/metrics.md should have the row\n%s\nand has\n%s", want, rows[f.name])
		}
		delete(rows, f.name)
	}
	for name := range rows {
		t.Errorf("docs/metrics.md tells of remora_%s, which is not there", name)
	}
}

// row is how docs/metrics.md lists a family.
func row(f *family) string {
	labels := ""
	if len(f.labels) > 0 {
		labels = "`" + strings.Join(f.labels, "`, `") + "`"
	}
	return fmt.Sprintf("| `remora_%s` | %s | %s | %s |", f.name, f.kind, labels, f.help)
}

// TestRuntimeNames: docs/metrics.md names what is exported of Go and the operating
// system, but for the many of go_memstats_*.
func TestRuntimeNames(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:go|process)_[a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		told[m[1]] = true
	}
	for name := range newSidecar(t, twoServices).scrape() {
		if strings.HasPrefix(name, "remora_") || strings.HasPrefix(name, "go_memstats_") {
			continue
		}
		if !told[name] {
			t.Errorf("docs/metrics.md does not tell of %s", name)
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("docs/metrics.md tells of %s, which is not there", name)
	}
}

// TestCardinality: docs/metrics.md says how many series there may be.
func TestCardinality(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`(\d+) series a service, (\d+) an endpoint and (\d+) a loop`).FindStringSubmatch(string(page))
	if said == nil {
		t.Fatal("docs/metrics.md does not say how many series there may be")
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
	endpoint++ // endpoint_reported has none here
	if got := []string{fmt.Sprint(service), fmt.Sprint(endpoint), fmt.Sprint(loop)}; strings.Join(got, " ") != strings.Join(said[1:], " ") {
		t.Errorf("there are %v series a service, an endpoint and a loop; docs/metrics.md says %v", got, said[1:])
	}
}

// series is how many m is to Prometheus.
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
