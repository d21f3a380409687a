package admin

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/remora-proxy/remora/internal/must"
)

const (
	grafanaPage = "../../docs/grafana/dashboard.json"
	alertRules  = "../../docs/grafana/alerts.yaml"
)

// expressions returns the queries of the dashboard and the alert rules, by their place.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	text := must.ReadFile(t, grafanaPage)
	var page struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	if err := json.Unmarshal(text, &page); err != nil {
		t.Fatal(err)
	}
	for _, p := range page.Panels {
		for _, target := range p.Targets {
			// The query must keep the labels that the legend names.
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b[^)]*\)`).MatchString(target.Expr) {
					t.Errorf("panel %q: the legend names %s, which the query drops", p.Title, m[1])
				}
			}
			all["panel "+p.Title] = append(all["panel "+p.Title], target.Expr)
		}
	}
	for _, v := range page.Templating.List {
		if v.Name != "datasource" {
			all["variable "+v.Name] = append(all["variable "+v.Name], v.Query)
		}
	}
	rules := must.ReadFile(t, alertRules)
	pattern := regexp.MustCompile(`(?m)^      - alert: (\w+)\n        expr: (.*)$`)
	for _, m := range pattern.FindAllStringSubmatch(string(rules), -1) {
		all["alert "+m[1]] = append(all["alert "+m[1]], m[2])
	}
	if n := strings.Count(string(rules), "alert:"); n == 0 || n != len(pattern.FindAllString(string(rules), -1)) {
		t.Errorf("%d alerts, not all in the expected form", n)
	}
	return all
}

// exported is the families of a scrape, by the names that queries use.
type exported struct {
	families map[string]*dto.MetricFamily
}

// fromPrometheus are labels that a scrape adds.
var fromPrometheus = []string{"job", "instance"}

// family returns the family of a name, which may be a part of a histogram.
func (e *exported) family(name string) (family *dto.MetricFamily, part string) {
	if f := e.families[name]; f != nil {
		return f, ""
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		whole, ok := strings.CutSuffix(name, part)
		if f := e.families[whole]; ok && f != nil && f.GetType() == dto.MetricType_HISTOGRAM {
			return f, part
		}
	}
	return nil, ""
}

// values returns the values of a label of a family; ok is false if there are none.
func values(f *dto.MetricFamily, label string) (all []string, ok bool) {
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				all, ok = append(all, l.GetValue()), true
			}
		}
	}
	return all, ok
}

var (
	selector = regexp.MustCompile(`\b((?:remora|go|process)_\w+)(?:{([^}]*)})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|=|!=|!~)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without) \(([^)]*)\)`)
)

// check fails the test if a query uses a name or label that is not exported.
func (e *exported) check(t *testing.T, where, query string) {
	t.Helper()
	known := slices.Clone(fromPrometheus)
	found := selector.FindAllStringSubmatch(query, -1)
	if len(found) == 0 {
		t.Errorf("%s: no metric in %s", where, query)
	}
	for _, m := range found {
		f, part := e.family(m[1])
		if f == nil {
			t.Errorf("%s: %s is not exported", where, m[1])
			continue
		}
		own := slices.Clone(fromPrometheus)
		if part == "_bucket" {
			own = append(own, "le")
		}
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				own = append(own, l.GetName())
			}
		}
		known = append(known, own...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(own, l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
				continue
			}
			e.checkValues(t, where, f, l[1], l[3])
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for _, label := range strings.Split(m[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(known, label) {
				t.Errorf("%s: no metric in it has a label %s", where, label)
			}
		}
	}
}

// checkValues fails the test if a query compares a label to a value that it never has.
// Variables of the dashboard may have any value.
func (e *exported) checkValues(t *testing.T, where string, f *dto.MetricFamily, label, want string) {
	t.Helper()
	have, ok := values(f, label)
	if !ok || strings.HasPrefix(want, "$") {
		return
	}
	for _, one := range strings.Split(want, "|") {
		if !slices.Contains(have, one) {
			t.Errorf("%s: %s of %s is never %q, but one of %q", where, label, f.GetName(), one, have)
		}
	}
}

// TestQueries: the metrics and labels in queries of the Grafana dashboard and of the alert
// rules are exported.
func TestQueries(t *testing.T) {
	s := newSidecar(t, twoServices)
	s.update("compute", newApp(t))
	s.update("empty")
	s.request("GET", "/none")
	e := &exported{families: s.scrape()}
	queries := expressions(t)
	if len(queries) < 40 {
		t.Errorf("only %d panels and alerts", len(queries))
	}
	for where, list := range queries {
		for _, query := range list {
			e.check(t, where, query)
		}
	}
}
