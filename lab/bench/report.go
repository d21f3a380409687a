package bench

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"
)

// Report is what a run measured.
type Report struct {
	Began     time.Time          `json:"began"`
	Rounds    int                `json:"rounds"`
	Machine   Machine            `json:"machine"`
	Tools     Tools              `json:"tools"`
	Missing   map[Program]string `json:"missing"` // programs, and how to install them
	Rows      []string           `json:"rows"`
	Loads     []string           `json:"loads"`
	Rest      Rest               `json:"rest"`
	Kind      Kind               `json:"kind,omitempty"`
	GRPC      bool               `json:"grpc,omitempty"`       // the rows are called by it
	Cores     map[string]string  `json:"cores,omitempty"`      // by the row: who has which processors
	MostCores int                `json:"most_cores,omitempty"` // of a sidecar
	Samples   Samples            `json:"samples"`

	Unwatched string    `json:"unwatched,omitempty"` // why the processors were not watched
	Failures  []Failure `json:"failures,omitempty"`
}

// Failure says that a row could not be measured in a round.
type Failure struct {
	Round int    `json:"round"`
	Row   string `json:"row"`
	Why   string `json:"why"` // with the end of a log
}

type column struct {
	title  string
	figure Figure
	format string
	scale  float64
	ranged bool // with the minimum and the maximum of the rounds
	ratio  bool // it is compared between rows
}

var loadColumns = []column{
	{"CPU µs/request", CPU, "%.1f", 1, true, true},
	{"handshakes/s of a core", PerCore, "%.0f", 1, true, false},
	{"CPU s/GiB", PerGiB, "%.2f", 1, true, true},
	{"user", User, "%.1f", 1, false, false},
	{"system", System, "%.1f", 1, false, false},
	{"first proxy", First, "%.1f", 1, false, false},
	{"requests/s", Rate, "%.0f", 1, true, true},
	{"p50 µs", P50, "%.0f", 1, true, true},
	{"added p50 µs", AddedP50, "%.0f", 1, true, true},
	{"p99 µs", P99, "%.0f", 1, true, true},
	{"p99.9 µs", P999, "%.0f", 1, true, true},
	{"max ms", Max, "%.1f", 1e-3, true, false},
	{"RSS MiB", RSS, "%.0f", 1, false, false},
	{"GC cycles", Collections, "%.0f", 1, false, false},
	{"stopped %", Stopped, "%.1f", 1, true, false},
	{"disturbed %", Disturbed, "%.1f", 1, true, false},
}

var restColumns = []column{
	{"CPU ms/s", RestCPU, "%.2f", 1, true, true},
	{"RSS MiB", RestRSS, "%.1f", 1, true, true},
	{"of these its own", OwnRSS, "%.1f", 1, true, false},
	{"KiB per idle connection", Connection, "%.2f", 1, true, true},
	{"start to first response ms", StartTime, "%.1f", 1, true, true},
	{"program MiB", ProgramSize, "%.1f", 1, false, false},
}

// comparisons are the rows whose ratios are reported if both were measured.
var comparisons = []struct{ row, base string }{
	{"remora-1", "nginx-1"}, {"remora-1", "haproxy-1"}, {"remora-1", "envoy-1"},
	{"remora-1", "nginx-1-debian"}, {"remora-1", "haproxy-1-debian"}, {"remora-2", "nginx-2-debian"}, {"remora-2", "haproxy-2-debian"},
	{"relay-2", "floor-2"}, {"remora-2", "floor-2"}, {"remora-2", "relay-2"}, {"remora-2", "nginx-2"}, {"remora-2", "haproxy-2"}, {"remora-2", "envoy-2"},
	{"remora-https-in", "haproxy-https-in"}, {"remora-https-out", "haproxy-https-out"},
	{"remora-2-tls", "remora-2"}, {"remora-2-observed", "remora-2"}, {"remora-2-nogc", "remora-2"},
	{"remora-1-gnet", "remora-1"}, {"remora-2-gnet", "remora-2"}, {"remora-2-gnet", "haproxy-2"},
	{"remora-mesh", "envoy-mesh"}, {"remora-mesh-unix", "remora-mesh"},
	{"remora-2-2loops", "remora-2"}, {"remora-2-4loops", "remora-2"},
	{"remora-listener-ecdsa", "haproxy-listener-ecdsa"}, {"remora-listener-ecdsa", "nginx-listener-ecdsa"},
	{"remora-dial-ecdsa", "haproxy-dial-ecdsa"}, {"remora-dial-ecdsa", "nginx-dial-ecdsa"},
	{"remora-dial-rsa", "haproxy-dial-rsa"}, {"remora-dial-rsa", "nginx-dial-rsa"},
	{"remora-link-ecdsa", "haproxy-link-ecdsa"}, {"remora-link-ecdsa", "nginx-link-ecdsa"},
	{"remora-listener-rsa", "haproxy-listener-rsa"}, {"remora-listener-rsa", "nginx-listener-rsa"},
	{"remora-link-rsa", "haproxy-link-rsa"}, {"remora-link-rsa", "nginx-link-rsa"},
}

// Text writes the report as Markdown that is readable in a terminal.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	preface, err := r.preface()
	if err != nil {
		return fmt.Errorf("bench: preface: %w", err)
	}
	columns := loadColumns
	if r.Kind == Tail {
		columns = tailColumns
	}
	if r.Kind == Frontiers {
		columns = frontierColumns
	}
	if r.Kind == Mesh {
		columns = meshColumns
	}
	if r.Kind == RealMatrix {
		_, err = io.WriteString(w, r.matrixText(preface))
		return err
	}
	b.WriteString(preface)
	for _, load := range r.Loads {
		writeTable(&b, load, r.table(load, columns))
	}
	if r.Rest.Connections > 0 {
		title := fmt.Sprintf("%s for %g s, then %d idle connections",
			AtRest, r.Rest.Duration.Seconds(), r.Rest.Connections)
		if r.Rest.Asked > 0 {
			title += fmt.Sprintf(" (not %d: the limit of descriptors)", r.Rest.Asked)
		}
		writeTable(&b, title, r.table(AtRest, restColumns))
	}
	switch r.Kind {
	case Dubbo, HTTPS: // they promise nothing
	case Scale:
		for _, load := range r.Loads {
			writeTable(&b, "Growth", r.scaleTable(load))
		}
	case Frontiers:
		writeTable(&b, "Beside Envoy's hedging at the same extra load, by medians", r.frontierTable())
	default:
		writeTable(&b, "Promises, by medians", r.judge())
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// table has a line for each row and each comparison, but no rows and columns without a value.
func (r *Report) table(load string, columns []column) [][]string {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(r.Rows, func(row string) bool { return len(r.Samples.Values(row, load, c.figure)) > 0 })
	})
	table := [][]string{{""}}
	for _, c := range columns {
		table[0] = append(table[0], c.title)
	}
	add := func(name string, cell func(column) string) {
		line := []string{name}
		for _, c := range columns {
			line = append(line, cell(c))
		}
		if strings.Join(line[1:], "") != "" {
			table = append(table, line)
		}
	}
	for _, row := range r.Rows {
		add(row, func(c column) string { return c.cell(r.Samples.Values(row, load, c.figure)) })
	}
	ratio := column{format: "%.2f", scale: 1, ranged: true}
	for _, p := range comparisons {
		add(p.row+" / "+p.base, func(c column) string {
			if !c.ratio {
				return ""
			}
			return ratio.cell(r.Samples.Ratios(p.row, p.base, load, c.figure))
		})
	}
	return table
}

// cell is the median of the values, or "" without one; if ranged, with [min..max] of several.
func (c column) cell(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	text := fmt.Sprintf(c.format, c.scale*median(values))
	if c.ranged && len(values) > 1 {
		least, most := c.scale*slices.Min(values), c.scale*slices.Max(values)
		text += fmt.Sprintf(" ["+c.format+".."+c.format+"]", least, most)
	}
	return text
}

// writeTable writes a table of Markdown with aligned columns. The first line is the head.
func writeTable(w io.Writer, title string, table [][]string) {
	fmt.Fprintf(w, "\n### %s\n\n", title)
	aligned := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	rule := slices.Repeat([]string{"---"}, len(table[0]))
	for _, line := range slices.Insert(table, 1, rule) {
		fmt.Fprintln(aligned, "| "+strings.Join(line, "\t| ")+"\t|")
	}
	aligned.Flush()
}

func (r *Report) verdicts() (all []Verdict) {
	switch r.Kind {
	case Costs:
		all = r.Samples.Verdicts()
	case Work:
		all = r.Samples.workVerdicts()
	case TLS:
		all = r.Samples.handshakeVerdicts()
	case Mesh:
		all = r.Samples.meshVerdicts()
	case GRPC:
		for _, load := range r.Loads {
			all = append(all, r.Samples.grpcVerdicts(load)...)
		}
	case LongMessages:
		all = r.Samples.messageVerdicts()
	case Tail:
		for _, load := range r.Loads {
			all = append(all, r.Samples.tailVerdicts(load)...)
		}
	}
	return all
}

// judge is the table of promises.
func (r *Report) judge() [][]string {
	table := [][]string{{"promise", "measured", "limit", "verdict"}}
	measured := column{format: "%.2f", scale: 1, ranged: true}
	for _, v := range r.verdicts() {
		if !v.Known() {
			table = append(table, []string{v.What, "", "", "not measured"})
			continue
		}
		bound, verdict := "at most", "does not hold"
		if v.AtLeast {
			bound = "at least"
		}
		if v.Holds() {
			verdict = "holds"
		}
		limit := fmt.Sprintf("%s %.2f", bound, v.Limit)
		if v.LimitIs != "" {
			limit += ", " + v.LimitIs
		}
		if v.Restless {
			verdict += ", but processors stood still"
		}
		if v.Rounds < r.Rounds {
			verdict += fmt.Sprintf(", by %d of %d rounds", v.Rounds, r.Rounds)
		}
		table = append(table, []string{v.What, measured.cell(v.Values), limit, verdict})
	}
	return table
}

//go:embed preface.tmpl
var prefaceText string

var prefaceTemplate = template.Must(template.New("").Funcs(map[string]any{"brief": brief}).Parse(prefaceText))

func (r *Report) preface() (string, error) {
	var b strings.Builder
	err := prefaceTemplate.Execute(&b, struct {
		*Report
		Wrk     bool     // used
		Calm    int      // the least share of undisturbed requests, in percent
		Older   []string // peers
		Refused func(row string) string
	}{r, r.Tools[Wrk] != "", 100 - tooDisturbed, r.Machine.older(), r.refused})
	return b.String(), err
}

// brief puts a text on one line and cuts it after 300 characters.
func brief(text string) string {
	const most = 300
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}

// refused says how many requests of a row failed. It is "" if none did.
func (r *Report) refused(row string) string {
	var requests, loads int64
	for _, s := range r.Samples {
		if s.Row != row {
			continue
		}
		if requests += s.Errors; s.Requests == 0 {
			loads++
		}
	}
	if requests+loads == 0 {
		return ""
	}
	return fmt.Sprintf("%d requests failed, %d loads got no response", requests, loads)
}

// Check returns an error if nothing was measured, if a sidecar or the direct way failed or a
// request through one of them, or if a promise of the tail bench does not hold.
func (r *Report) Check() error {
	if len(r.Samples) == 0 {
		preface, err := r.preface()
		return errors.Join(errors.New("bench: nothing was measured: "+preface), err)
	}
	for _, row := range slices.Concat(Rows(), WorkRows(), TailRows(false), DubboRows(), HTTPSRows(), HandshakeRows(), MeshRows(), ScaleRows(r.MostCores),
		MatrixRows(), FrontierRows()) {
		if len(row.chain) > 0 && !row.sidecars() {
			continue
		}
		for _, f := range r.Failures {
			if f.Row == row.Name {
				return fmt.Errorf("bench: row %s: %s", f.Row, f.Why)
			}
		}
		if text := r.refused(row.Name); text != "" {
			return fmt.Errorf("bench: %s: %s", row.Name, text)
		}
	}
	for _, v := range r.verdicts() {
		if r.Kind == Tail && v.Known() && !v.Holds() {
			return fmt.Errorf("bench: a promise does not hold: %s", v.What)
		}
	}
	return nil
}
