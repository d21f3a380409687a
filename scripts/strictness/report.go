package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/internal/corpus"
)

// explanation says why proxies do otherwise than Remora.
type explanation struct {
	text  string
	rules []*rule
	found []*difference
}

// rule says which differences an explanation is for.
type rule struct {
	proxy, verdict, cases string // each a pattern of path.Match
	sometimes             bool   // it depends on when the proxy does what
	used                  bool
}

type explanations []*explanation

// readExplanations reads paragraphs: a text, each line of which begins with "> ",
// and then lines "PROXY | VERDICT | CASE", all three with * and ? as in file names,
// behind "sometimes: " where the proxy does not always do so.
func readExplanations(name string) (all explanations, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := false
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "> "):
			if !text {
				all = append(all, &explanation{})
			}
			e := all[len(all)-1]
			e.text = strings.TrimSpace(e.text + " " + line[2:])
			text = true
		default:
			line, sometimes := strings.CutPrefix(line, "sometimes: ")
			parts := strings.Split(line, " | ")
			if len(parts) != 3 || len(all) == 0 {
				return nil, fmt.Errorf("%s:%d: want PROXY | VERDICT | CASE behind a text", name, n)
			}
			e := all[len(all)-1]
			e.rules = append(e.rules, &rule{proxy: parts[0], verdict: parts[1], cases: parts[2], sometimes: sometimes})
			text = false
		}
	}
	return all, lines.Err()
}

// of is the first explanation of a difference, nil if there is none.
func (all explanations) of(d *difference) (e *explanation) {
	if d.own() {
		return nil
	}
	for _, e := range all {
		for _, r := range e.rules {
			if like(r.proxy, d.proxy.name) && like(r.verdict, d.verdict) && like(r.cases, d.c.Name) {
				r.used = true
				return e
			}
		}
	}
	return nil
}

// lack tells whether a rule for what p makes of c has been of no use yet.
func (all explanations) lack(p *proxy, c *corpus.Case) bool {
	for _, e := range all {
		for _, r := range e.rules {
			if !r.used && like(r.proxy, p.name) && like(r.cases, c.Name) {
				return true
			}
		}
	}
	return false
}

// reset forgets what was explained.
func (all explanations) reset() {
	for _, e := range all {
		e.found = nil
		for _, r := range e.rules {
			r.used = false
		}
	}
}

// explain gives each difference to its explanation, and returns those that have
// none.
func (all explanations) explain(differences []*difference) (unexplained []*difference) {
	for _, d := range differences {
		if e := all.of(d); e != nil {
			e.found = append(e.found, d)
		} else {
			unexplained = append(unexplained, d)
		}
	}
	return unexplained
}

// like is path.Match for texts with slashes and brackets in them.
func like(pattern, text string) bool {
	plain := strings.NewReplacer("/", "\x00", "[", "\x01", "]", "\x02", `\`, "\x03")
	ok, err := path.Match(plain.Replace(pattern), plain.Replace(text))
	return ok && err == nil
}

const (
	tableBegin = "<!-- written by scripts/strictness.sh: begin -->\n"
	tableEnd   = "<!-- written by scripts/strictness.sh: end -->\n"
)

// write replaces the generated part of the document.
func write(name string, proxies []*proxy, cases int, differences []*difference, why explanations) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return errors.New(name + " has no place for the table")
	}
	var b strings.Builder
	b.WriteString(before + tableBegin + "\n")
	fmt.Fprintf(&b, "| proxy | version | like Remora | otherwise |\n|---|---|---|---|\n")
	for _, p := range proxies[1:] {
		n := 0
		for _, d := range differences {
			if d.proxy == p {
				n++
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d |\n", p.name, p.version, cases-n, n)
	}
	b.WriteString("\n| why | cases | Remora | others |\n|---|---|---|---|\n")
	for _, e := range why {
		e.rows(&b)
	}
	b.WriteString("\n" + tableEnd + after)
	return os.WriteFile(name, []byte(b.String()), 0o644)
}

// rows are those of one explanation: cases of which all make the same share one.
func (e *explanation) rows(b *strings.Builder) {
	type outcome struct{ ours, others string }
	var order []outcome
	names := map[outcome][]string{}
	for i, d := range e.found {
		if slices.ContainsFunc(e.found[:i], func(x *difference) bool { return x.c == d.c }) {
			continue
		}
		var others []string
		for _, x := range e.found {
			if x.c == d.c {
				others = append(others, x.proxy.name+": "+x.verdict)
			}
		}
		o := outcome{d.ours, strings.Join(others, "<br>")}
		if names[o] == nil {
			order = append(order, o)
		}
		names[o] = append(names[o], cell(d.c.Name))
	}
	text := e.text
	for _, o := range order {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", text, strings.Join(names[o], "<br>"), o.ours, o.others)
		text = ""
	}
}

// cell makes a name one that a table can show.
func cell(name string) string {
	if len(name) > 80 {
		name = name[:77] + "..."
	}
	return "`" + strings.NewReplacer("`", "´", "|", `\|`).Replace(name) + "`"
}
