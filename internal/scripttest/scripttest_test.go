package scripttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestParse: a file becomes parts, and parts become the file. A file that has no parts, or the same name twice, is an error.
func TestParse(t *testing.T) {
	const text = "# a\none, two words\nx; y 1\nfirst\nsecond\n\n# b\none\nx\n"
	parts, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := format(parts); got != text {
		t.Errorf("parts become %q", got)
	}
	if len(parts) != 2 || parts[0].Name != "a" || !slices.Equal(parts[0].Words, []string{"one", "two words"}) || parts[0].want != "first\nsecond" || parts[1].want != "" {
		t.Errorf("parts %+v, %+v", parts[0], parts[1])
	}
	if !parts[0].Starts("x") || parts[0].Starts("y") {
		t.Error("the first step is wrong")
	}
	for _, bad := range []string{"", "# a", "# a\none", "a\none\nx", "# a\none\nx\n\n# a\none\nx"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

// TestTidy: what a test returns has no empty lines, and no spaces at the ends of lines.
func TestTidy(t *testing.T) {
	if got := tidy("a \n\n b\n"); got != "a\n b" {
		t.Errorf("%q", got)
	}
}

// fatals is a testing.TB that notes what ends a test.
type fatals struct {
	testing.TB
	text string
}

func (*fatals) Helper() {}

func (f *fatals) Fatalf(format string, v ...any) {
	f.text = fmt.Sprintf(format, v...)
	panic(f)
}

// TestSteps: a step takes its words as numbers, durations and choices. What is missing, wrong or left ends the test.
func TestSteps(t *testing.T) {
	run := func(steps string) (got []string, fatal string) {
		f := &fatals{TB: t}
		defer func() {
			if v := recover(); v != nil && v != any(f) {
				panic(v)
			}
			fatal = f.text
		}()
		(&Part{steps: steps}).Each(f, func(s *Step) {
			Find(f, map[string]func(){
				"wait":  func() { got = append(got, (s.Duration() + time.Second).String()) },
				"add":   func() { got = append(got, fmt.Sprint(s.Int()+s.Int())) },
				"close": func() { got = append(got, fmt.Sprint(s.Is("whole", "cut"))) },
			}, s.Name)()
		})
		return got, ""
	}
	if got, fatal := run("wait 1s; add 1 2; close whole; close cut"); fatal != "" || strings.Join(got, " ") != "2s 3 true false" {
		t.Errorf("got %q, %s", got, fatal)
	}
	for steps, want := range map[string]string{
		"stop": `"stop" is not known`, "add 1": `"add 1" lacks a word`, "add 1 2 3": "too much", "add 1 x": "invalid syntax", "wait 1": "missing unit",
		"close half": `"half" is not known`, "": "lacks a word",
	} {
		if _, fatal := run(steps); !strings.Contains(fatal, want) {
			t.Errorf("%q ends with %q", steps, fatal)
		}
	}
}
