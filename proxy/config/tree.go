package config

import (
	"bytes"
	"cmp"
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file, far above any real one. A wrong path (a disk image, a generated
// file) must cause an error, and not exhaust the host.
const (
	maxFile      = 1 << 20 // bytes
	maxDepth     = 32      // nested mappings and sequences
	maxEntries   = 4096    // of one mapping or list
	maxDocuments = 16      // all but one of them empty
	maxAliased   = 1 << 16 // values that aliases repeat
)

// kind is the kind of a node.
type kind uint8

const (
	kindNull kind = iota
	kindScalar
	kindSequence
	kindMapping
	kindBroken // unusable; counts as not set
)

// position is a position in a text. Both numbers start at 1.
type position struct {
	of           string // name of the text, if it is not the decoder's file
	line, column int
}

// node is one value of the file. Anchors, aliases and merges are resolved, and
// variables are expanded. An alias shares the content of the anchored node.
type node struct {
	kind     kind
	at       position
	text     string // of a scalar
	problem  string // why it is broken; empty if that was reported
	quoted   bool   // reports whether the scalar must be a string
	items    []*node
	entries  []entry
	size     int  // values in it, those of aliases too; set when its content is read
	resolved bool // false while its content is read; an alias to it then makes a cycle
}

// scalar returns the text of the scalar at key in a mapping, or "".
func (n *node) scalar(key string) string {
	if value := n.value(key); value != nil {
		return value.text
	}
	return ""
}

// value returns the value at key in a mapping, or nil.
func (n *node) value(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// entry is one key of a mapping.
type entry struct {
	key   string
	at    position
	value *node
}

// treeReader converts the parser's syntax tree to nodes.
type treeReader struct {
	env     func(string) (string, bool)
	report  func(at position, format string, args ...any)
	anchors map[string]*node
	depth   int
	values  int // read so far, those of aliases too
	aliased int // of these, how many aliases repeat
}

// readTree parses data, which must contain one YAML document. It returns nil if the
// document is empty. It also returns nil after it has reported a wrong syntax.
func (r *treeReader) readTree(data []byte) *node {
	if len(data) > maxFile {
		r.report(position{}, "larger than %d bytes; not a configuration file?", maxFile)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark, which some editors leave
	file, err := parse(data)
	if err != nil {
		r.reportSyntax(data, err)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if body != nil && doc.Body != nil {
			r.report(startOf(doc.Body), "a second document; expected one document per file")
			break
		}
		body = cmp.Or(body, doc.Body)
	}
	if body == nil {
		return nil
	}
	return r.read(body)
}

// parse calls the library's parser. If that panics, the file is wrong like any other:
// a reload must not end the process.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("not YAML")
		}
	}()
	tokens, err := tokenize(data)
	if err != nil {
		return nil, err
	}
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// reportSyntax reports an error of the parser.
func (r *treeReader) reportSyntax(data []byte, err error) {
	var bound boundError
	if errors.As(err, &bound) {
		r.report(at(bound.at), "%s", bound.text)
		return
	}
	var syntax *yaml.SyntaxError
	if !errors.As(err, &syntax) {
		r.report(position{}, "not valid YAML: %s", unquoted(err.Error()))
		return
	}
	where, line := at(syntax.Token), ""
	lines := strings.Split(string(data), "\n")
	if i := where.line - 1; i >= 0 && i < len(lines) {
		line = lines[i]
	}
	message := unquoted(syntax.Message)
	r.report(where, "not valid YAML: %s%s", message, syntaxHint(message, line))
}

// unquoted returns the first line of a message up to its first quotation of the file,
// which may be a secret.
func unquoted(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	s, _, _ = strings.Cut(s, `"`)
	return strings.TrimRight(s, ": ")
}

// at returns the position of a token. The library counts some columns from 0.
func at(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{}
	}
	return position{line: t.Position.Line, column: max(t.Position.Column, 1)}
}

// read converts a syntax node and its descendants.
func (r *treeReader) read(n ast.Node) *node {
	out := &node{at: startOf(n)}
	before := r.values
	r.values++
	r.readInto(out, n)
	out.size = r.values - before
	return out
}

// readInto fills out, which may already be registered as an anchor.
func (r *treeReader) readInto(out *node, n ast.Node) {
	r.depth++
	defer func() {
		r.depth--
		out.resolved = true
	}()
	if r.depth > maxDepth {
		out.kind = kindBroken
		r.report(out.at, "nested more than %d deep", maxDepth)
		return
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		r.readMapping(out, n.Values)
	case *ast.MappingValueNode:
		r.readMapping(out, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out.kind = kindSequence
		for _, v := range n.Values {
			out.items = append(out.items, r.read(v))
		}
	case *ast.AnchorNode:
		r.anchors[n.Name.GetToken().Value] = out
		out.at = startOf(n.Value)
		r.readInto(out, n.Value)
	case *ast.AliasNode:
		r.readAlias(out, n)
	case *ast.LiteralNode:
		r.readScalar(out, n.Value.Value, true)
	case *ast.StringNode:
		r.readScalar(out, n.Value, n.Token.Type != token.StringType)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		r.readScalar(out, n.GetToken().Value, false)
	default:
		out.kind = kindBroken
		r.report(out.at, "a YAML %s is not supported; leave it out", strings.ToLower(n.Type().String()))
	}
}

// startOf returns the position where a value begins. A mapping begins with its brace, or with its first key.
func startOf(n ast.Node) position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return at(n.Values[0].Key.GetToken())
		}
		return at(n.Start)
	case *ast.MappingValueNode:
		return at(n.Key.GetToken())
	}
	return at(n.GetToken())
}

func (r *treeReader) readScalar(out *node, text string, quoted bool) {
	expanded, err := expand(text, r.env)
	if err != nil {
		// The decoder reports the problem, because it knows the path.
		out.kind, out.problem = kindBroken, err.Error()
		return
	}
	out.kind, out.text = kindScalar, expanded
	// "${N}" must be quoted in some places, so these quotes make no string.
	out.quoted = quoted && expanded == text
}

// readAlias makes out a copy of the anchored node. It keeps the position of the alias,
// so that errors point to the alias.
func (r *treeReader) readAlias(out *node, n *ast.AliasNode) {
	name := n.Value.GetToken().Value
	target, ok := r.anchors[name]
	out.kind = kindBroken
	switch {
	case !ok:
		r.report(out.at, "no anchor of this name before the alias; a value that begins with * needs quotes")
	case !target.resolved:
		r.report(out.at, "alias *%s inside its own anchor; expected the alias of another value", name)
	case target.size > maxAliased-r.aliased:
		r.report(out.at, "aliases repeat more than %d values", maxAliased)
	default:
		r.values += target.size
		r.aliased += target.size
		where := out.at
		*out = *target
		out.at = where
	}
}

// readMapping reads the entries of a mapping, and reports duplicate keys. The entries
// of a merge ("<<") follow the mapping's own.
func (r *treeReader) readMapping(out *node, values []*ast.MappingValueNode) {
	out.kind = kindMapping
	seen := map[string]position{}
	var merges []*node
	for _, v := range values {
		value := r.read(v.Value)
		if v.Key.IsMergeKey() {
			merges = append(merges, value)
			continue
		}
		key, where, ok := r.readKey(v.Key)
		if !ok {
			continue
		}
		if first, dup := seen[key]; dup {
			r.report(where, "key %q is already set in line %d", keyAlone(key), first.line)
			continue
		}
		seen[key] = where
		if value.kind == kindNull {
			value.at = where
		}
		out.entries = append(out.entries, entry{key: key, at: where, value: value})
	}
	for _, m := range merges {
		r.merge(out, seen, m)
	}
}

// readKey returns the text of a mapping's key. Variables in it are not expanded.
func (r *treeReader) readKey(n ast.MapKeyNode) (key string, where position, ok bool) {
	var inner ast.Node = n
	if k, isExplicit := n.(*ast.MappingKeyNode); isExplicit {
		inner = k.Value
	}
	if inner == nil {
		r.report(at(n.GetToken()), "a key is missing")
		return "", position{}, false
	}
	where = at(inner.GetToken())
	switch k := inner.(type) {
	case *ast.StringNode:
		return k.Value, where, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return k.GetToken().Value, where, true
	}
	r.report(where, "expected a plain name as key")
	return "", where, false
}

// merge adds those entries of from, a mapping or a list of mappings, whose keys out
// does not have.
func (r *treeReader) merge(out *node, seen map[string]position, from *node) {
	switch from.kind {
	case kindMapping:
		for _, e := range from.entries {
			if _, own := seen[e.key]; !own {
				seen[e.key] = e.at
				out.entries = append(out.entries, e)
			}
		}
	case kindSequence:
		for _, m := range from.items {
			if m.kind != kindMapping && m.kind != kindBroken {
				r.report(m.at, "expected a mapping to merge")
				continue
			}
			r.merge(out, seen, m)
		}
	case kindBroken:
	default:
		r.report(from.at, "expected a mapping to merge, as in <<: *name")
	}
}
