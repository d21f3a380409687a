package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
)

// Inspect finds what is wrong with a configuration beyond its text, such as files
// that it names, and reports it by the path of a key. What the text has wrong
// is at its default in c.
type Inspect func(c *Config, report func(path, text string))

// Load reads and checks the file at path, with ${VAR} taken from the process's
// environment. The error is Errors when the content is at fault, or that of
// reading the file.
func Load(path string, more ...Inspect) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(path, data, os.LookupEnv, more...)
}

// Parse checks data; name stands for it in errors, and env looks up variables.
// The error is nil or Errors: everything wrong with data.
func Parse(name string, data []byte, env func(string) (string, bool), more ...Inspect) (*Config, error) {
	d := &decoder{
		file:      name,
		config:    Default(),
		positions: map[path]position{},
		failed:    map[path]bool{},
	}
	r := treeReader{env: env, anchors: map[string]*node{}}
	r.report = func(at position, format string, args ...any) { d.errorAt(at, "", format, args...) }
	root := r.readTree(data)
	switch {
	case root == nil || root.kind == kindBroken || root.kind == kindNull:
		if len(d.errs) == 0 { // a file that somebody is about to write, or could not
			d.errorAt(position{line: 1, column: 1}, "", "empty; expected a configuration")
		}
		return nil, d.errs
	default:
		d.decode(root, reflect.ValueOf(d.config).Elem(), field{}, "")
	}
	v := validator{config: d.config, report: d.complain}
	v.validate()
	for _, inspect := range more {
		inspect(d.config, func(at, text string) { d.complain(path(at), "%s", text) })
	}
	if len(d.errs) > 0 {
		d.errs.sort()
		return nil, d.errs
	}
	return d.config, nil
}

// complain reports what is wrong with a value that was decoded. Nothing is said
// of a value that could not be: it, or what it is part of, was reported.
func (d *decoder) complain(p path, format string, args ...any) {
	for above := p; above != ""; above = above.parent() {
		if d.failed[above] {
			return
		}
	}
	d.add(d.locate(p), p, fmt.Sprintf(format, args...))
}

// maxShown is how many bytes an error has of a key's path, and of its text: they may
// hold what the file has there, of any length.
const maxShown = 512

// add is an error more.
func (d *decoder) add(at position, p path, text string) {
	d.errs = append(d.errs, Error{
		File: d.file, Line: at.line, Column: at.column, Path: beginning(string(p)), Text: beginning(text),
	})
}

// beginning is what an error shows of text.
func beginning(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}

// locate is the position of a path, or of the nearest thing above that the file
// gives.
func (d *decoder) locate(p path) position {
	for ; p != ""; p = p.parent() {
		if at, ok := d.positions[p]; ok {
			return at
		}
	}
	return position{line: 1, column: 1}
}

// parent cuts the last step off. Of a quoted name with dots it leaves steps that
// match nothing, and then the parent.
func (p path) parent() path { return p[:max(strings.LastIndexAny(string(p), ".["), 0)] }
