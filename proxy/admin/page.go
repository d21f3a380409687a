package admin

import (
	"bytes"
	"math"
	"strconv"

	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// page is the families of one scrape in Prometheus' text format 0.0.4. It is written
// directly: as prometheus.Metrics, which are checked, sorted and encoded, it took more
// than ten times as much CPU.
type page struct {
	text   bytes.Buffer
	series [][]byte // lines that are not in text yet, by index of the family
}

func newPage() *page { return &page{series: make([][]byte, len(families))} }

// reset empties p and keeps its memory.
func (p *page) reset() {
	p.text.Reset()
	for i := range p.series {
		p.series[i] = p.series[i][:0]
	}
}

// finish appends the lines to text, family by family as the format requires.
func (p *page) finish() {
	for i, lines := range p.series {
		if len(lines) > 0 {
			p.text.WriteString(families[i].head)
			p.text.Write(lines)
		}
	}
}

// put adds a series of f. labels are the values of its labels, in the order of f.labels.
func (p *page) put(f *family, value float64, labels ...string) {
	p.line(f, "", "", value, labels)
}

// times adds h to f.
func (p *page) times(f *family, h *stats.Histogram, labels ...string) {
	p.histogram(f, h.Counts[:], h.Sum.Seconds(), labels)
}

// sizes adds h to f.
func (p *page) sizes(f *family, h *stats.SizeHistogram, labels ...string) {
	p.histogram(f, h.Counts[:], float64(h.Sum), labels)
}

// histogram adds a classic histogram.
func (p *page) histogram(f *family, counts []uint64, sum float64, labels []string) {
	var seen uint64
	left := f.bounds
	for i, n := range counts {
		seen += n
		if len(left) > 0 && left[0].last == i {
			p.line(f, "_bucket", left[0].le, float64(seen), labels)
			left = left[1:]
		}
	}
	p.line(f, "_bucket", "+Inf", float64(seen), labels)
	p.line(f, "_sum", "", sum, labels)
	p.line(f, "_count", "", float64(seen), labels)
}

// line adds a line with the label le, unless that is empty.
func (p *page) line(f *family, suffix, le string, value float64, labels []string) {
	b := append(append(append(p.series[f.index], prefix...), f.name...), suffix...)
	next := byte('{')
	for _, i := range f.sorted {
		b = appendLabel(append(b, next), f.labels[i], labels[i])
		next = ','
	}
	if le != "" {
		b = appendLabel(append(b, next), "le", le)
		next = ','
	}
	if next == ',' {
		b = append(b, '}')
	}
	p.series[f.index] = append(appendNumber(append(b, ' '), value), '\n')
}

func appendLabel(b []byte, name, value string) []byte {
	b = append(append(b, name...), `="`...)
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// appendNumber appends v. Most numbers are counts, and written as integers, which is ten
// times as fast.
func appendNumber(b []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(b, n, 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
