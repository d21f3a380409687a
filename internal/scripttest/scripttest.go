// Package scripttest runs the parts of a file as tests. A part has a line "# name", a line of words that say what the test has, a line
// of steps, and then lines with what comes of the steps. A comma and a space separate words, a semicolon and a space separate steps,
// and an empty line separates parts. It is test support; no command may import it.
package scripttest

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write files of scripts anew")

// Part is a part of a file.
type Part struct {
	Name  string
	Words []string

	steps, want string
}

// Run runs a test for each part of a file. The test fails if run returns anything but the last lines of the part. With -update, the
// file gets what run returns.
func Run(t *testing.T, path string, run func(t *testing.T, p *Part) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %s", path, err)
	}
	for _, p := range parts {
		t.Run(p.Name, func(t *testing.T) {
			got := tidy(run(t, p))
			if got != p.want && !*update {
				t.Errorf("got\n%s\nwant\n%s", got, p.want)
			}
			p.want = got
		})
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(path, []byte(format(parts)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// parse returns the parts of a file.
func parse(text string) (parts []*Part, err error) {
	names := map[string]bool{}
	for part := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		lines := strings.SplitN(part, "\n", 4)
		name, ok := strings.CutPrefix(lines[0], "# ")
		if !ok || len(lines) < 3 {
			return nil, fmt.Errorf("%q has not a name, words and steps", part)
		}
		if names[name] {
			return nil, fmt.Errorf("two parts have the name %q", name)
		}
		names[name] = true
		parts = append(parts, &Part{Name: name, Words: strings.Split(lines[1], ", "), steps: lines[2], want: strings.Join(lines[3:], "")})
	}
	return parts, nil
}

// format returns the text of a file with these parts.
func format(parts []*Part) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "# %s\n%s\n%s\n", p.Name, strings.Join(p.Words, ", "), p.steps)
		if p.want != "" {
			b.WriteString(p.want + "\n")
		}
	}
	return b.String()
}

// tidy returns text without empty lines, which separate parts, and without spaces at the ends of lines.
func tidy(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// Starts reports whether the first step has this name.
func (p *Part) Starts(name string) bool {
	first, _, _ := strings.Cut(p.steps, "; ")
	return strings.HasPrefix(first+" ", name+" ")
}

// Each calls do for each step in turn. A step whose words do does not take ends the test.
func (p *Part) Each(t testing.TB, do func(s *Step)) {
	t.Helper()
	for text := range strings.SplitSeq(p.steps, "; ") {
		s := &Step{t: t, text: text, words: strings.Fields(text)}
		s.Name = s.Word()
		if do(s); s.More() {
			t.Fatalf("%s: %q is too much", s.text, s.words)
		}
	}
}

// Step is a step of a part: a name, and words that the step takes one after another. A word that is missing or wrong ends the test.
type Step struct {
	Name string

	t     testing.TB
	text  string
	words []string // not taken yet
}

// More reports whether a word is left.
func (s *Step) More() bool { return len(s.words) > 0 }

// Word takes a word.
func (s *Step) Word() (word string) {
	s.t.Helper()
	if !s.More() {
		s.t.Fatalf("%q lacks a word", s.text)
	}
	word, s.words = s.words[0], s.words[1:]
	return word
}

// Int takes a number.
func (s *Step) Int() int {
	s.t.Helper()
	n, err := strconv.Atoi(s.Word())
	if err != nil {
		s.t.Fatalf("%s: %s", s.text, err)
	}
	return n
}

// Duration takes a duration.
func (s *Step) Duration() time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(s.Word())
	if err != nil {
		s.t.Fatalf("%s: %s", s.text, err)
	}
	return d
}

// Is takes one of two words, and reports whether it is the first.
func (s *Step) Is(first, second string) bool {
	s.t.Helper()
	return Find(s.t, map[string]bool{first: true, second: false}, s.Word())
}

// Find returns what a table has for a word. A word that the table does not have ends the test.
func Find[T any](t testing.TB, table map[string]T, word string) T {
	t.Helper()
	v, ok := table[word]
	if !ok {
		t.Fatalf("%q is not known", word)
	}
	return v
}
