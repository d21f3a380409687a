package inject

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// editor adds to the text of manifests, and does the same to their trees. Text that is there stays as it is, byte by byte,
// except a null that gets a value. An editor changes each node at most once.
type editor struct {
	text    []byte
	newline string
	lines   []int // offsets of the lines
	edits   []edit
}

// edit replaces drop bytes of the text.
type edit struct {
	at, drop int
	with     string
}

func newEditor(text []byte) *editor {
	e := &editor{text: text, newline: "\n", lines: []int{0}}
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		e.newline = "\r\n"
	}
	for i := 0; i < len(text); {
		n := breakAt(text[i:])
		if i += max(n, 1); n > 0 {
			e.lines = append(e.lines, i)
		}
	}
	return e
}

// breakAt returns the length of the line break with which text begins, or 0 (YAML 1.1, section 4.2).
func breakAt(text []byte) int {
	for _, b := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.HasPrefix(text, []byte(b)) {
			return len(b)
		}
	}
	return 0
}

// offset returns where a node begins. The parser counts lines and characters from 1.
func (e *editor) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(e.lines) {
		return len(e.text)
	}
	at := e.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(e.text[at:])
		at += size
	}
	return at
}

// add puts pairs of keys and values at the beginning of a mapping.
func (e *editor) add(m *yaml.Node, pairs ...*yaml.Node) {
	e.insert(m, mappingOf(pairs))
	m.Content = append(slices.Clone(pairs), m.Content...)
}

// prepend puts items at the beginning of a sequence.
func (e *editor) prepend(s *yaml.Node, items ...*yaml.Node) {
	e.insert(s, sequenceOf(items))
	s.Content = append(slices.Clone(items), s.Content...)
}

// insert writes what is in addition before what is in n. Both are mappings, or both sequences.
func (e *editor) insert(n, addition *yaml.Node) {
	switch {
	case len(n.Content) == 0:
		at := e.offset(n) + 1 // behind the bracket
		e.edits = append(e.edits, edit{at: min(at, len(e.text)), with: inBrackets(addition)})
	case n.Style&yaml.FlowStyle != 0:
		at := e.offset(n.Content[0])
		separator := ", "
		if indent, alone := e.before(at); alone {
			separator = "," + e.newline + indent
		}
		e.edits = append(e.edits, edit{at: at, with: inBrackets(addition) + separator})
	default:
		at := e.offset(n.Content[0])
		if n.Kind == yaml.SequenceNode {
			at = e.offset(n) // the dash of the first item
		}
		at = e.aboveComments(at)
		start := e.lineOf(at)
		separator := e.newline + strings.Repeat(" ", utf8.RuneCount(e.text[start:at]))
		text := strings.ReplaceAll(strings.TrimSuffix(render(addition), "\n"), "\n", separator)
		e.edits = append(e.edits, edit{at: at, with: text + separator})
	}
}

// fill gives a value to a key whose value is null.
func (e *editor) fill(null, value *yaml.Node) {
	text := inFlow(value)
	if null.Value == "" {
		text = " " + text
	}
	e.edits = append(e.edits, edit{at: e.offset(null), drop: len(null.Value), with: text})
	*null = *value
}

// lineOf returns the offset of the line that has the byte at an offset.
func (e *editor) lineOf(at int) int {
	i, found := slices.BinarySearch(e.lines, at)
	if !found {
		i--
	}
	return e.lines[i]
}

// before returns what is before an offset on its line, and reports whether that is nothing but blanks.
func (e *editor) before(at int) (string, bool) {
	text := string(e.text[e.lineOf(at):at])
	return text, strings.Trim(text, " \t") == ""
}

// aboveComments returns the offset of the first comment above a line, if the comments between belong to what begins at the
// offset: each is alone on its line, and indented alike.
func (e *editor) aboveComments(at int) int {
	indent, alone := e.before(at)
	for alone {
		line := e.lineOf(at)
		if line == 0 {
			break
		}
		above := e.lineOf(line - 1)
		if !bytes.HasPrefix(e.text[above:], []byte(indent+"#")) {
			break
		}
		at = above + len(indent)
	}
	return at
}

// apply returns the text with all additions.
func (e *editor) apply() []byte {
	slices.SortStableFunc(e.edits, func(a, b edit) int { return a.at - b.at })
	var out []byte
	done := 0
	for _, ed := range e.edits {
		out = append(out, e.text[done:ed.at]...)
		out = append(out, ed.with...)
		done = ed.at + ed.drop
	}
	return append(out, e.text[done:]...)
}

// render returns a node in block style, which ends with a line feed.
func render(n *yaml.Node) string {
	var out strings.Builder
	to := yaml.NewEncoder(&out)
	to.SetIndent(2)
	if err := to.Encode(n); err != nil {
		panic(err) // nodes of package inject have nothing that can't be encoded
	}
	return out.String()
}

// inFlow returns a node as JSON, on one line.
func inFlow(n *yaml.Node) string { return strings.TrimSuffix(render(asJSON(n)), "\n") }

// inBrackets returns what is between the brackets of a mapping or a sequence as JSON.
func inBrackets(n *yaml.Node) string {
	text := inFlow(n)
	return text[1 : len(text)-1]
}

// asJSON returns a copy of a node that is written as JSON.
func asJSON(n *yaml.Node) *yaml.Node {
	c := *n
	c.Style = yaml.FlowStyle
	if n.Kind == yaml.ScalarNode {
		c.Style = 0
		if n.ShortTag() == "!!str" {
			c.Style = yaml.DoubleQuotedStyle
		}
	}
	c.Content = nil
	for _, child := range n.Content {
		c.Content = append(c.Content, asJSON(child))
	}
	return &c
}

// same reports whether two trees mean the same, whatever their style. An alias is the same as another by its name.
func same(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Value == b.Value && a.Anchor == b.Anchor && a.ShortTag() == b.ShortTag() &&
		slices.EqualFunc(a.Content, b.Content, same)
}
