package inject

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxInput is the largest input in bytes. etcd holds at most 1.5 MiB for an object.
const maxInput = 16 << 20

// Codes of refusals. They are stable.
const (
	codeTooLarge     = "too-large"
	codeNotYAML      = "not-yaml"
	codeNotManifest  = "not-a-manifest"
	codeDuplicateKey = "duplicate-key"
	codeAlias        = "alias"
	codeLayout       = "layout"
	codeInvalid      = "invalid"
	codeAnnotation   = "annotation"
	codeNameTaken    = "name-taken"
	codePortTaken    = "port-taken"
	codeUserTaken    = "user-taken"
	codeHostNetwork  = "host-network"
	codeOtherProxy   = "other-proxy"
	codeWindows      = "windows"
	codeNoNamespace  = "no-namespace"
	codeNoToken      = "no-token"
)

// Refusal says what can't have the sidecar, and why.
type Refusal struct {
	Code   string // stable
	Line   int    // from 1; 0 means the whole input
	Object string // kind and name, or ""
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string {
	text := r.Text
	if r.Object != "" {
		text = r.Object + ": " + text
	}
	if r.Line > 0 {
		text = fmt.Sprintf("line %d: %s", r.Line, text)
	}
	return text + " [" + r.Code + "]"
}

// manifests are the documents of an input.
type manifests struct {
	docs []*yaml.Node
	pods []*Pod
}

// kinds are those that are pods or make them, with the way to the template.
var kinds = []struct {
	group, kind string
	template    []string
}{
	{"", "Pod", nil},
	{"", "ReplicationController", []string{"spec", "template"}},
	{"apps", "Deployment", []string{"spec", "template"}},
	{"apps", "StatefulSet", []string{"spec", "template"}},
	{"apps", "DaemonSet", []string{"spec", "template"}},
	{"apps", "ReplicaSet", []string{"spec", "template"}},
	{"batch", "Job", []string{"spec", "template"}},
	{"batch", "CronJob", []string{"spec", "jobTemplate", "spec", "template"}},
}

// Inject returns manifests with the sidecar added to each pod, and what it has found. All else stays as it is, byte by
// byte. An error is one or several Refusals, joined.
func Inject(text []byte, o *Options) ([]byte, []*Pod, error) {
	mark, text := cutMark(text)
	m, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	e := newEditor(text)
	var refused []error
	for _, p := range m.pods {
		p.inject(e, o)
		for _, r := range p.refusals {
			refused = append(refused, r)
		}
	}
	if len(refused) > 0 {
		return nil, m.pods, errors.Join(refused...)
	}
	out := e.apply()
	// Whatever the layout of the text, the result must mean what was intended.
	if result, err := documents(out); err != nil || !slices.EqualFunc(result, m.docs, same) {
		return nil, m.pods, &Refusal{Code: codeLayout, Text: "the layout of the YAML is too unusual to add to it; have a tool write it anew, such as kubectl create --dry-run=client -o yaml"}
	}
	return append(mark, out...), m.pods, nil
}

// cutMark cuts text behind its byte order mark, if it has one.
func cutMark(text []byte) (mark, rest []byte) {
	if rest, found := bytes.CutPrefix(text, []byte("\ufeff")); found {
		return []byte("\ufeff"), rest
	}
	return nil, text
}

// parse reads the documents of text, and finds the pods in them.
func parse(text []byte) (*manifests, error) {
	if len(text) > maxInput {
		return nil, &Refusal{Code: codeTooLarge, Text: fmt.Sprintf("the input has more than %d bytes", maxInput)}
	}
	docs, err := documents(text)
	if err != nil {
		return nil, &Refusal{Code: codeNotYAML, Text: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if len(docs) == 0 {
		return nil, &Refusal{Code: codeNotManifest, Text: "there is no manifest in the input"}
	}
	m := &manifests{docs: docs}
	for _, d := range docs {
		f := finder{aliases: make(map[*yaml.Node]bool)}
		if err := f.check(d); err != nil {
			return nil, err
		}
		for _, object := range d.Content {
			if err := f.find(object, "", "", false); err != nil {
				return nil, err
			}
		}
		m.pods = append(m.pods, f.pods...)
	}
	return m, nil
}

// documents returns the documents of text that have content.
func documents(text []byte) ([]*yaml.Node, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("expected UTF-8")
	}
	var docs []*yaml.Node
	from := yaml.NewDecoder(bytes.NewReader(text))
	for {
		d := new(yaml.Node)
		if err := from.Decode(d); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, err
		}
		if len(d.Content) == 1 && d.Content[0].ShortTag() == "!!null" {
			continue // nothing between two separators
		}
		docs = append(docs, d)
	}
}

// finder finds the pods of a document.
type finder struct {
	aliases map[*yaml.Node]bool // nodes that have an alias
	pods    []*Pod
}

// check refuses keys that are there twice, and records what has an alias.
func (f *finder) check(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		f.aliases[n.Alias] = true
		return nil
	}
	keys := make(map[string]bool)
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Kind == yaml.ScalarNode {
			if keys[c.Value] {
				return &Refusal{Code: codeDuplicateKey, Line: c.Line, Text: fmt.Sprintf("the key %q is there twice", c.Value)}
			}
			keys[c.Value] = true
		}
		if err := f.check(c); err != nil {
			return err
		}
	}
	return nil
}

// find finds the pods in an object. Items of a list that have no kind have one by the kind of the list. shared reports whether
// an alias leads to the object or to what it is in.
func (f *finder) find(object *yaml.Node, version, kind string, shared bool) error {
	shared = shared || object.Kind == yaml.AliasNode || f.aliases[object]
	p := &Pod{object: resolved(object), Line: object.Line, aliases: f.aliases, shared: shared}
	version, kind = cmp.Or(p.text(p.object, "apiVersion"), version), cmp.Or(p.text(p.object, "kind"), kind)
	if kind == "" || version == "" {
		return &Refusal{Code: codeNotManifest, Line: object.Line, Text: "expected a manifest with apiVersion and kind"}
	}
	if items, merged := lookup(p.object, "items"); strings.HasSuffix(kind, "List") && (items != nil || merged != nil) {
		if items != nil && items.Kind != yaml.SequenceNode && items.Kind != yaml.AliasNode {
			return nil // a list of another kind, or an empty one
		}
		if items == nil || object.Kind == yaml.AliasNode || items.Kind == yaml.AliasNode { // a list may be within itself
			return &Refusal{Code: codeAlias, Line: object.Line, Text: "a list of manifests is an alias: write it out"}
		}
		shared = shared || f.aliases[items]
		of := strings.TrimSuffix(kind, "List")
		for _, item := range items.Content {
			if err := f.find(item, version, of, shared); err != nil {
				return err
			}
		}
		return nil
	}
	group, _, found := strings.Cut(version, "/")
	if !found {
		group = ""
	}
	for _, k := range kinds {
		if k.group == group && k.kind == kind {
			p.Kind, p.Name, p.Namespace = kind, p.text(p.object, "metadata", "name"), p.text(p.object, "metadata", "namespace")
			p.descend(k.template)
			f.pods = append(f.pods, p)
		}
	}
	return nil
}

// descend finds the template of the pod, and its spec.
func (p *Pod) descend(path []string) {
	p.template = p.object
	for _, key := range path {
		p.template = p.step(p.template, key)
	}
	p.spec = p.step(p.template, "spec")
	p.account = cmp.Or(p.text(p.spec, "serviceAccountName"), p.text(p.spec, "serviceAccount")) // the old key counts as in Kubernetes
	mount := p.text(p.spec, "automountServiceAccountToken")
	p.noToken = mount != "" && !isTrue(mount)
	if p.spec == nil {
		p.refuse(p.object, codeInvalid, "it has no pod: expected %s", strings.Join(append(path, "spec"), "."))
	}
}

// step returns the value of a key, and records whether it is an alias or has one.
func (p *Pod) step(m *yaml.Node, key string) *yaml.Node {
	v, _ := lookup(m, key)
	p.shared = p.shared || v != nil && (v.Kind == yaml.AliasNode || p.aliases[v])
	return p.get(m, key)
}
