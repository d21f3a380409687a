package config

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
)

// Inspect checks a configuration beyond its text, for example the files that it
// names, and reports errors by the path of a key. In c, values with errors in the
// text have their defaults.
type Inspect func(c *Config, report func(path, text string))

// Load reads and checks the file at path. The values of ${VAR} come from the
// process's environment. The error is Errors if the content is wrong; otherwise the
// file could not be read.
func Load(path string, more ...Inspect) (*Config, error) { return LoadWith(path, nil, more...) }

// LoadWith is Load with an overlay on the file. nil means none.
func LoadWith(path string, over *Overlay, more ...Inspect) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return parseWith(path, data, os.LookupEnv, over, more)
}

// ownName returns the host's name, or localhost if the system does not know it.
func ownName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// Parse checks data. Errors use name as the name of the file; env looks up variables. A nil env has none: then a variable
// is an error.
// The error is nil, or Errors with all errors in data. Warnings are in the Config.
func Parse(name string, data []byte, env func(string) (string, bool), more ...Inspect) (*Config, error) {
	return parseWith(name, data, env, nil, more)
}

// ParseWith is Parse with an overlay on data. nil means none.
func ParseWith(name string, data []byte, env func(string) (string, bool), over *Overlay) (*Config, error) {
	return parseWith(name, data, env, over, nil)
}

func parseWith(name string, data []byte, env func(string) (string, bool), over *Overlay, more []Inspect) (*Config, error) {
	if over != nil { // the file must also do without it
		if _, err := Parse(name, data, env, more...); err != nil {
			return nil, err
		}
	}
	d := newDecoder(name)
	root := d.readTree(data, env)
	if root != nil && over != nil {
		root = d.lay(over, root)
	}
	if root == nil {
		return nil, d.errs.first(maxErrors)
	}
	d.decode(root, reflect.ValueOf(d.config).Elem(), field{}, "")
	in := scope{config: d.config, report: d.report, warn: d.warn, partly: d.partly}
	d.config.check(in)
	for _, inspect := range more {
		inspect(d.config, func(at, text string) { d.report(path(at), "%s", text) })
	}
	if len(d.errs) > 0 {
		return nil, d.errs.first(maxErrors)
	}
	checkUsed(in)
	d.config.Warnings = d.warned.first(maxErrors)
	return d.config, nil
}

// newDecoder returns a decoder of the text with a name.
func newDecoder(name string) *decoder {
	return &decoder{
		file:      name,
		config:    Default(),
		positions: map[path]position{},
		failed:    map[path]bool{},
		partly:    map[path]bool{},
	}
}

// readTree returns the tree of a text. It returns nil after it has reported that there is none.
func (d *decoder) readTree(data []byte, env func(string) (string, bool)) *node {
	r := treeReader{env: env, anchors: map[string]*node{}}
	r.report = func(at position, format string, args ...any) { d.errorAt(at, "", format, args...) }
	root := r.readTree(data)
	if root == nil || root.kind == kindBroken || root.kind == kindNull {
		if len(d.errs) == 0 { // a file that is about to be written, or could not be
			d.errorAt(position{line: 1, column: 1}, "", "empty; expected a configuration")
		}
		return nil
	}
	return root
}

// report adds an error of a value that was decoded. If the value, or one that contains
// it, could not be decoded, it adds nothing: that error was reported before.
func (d *decoder) report(p path, format string, args ...any) {
	for above := p; above != ""; above = above.parent() {
		if d.failed[above] {
			return
		}
	}
	d.add(d.locate(p), p, sprintf(format, args...))
}

func (d *decoder) add(at position, p path, text string) {
	d.errs = append(d.errs, d.errorOf(at, p, text))
}

// warn adds a warning of a value.
func (d *decoder) warn(p path, format string, args ...any) {
	w := d.errorOf(d.locate(p), p, sprintf(format, args...))
	w.Warning = true
	d.warned = append(d.warned, w)
}

func (d *decoder) errorOf(at position, p path, text string) Error {
	return Error{File: cmp.Or(at.of, d.file), Line: at.line, Column: at.column, Path: printed(string(p)), Text: printed(text)}
}

// locate returns the position of a path, or of the nearest value above it that is in
// the file.
func (d *decoder) locate(p path) position {
	for ; p != ""; p = p.parent() {
		if at, ok := d.positions[p]; ok {
			return at
		}
	}
	return position{line: 1, column: 1}
}
