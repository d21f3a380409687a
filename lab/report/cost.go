package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"path/filepath"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/lab/bench"
)

// costProxies are the proxies of cost.svg. A row is such a name and a number of hops. All
// ratios are to costBase.
var costProxies = []costProxy{
	{"remora", "Remora", "#1769aa"},
	{costBase, "HAProxy", "#8a8f98"},
	{"nginx", "nginx", "#2a8a4a"},
	{"relay", "TCP relay, parses nothing", "#c2571a"},
}

type costProxy struct{ Name, Title, Colour string }

const costBase = "haproxy"

// titled returns costProxies with the releases that were measured in their titles.
func titled(m *bench.Machine) []costProxy {
	all := slices.Clone(costProxies)
	for i := range all {
		if release := m.Release(bench.Program(all[i].Name)); release != "" {
			all[i].Title += " " + release
		}
	}
	return all
}

// costWork is a group of bars: the CPU of so many hops under a load.
type costWork struct {
	title  string
	load   bench.Load
	hops   int
	figure bench.Figure
}

// costWorks are all groups of cost.svg, from top to bottom.
func costWorks() []costWork {
	at64, fresh := bench.Closed(64, 0), bench.NewConnections(64, 0)
	works := []costWork{
		{"1 connection", bench.Closed(1, 0), 2, bench.CPU},
		{"64 connections", at64, 2, bench.CPU},
		{"64 connections, 1 hop", at64, 1, bench.CPU},
		{"200 requests/s", bench.Open(200, 0), 2, bench.CPU},
		{"2,000 requests/s", bench.Open(2000, 0), 2, bench.CPU},
		{"new connections", fresh, 2, bench.CPU},
		{"new connections, 1 hop", fresh, 1, bench.CPU},
	}
	for _, size := range []struct {
		name  string
		bytes int
	}{{"64 KiB", 64 << 10}, {"1 MiB", 1 << 20}, {"4 MiB", 4 << 20}} {
		works = append(works,
			costWork{"responses of " + size.name, bench.Responses(size.bytes, 0), 2, bench.PerGiB},
			costWork{"requests of " + size.name, bench.Requests(size.bytes, 0), 2, bench.PerGiB})
	}
	return works
}

// costGroup is the bars of a kind of work, with the pixels of their tops.
type costGroup struct {
	Title string
	Bars  []costBar
}

type costBar struct {
	Colour string
	Ratio  float64
	Y      int
}

// Costs draws cost.svg into dir from the samples of the bench of work, a JSON file.
func Costs(dir, work string) error {
	var measured struct {
		Samples bench.Samples
		Machine bench.Machine
	}
	if err := readJSON(work, &measured); err != nil {
		return err
	}
	groups := costGroups(measured.Samples)
	if len(groups) == 0 {
		return fmt.Errorf("report: %s has no ratios to %s", work, costBase)
	}
	return draw(filepath.Join(dir, "cost.svg"), func() (template.HTML, error) { return costSVG(groups, titled(&measured.Machine)) })
}

// costGroups has the bars whose row was measured in the same round as that of costBase: medians
// of the rounds.
func costGroups(samples bench.Samples) (groups []costGroup) {
	for _, w := range costWorks() {
		g := costGroup{Title: w.title}
		row := func(proxy string) string { return fmt.Sprintf("%s-%d", proxy, w.hops) }
		for _, p := range costProxies {
			if ratios := samples.Ratios(row(p.Name), row(costBase), w.load.Name, w.figure); len(ratios) > 0 {
				g.Bars = append(g.Bars, costBar{Colour: p.Colour, Ratio: median(ratios)})
			}
		}
		if len(g.Bars) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

//go:embed cost.tmpl
var costText string

var costTemplate = template.Must(template.New("").Parse(costText))

// costSVG draws bars of 180 to 660 pixels, below a legend. It sets their Y.
func costSVG(groups []costGroup, proxies []costProxy) (template.HTML, error) {
	const top, pitch, gap = 66, 13, 10
	bottom, most := top, 1.0
	for _, g := range groups {
		for i := range g.Bars {
			g.Bars[i].Y = bottom
			most = max(most, g.Bars[i].Ratio)
			bottom += pitch
		}
		bottom += gap
	}
	axis := linearAxis(most)
	width := func(v float64) string { return fmt.Sprintf("%.1f", 480*axis.scale(v)) }
	x := func(v, right float64) string { return fmt.Sprintf("%.1f", 180+480*axis.scale(v)+right) }
	var b strings.Builder
	err := costTemplate.Execute(&b, map[string]any{
		"Proxies": proxies, "Groups": groups, "Ticks": axis.Ticks, "X": x, "Width": width,
		"Top": top - 6, "Bottom": bottom, "Labels": bottom + 16, "Title": bottom + 36, "Height": bottom + 48,
		"Right":  func(i int) int { return 180 + 110*i },
		"Below":  func(y, pixels int) int { return y + pixels },
		"Middle": func(g costGroup) int { return g.Bars[0].Y + len(g.Bars)*pitch/2 + 4 },
	})
	return template.HTML(b.String()), err
}
