package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Condition is a condition on the value of a header or of a parameter of the query. A file has
// the exact value alone, or a mapping with one of conditionKeys.
type Condition struct {
	Is   string `yaml:"-"` // IsExact, IsPrefix, IsRegex or IsPresent
	Text string `yaml:"-"` // the value, its prefix or the expression; empty for IsPresent
	Not  bool   `yaml:"-"` // the rest must not hold, as without the header or parameter
}

// Kinds of conditions, as a file names them.
const (
	IsExact   = "exact"
	IsPrefix  = "prefix"
	IsRegex   = "regex"
	IsPresent = "present"

	not = "not"
)

var conditionKeys = []string{IsExact, IsPrefix, IsRegex, IsPresent, not}

// decodeCondition sets c from a value, or from a mapping with one key.
func (d *decoder) decodeCondition(n *node, c *Condition, p path) {
	switch {
	case n.kind == kindScalar:
		*c = Condition{Is: IsExact, Text: n.text}
		return
	case n.kind != kindMapping:
		d.errorAt(n.at, p, "expected a value, or a mapping such as {prefix: a}; got %s", field{}.describe(n))
		return
	case len(n.entries) != 1:
		d.errorAt(n.at, p, "expected one of %s, got %d keys", strings.Join(conditionKeys, ", "), len(n.entries))
		return
	}
	e := n.entries[0]
	at := p.key(keyAlone(e.key))
	switch e.key {
	case not:
		d.decode(e.value, reflect.ValueOf(c).Elem(), field{}, at)
		c.Not = !c.Not
	case IsPresent:
		present := true
		d.decode(e.value, reflect.ValueOf(&present).Elem(), field{}, at)
		*c = Condition{Is: IsPresent, Not: !present}
	default:
		if !slices.Contains(conditionKeys, e.key) {
			d.errorAt(e.at, at, "unknown key; %s", expectedKeys(conditionKeys, keyAlone(e.key)))
			return
		}
		c.Is = e.key
		d.decode(e.value, reflect.ValueOf(&c.Text).Elem(), field{}, at)
	}
}

// encode returns c as a file has it.
func (c Condition) encode() any {
	var out any = encode(reflect.ValueOf(c.Text), field{})
	switch c.Is {
	case IsPresent:
		return yaml.MapSlice{{Key: IsPresent, Value: !c.Not}}
	case IsPrefix, IsRegex:
		out = yaml.MapSlice{{Key: c.Is, Value: out}}
	}
	if c.Not {
		out = yaml.MapSlice{{Key: not, Value: out}}
	}
	return out
}

// at returns the path of the text of c, which stands at shown.
func (c Condition) at(shown path) path {
	if c.Not {
		shown = shown.key(not)
	}
	if c.Is != IsExact {
		shown = shown.key(c.Is)
	}
	return shown
}

// A value takes at most maxRegexSteps steps for each byte, and at most MaxRegexInput bytes are
// looked at. Together they bound the worst expression with the worst value to about 20 ms, which
// a request keeps its loop busy. Usual ones take a microsecond.
const (
	maxRegex      = 512 // bytes of an expression
	maxRegexSteps = 250 // instructions of its program

	// MaxRegexInput is the length in bytes of the longest value that an expression may match.
	// A condition on a longer one does not hold, whether it is negated or not.
	MaxRegexInput = 4096
)

// CompileRegex returns a regular expression (RE2) that matches whole values only.
func CompileRegex(text string) (*regexp.Regexp, error) {
	if text == "" || len(text) > maxRegex {
		return nil, fmt.Errorf("expected an expression of 1 to %d bytes, got %d", maxRegex, len(text))
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	var wrong *syntax.Error
	switch {
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("not a regular expression (RE2): %s: %q%s", wrong.Code, shorten(wrong.Expr), regexHint(wrong))
	case err != nil:
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if n := len(prog.Inst); n > maxRegexSteps {
		return nil, fmt.Errorf("too large: it may take %d steps for each byte of a value, expected at most %d", n, maxRegexSteps)
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// check reports one that says nothing, and a wrong expression.
func (c Condition) check(in scope, shown path) {
	switch at := c.at(shown); {
	case c.Is == IsRegex:
		checkRegex(in, at, c.Text)
	case c.Is == IsPrefix && c.Text == "":
		in.report(at, "empty; present: true matches every value")
	}
}

func checkRegex(in scope, at path, text string) {
	if _, err := CompileRegex(text); err != nil {
		in.report(at, "%s", err)
	}
}
