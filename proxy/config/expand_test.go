package config

import "testing"

func TestExpand(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"${FOUR}", "4"},
		{"a${FOUR}b${FOUR}", "a4b4"},
		{"${EMPTY}", ""},
		{"${EMPTY:-x}", "x"},
		{"${NONE:-}", ""},
		{"${NONE:-a:-b}", "a:-b"},
		{"$${FOUR}", "${FOUR}"},
		{"$$$${FOUR}", "$${FOUR}"},
		{"$$${FOUR}", "$4"},
		{"pa$word$", "pa$word$"},
		{"${NESTED}", "${FOUR}"}, // the value of a variable is not expanded
		{"${NONE}", "error"},
		{"${}", "error"},
		{"${4}", "error"},
		{"${A B}", "error"},
		{"${A", "error"},
		{"${NONE:-${FOUR}}", "error"},
	} {
		got, err := expand(c.in, environment)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("expand(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// TestExpandedStructure checks that a variable can't change the file's structure, and
// that quotes around one don't make it a string.
func TestExpandedStructure(t *testing.T) {
	c := mustParse(t, `{node: {id: "a", zone: "${YAML}"}, loops: "${FOUR}"}`)
	if c.Node.Zone != "{a: 1}\nb: [" || c.Loops != 4 {
		t.Errorf("got zone %q, loops %d", c.Node.Zone, c.Loops)
	}
	if _, err := Parse("x", []byte(`loops: "4"`), environment); err == nil {
		t.Error("a number in quotes was accepted")
	}
}
