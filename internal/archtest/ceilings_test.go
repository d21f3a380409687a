package archtest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var lower = flag.Bool("lower", false, "lower the ceilings in ceilings.txt to what is there; none is raised")

const ceilingsFile = "ceilings.txt"

// rule counts something in the module. A count above the limit needs a ceiling, which may
// only fall.
type rule struct {
	name    string
	limit   int
	why     string
	reasons bool // each ceiling needs a reason
	measure func([]*source) tallies
}

// rules lists all rules that have ceilings.
var rules = []rule{
	{"package", 20, "a package with more files holds more than one subject", true, packageFiles},
	{"struct", 24, "a struct with more fields holds more than one subject", true, structFields},
	{"methods", 7, "the methods of a type in more files can't be read as one", true, methodFiles},
	{"state", 0, "only become may assign a state, so that it can refuse an illegal change", true, stateAssignments},
	{"idiom", 0, "plain English says it shorter: see the list of idioms", false, idiomsIn},
	{"word", 0, "words.txt has the better name", false, wordsIn},
	{"doc", 0, "the comment of an exported name starts with that name", false, docComments},
}

// tally counts the places where a rule met a subject.
type tally struct {
	n     int
	where []string
}

// tallies has a tally for each subject: a package, a type, a pattern.
type tallies map[string]*tally

func (ts tallies) add(subject, where string) {
	t := ts[subject]
	if t == nil {
		t = &tally{}
		ts[subject] = t
	}
	t.n++
	t.where = append(t.where, where)
}

// ceiling is one line of ceilings.txt: "rule | subject | ceiling | reason".
type ceiling struct {
	rule, subject string
	max           int
	reason        string
	line          int // in the file, from 1
}

// TestCeilings holds the module to the rules that have ceilings.
func TestCeilings(t *testing.T) {
	text, err := os.ReadFile(ceilingsFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := moduleSources()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]tallies{}
	for _, r := range rules {
		found[r.name] = r.measure(files)
	}
	if *lower {
		if err := os.WriteFile(ceilingsFile, []byte(lowered(string(text), found)), 0o644); err != nil {
			t.Fatal(err)
		}
		if text, err = os.ReadFile(ceilingsFile); err != nil {
			t.Fatal(err)
		}
	}
	ceilings, err := readCeilings(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range compare(found, ceilings) {
		t.Error(wrong)
	}
}

// readCeilings parses ceilings.txt. Empty lines and those that start with # are remarks.
func readCeilings(text string) ([]ceiling, error) {
	var all []ceiling
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		// An idiom may have a bar in it, so bars that separate have spaces.
		cells := strings.SplitN(line, " | ", 4)
		if len(cells) < 3 {
			return nil, fmt.Errorf("%s:%d: want rule | subject | ceiling | reason", ceilingsFile, number)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		n, err := strconv.Atoi(cells[2])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", ceilingsFile, number, err)
		}
		c := ceiling{rule: cells[0], subject: cells[1], max: n, line: number}
		if len(cells) == 4 {
			c.reason = cells[3]
		}
		all = append(all, c)
	}
	return all, nil
}

// compare returns a complaint for each count above or below its ceiling, and for each
// ceiling that is not needed.
func compare(found map[string]tallies, ceilings []ceiling) []string {
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	allowed := map[[2]string]bool{}
	for _, c := range ceilings {
		at := fmt.Sprintf("%s:%d", ceilingsFile, c.line)
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == c.rule })
		if i < 0 {
			complain("%s: there is no rule %q", at, c.rule)
			continue
		}
		r, n := rules[i], 0
		if t := found[c.rule][c.subject]; t != nil {
			n = t.n
		}
		key := [2]string{c.rule, c.subject}
		switch {
		case allowed[key]:
			complain("%s: a second ceiling of %s %s", at, c.rule, c.subject)
		case n <= r.limit:
			complain("%s: %s %s has %d, so it needs no ceiling: delete the line", at, c.rule, c.subject, n)
		case n < c.max:
			complain("%s: %s %s has %d: lower the ceiling from %d", at, c.rule, c.subject, n, c.max)
		case n > c.max:
			complain("%s %s has %d, and its ceiling is %d: %s; %s",
				c.rule, c.subject, n, c.max, r.why, places(found[c.rule][c.subject]))
		case r.reasons && c.reason == "":
			complain("%s: %s %s needs a reason", at, c.rule, c.subject)
		}
		allowed[key] = true
	}
	for _, r := range rules {
		for _, subject := range slices.Sorted(maps.Keys(found[r.name])) {
			t := found[r.name][subject]
			if t.n > r.limit && !allowed[[2]string{r.name, subject}] {
				complain("%s %s has %d, and the limit is %d: %s; %s", r.name, subject, t.n, r.limit, r.why, places(t))
			}
		}
	}
	return wrong
}

// lowered returns ceilings.txt with each ceiling lowered to its count, without the lines
// that are not needed.
func lowered(text string, found map[string]tallies) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		cs, err := readCeilings(line)
		if err != nil || len(cs) == 0 {
			out.WriteString(line)
			continue
		}
		c := cs[0]
		limit, n := 0, 0
		for _, r := range rules {
			if r.name == c.rule {
				limit = r.limit
			}
		}
		if t := found[c.rule][c.subject]; t != nil {
			n = t.n
		}
		if n <= limit {
			continue
		}
		cells := strings.SplitN(strings.TrimRight(line, "\n"), " | ", 4)
		cells[2] = strconv.Itoa(min(n, c.max))
		out.WriteString(strings.Join(cells, " | ") + "\n")
	}
	return out.String()
}

// places names a few places of a tally.
func places(t *tally) string {
	const most = 12
	if len(t.where) <= most {
		return strings.Join(t.where, " ")
	}
	return strings.Join(t.where[:most], " ") + " …"
}

// TestCompare sees each complaint about a ceiling.
func TestCompare(t *testing.T) {
	found := map[string]tallies{
		"struct": {"a.T": {n: 30, where: []string{"a/a.go:3"}}, "a.Small": {n: 24}},
		"idiom":  {"be it": {n: 2, where: []string{"a/a.go:9", "b/b.go:1"}}},
	}
	for _, c := range []struct{ name, ceilings, want string }{
		{"at the ceilings", "struct | a.T | 30 | history\nidiom | be it | 2\n", ""},
		{"above", "struct | a.T | 29 | history\nidiom | be it | 2\n", "has 30, and its ceiling is 29"},
		{"below", "struct | a.T | 30 | history\nidiom | be it | 3\n", "lower the ceiling from 3"},
		{"not needed", "struct | a.T | 30 | history\nidiom | be it | 2\nstruct | a.Small | 25 | history\n", "delete the line"},
		{"of nothing", "struct | a.T | 30 | history\nidiom | be it | 2\nstruct | a.Gone | 25 | history\n", "delete the line"},
		{"none", "struct | a.T | 30 | history\n", "idiom be it has 2, and the limit is 0"},
		{"no reason", "struct | a.T | 30\nidiom | be it | 2\n", "needs a reason"},
		{"twice", "struct | a.T | 30 | history\nidiom | be it | 2\nidiom | be it | 2\n", "a second ceiling"},
		{"unknown rule", "struct | a.T | 30 | history\nidiom | be it | 2\nfiles | a | 1 | x\n", "no rule"},
	} {
		ceilings, err := readCeilings(c.ceilings)
		if err != nil {
			t.Fatal(err)
		}
		expectOne(t, c.name, compare(found, ceilings), c.want)
	}
}

// TestLowered sees ceilings fall, and none rise.
func TestLowered(t *testing.T) {
	found := map[string]tallies{"struct": {"a.T": {n: 30}, "a.U": {n: 40}}}
	got := lowered("# remark\nstruct | a.T | 33 | history\nstruct | a.U | 35 | history\nstruct | a.Gone | 25 | x\n", found)
	if want := "# remark\nstruct | a.T | 30 | history\nstruct | a.U | 35 | history\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// expectOne fails unless there is one complaint, with this text; for "" there must be none.
func expectOne(t *testing.T, name string, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("%s: got %q", name, got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("%s: got %q, want one with %q", name, got, want)
	}
}

// expectCount fails unless a rule counted a subject so many times.
func expectCount(t *testing.T, name string, got tallies, subject string, want int) {
	t.Helper()
	n := 0
	if found := got[subject]; found != nil {
		n = found.n
	}
	if n != want {
		t.Errorf("%s: %s has %d, want %d", name, subject, n, want)
	}
}
