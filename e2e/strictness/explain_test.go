package strictness

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/internal/corpus"
)

// explanation says why proxies differ from Remora.
type explanation struct {
	text  string
	rules []*rule
	found []*difference
}

// rule says which differences an explanation is for. Each field is a pattern of
// path.Match.
type rule struct {
	proxy, verdict, cases string
	sometimes             bool // the difference depends on timing
	used                  bool
}

type explanations []*explanation

// readExplanations reads paragraphs. Each has a text, in lines that begin with "> ",
// and then rules "PROXY | VERDICT | CASE". "sometimes: " marks a rule that need not
// match.
func readExplanations(name string) (all explanations, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	inText := false
	for n, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "> "):
			if !inText {
				all = append(all, &explanation{})
			}
			e := all[len(all)-1]
			e.text = strings.TrimSpace(e.text + " " + line[2:])
			inText = true
		default:
			line, sometimes := strings.CutPrefix(line, "sometimes: ")
			parts := strings.Split(line, " | ")
			if len(parts) != 3 || len(all) == 0 {
				return nil, fmt.Errorf("%s:%d: want PROXY | VERDICT | CASE after a text", name, n+1)
			}
			e := all[len(all)-1]
			e.rules = append(e.rules, &rule{proxy: parts[0], verdict: parts[1], cases: parts[2], sometimes: sometimes})
			inText = false
		}
	}
	return all, nil
}

// find returns the first explanation of a difference, nil if there is none.
func (all explanations) find(d *difference) *explanation {
	for _, e := range all {
		for _, r := range e.rules {
			if matchesText(r.proxy, d.proxy.name) && matchesText(r.verdict, d.verdict) && matchesText(r.cases, d.c.Name) {
				r.used = true
				return e
			}
		}
	}
	return nil
}

// expects reports whether an unused rule is for what p makes of c.
func (all explanations) expects(p *runningProxy, c *corpus.Case) bool {
	for _, e := range all {
		for _, r := range e.rules {
			if !r.used && matchesText(r.proxy, p.name) && matchesText(r.cases, c.Name) {
				return true
			}
		}
	}
	return false
}

// reset forgets which differences were explained.
func (all explanations) reset() {
	for _, e := range all {
		e.found = nil
		for _, r := range e.rules {
			r.used = false
		}
	}
}

// explain adds each difference to its explanation, and returns those without one.
func (all explanations) explain(differences []*difference) (unexplained []*difference) {
	for _, d := range differences {
		if e := all.find(d); e != nil {
			e.found = append(e.found, d)
		} else {
			unexplained = append(unexplained, d)
		}
	}
	return unexplained
}

// unused returns the rules that should have matched a difference and did not.
func (all explanations) unused() (rules []*rule) {
	for _, e := range all {
		for _, r := range e.rules {
			if !r.used && !r.sometimes {
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// matchesText is path.Match for texts that hold slashes and brackets.
func matchesText(pattern, text string) bool {
	plain := strings.NewReplacer("/", "\x00", "[", "\x01", "]", "\x02", `\`, "\x03")
	ok, err := path.Match(plain.Replace(pattern), plain.Replace(text))
	return ok && err == nil
}

// table is testdata/strictness.md: all differences by their explanations.
func (c *comparison) table(differences []*difference) []byte {
	var b bytes.Buffer
	b.WriteString("# What other proxies make of the requests of the corpus\n\n" +
		"`scripts/strictness.sh -update` writes this file.\n\n" +
		"| proxy | version | like Remora | otherwise |\n|---|---|---|---|\n")
	for _, p := range c.proxies[1:] {
		n := 0
		for _, d := range differences {
			if d.proxy == p {
				n++
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d |\n", p.name, p.version, len(c.cases)-n, n)
	}
	b.WriteString("\n| why | cases | Remora | others |\n|---|---|---|---|\n")
	for _, e := range c.why {
		e.rows(&b)
	}
	return b.Bytes()
}

// rows writes the rows of one explanation. Cases with the same verdicts share a row.
func (e *explanation) rows(b *bytes.Buffer) {
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

// cell makes a name fit for a table.
func cell(name string) string {
	if len(name) > 80 {
		name = name[:77] + "..."
	}
	return "`" + strings.NewReplacer("`", "´", "|", `\|`).Replace(name) + "`"
}
