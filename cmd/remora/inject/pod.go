package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Annotation is what a pod, or the object that makes it, says about the sidecar: "disabled" keeps it out.
const Annotation = "remora-proxy.github.io/inject"

// Values of Annotation. Without one a pod counts as enabled.
const (
	enabled  = "enabled"
	disabled = "disabled"
)

// Outcomes of a pod.
const (
	added    = "sidecar added"
	present  = "has the sidecar already"
	optedOut = "left alone, by its annotation " + Annotation
)

// Pod is a pod, or an object that makes pods, in a manifest.
type Pod struct {
	Kind, Name, Namespace string
	Line                  int // of the object
	Outcome               string
	Note                  string // what to know about it, or ""

	object   *yaml.Node
	template *yaml.Node // has the metadata and the spec of the pod
	spec     *yaml.Node
	account  string // service account
	noToken  bool   // the pod gets no token of it

	shared    bool // other parts of the document are aliases of the pod or of what it is in
	aliases   map[*yaml.Node]bool
	refusals  []*Refusal
	hasMerged bool // a merge key was refused already
}

// refuse records why the pod can't have the sidecar.
func (p *Pod) refuse(at *yaml.Node, code, format string, args ...any) {
	p.refusals = append(p.refusals, &Refusal{Code: code, Line: at.Line, Object: p.String(), Text: fmt.Sprintf(format, args...)})
}

// note adds to Note.
func (p *Pod) note(format string, args ...any) {
	if p.Note != "" {
		p.Note += "; "
	}
	p.Note += fmt.Sprintf(format, args...)
}

// String returns the kind and the name.
func (p *Pod) String() string { return strings.TrimSpace(p.Kind + " " + p.Name) }

// get returns the value of a key, or nil if it is absent or null. m may be nil.
func (p *Pod) get(m *yaml.Node, key string) *yaml.Node {
	v, merged := lookup(m, key)
	if v == nil && merged != nil && !p.hasMerged {
		p.hasMerged = true
		p.refuse(merged, codeAlias, "a merge key (<<) may have the %s of the pod: write them out", key)
	}
	if v == nil || v.ShortTag() == "!!null" {
		return nil
	}
	return resolved(v)
}

// items returns the items of a list. m may be nil.
func (p *Pod) items(m *yaml.Node, key string) []*yaml.Node {
	v := p.get(m, key)
	if v == nil {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		p.refuse(v, codeInvalid, "expected a list as %s", key)
		return nil
	}
	items := make([]*yaml.Node, 0, len(v.Content))
	for _, i := range v.Content {
		items = append(items, resolved(i))
	}
	return items
}

// text returns the value of a key as text, or "".
func (p *Pod) text(m *yaml.Node, keys ...string) string {
	for _, key := range keys[:len(keys)-1] {
		m = p.get(m, key)
	}
	if v := p.get(m, keys[len(keys)-1]); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// isTrue reports whether text is true to Kubernetes, whose YAML is version 1.1.
func isTrue(text string) bool {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "y":
		return true
	}
	return false
}

// numberOf returns the number that is written as text, in any base that YAML has.
func numberOf(text string) (n int, ok bool) {
	number, err := strconv.ParseInt(text, 0, 64)
	return int(number), err == nil
}

// inject adds the sidecar, or records why not.
func (p *Pod) inject(e *editor, o *Options) {
	switch p.annotation() {
	case disabled:
		p.Outcome = optedOut
		return
	case "", enabled:
	default:
		p.refuse(p.object, codeAnnotation, "expected %s or %s as the annotation %s", enabled, disabled, Annotation)
	}
	init, containers := p.items(p.spec, "initContainers"), p.items(p.spec, "containers")
	if p.hasSidecar(init) {
		p.Outcome = present
		return
	}
	if len(containers) == 0 {
		p.refuse(p.object, codeInvalid, "it has no containers")
	}
	p.checkSystem()
	for _, c := range append(init, containers...) {
		p.checkContainer(c, o)
	}
	for _, v := range p.items(p.spec, "volumes") {
		switch name := p.text(v, "name"); name {
		case configVolume, cacheVolume, tlsVolume, runVolume:
			p.refuse(v, codeNameTaken, "a volume has the name %s", name)
		}
	}
	if o.Intercept.On {
		p.checkInterception(o)
	}
	if len(p.refusals) == 0 {
		p.edit(e, o)
		p.Outcome = added
	}
}

// annotation returns the value of Annotation. That of the pod comes before that of the object.
func (p *Pod) annotation() string {
	for _, of := range []*yaml.Node{p.template, p.object} {
		if v := p.text(of, "metadata", "annotations", Annotation); v != "" {
			return v
		}
	}
	return ""
}

func (p *Pod) hasSidecar(init []*yaml.Node) bool {
	for _, c := range init {
		if p.text(c, "name") == sidecarName && p.text(c, "restartPolicy") == "Always" {
			return true
		}
	}
	return false
}

// checkSystem refuses pods of other systems than Linux.
func (p *Pod) checkSystem() {
	for _, path := range [][]string{{"os", "name"}, {"nodeSelector", "kubernetes.io/os"}} {
		if system := p.text(p.spec, path...); system != "" && system != "linux" {
			p.refuse(p.spec, codeWindows, "its nodes run %s, and the sidecar runs on Linux", system)
			return
		}
	}
}

// checkContainer refuses a container beside which the sidecar can't be.
func (p *Pod) checkContainer(c *yaml.Node, o *Options) {
	switch name := p.text(c, "name"); name {
	case sidecarName, interceptName:
		p.refuse(c, codeNameTaken, "another container has the name %s", name)
	case "istio-proxy", "istio-init", "linkerd-proxy", "linkerd-init":
		if o.Intercept.On {
			p.refuse(c, codeOtherProxy, "%s redirects the connections of the pod already", name)
		}
	}
	ours := map[int]string{o.AdminPort: "the admin API"}
	if o.LinkPort > 0 {
		ours[o.LinkPort] = "links"
	}
	if o.Intercept.On {
		ours[o.Intercept.Port] = "redirected connections"
	}
	for _, port := range p.items(c, "ports") {
		number, isNumber := numberOf(p.text(port, "containerPort"))
		if use := ours[number]; isNumber && use != "" {
			p.refuse(port, codePortTaken, "container %s has port %d, which the sidecar needs for %s", p.text(c, "name"), number, use)
		}
	}
}

// checkInterception refuses a pod whose connections can't be redirected.
func (p *Pod) checkInterception(o *Options) {
	if isTrue(p.text(p.spec, "hostNetwork")) {
		p.refuse(p.spec, codeHostNetwork, "it has hostNetwork, so --intercept would redirect all connections of its node")
	}
	ofPod := p.text(p.spec, "securityContext", "runAsUser")
	isUnknown := false
	for _, c := range append(p.items(p.spec, "initContainers"), p.items(p.spec, "containers")...) {
		user, isKnown := numberOf(cmp.Or(p.text(c, "securityContext", "runAsUser"), ofPod))
		isUnknown = isUnknown || !isKnown
		if user == o.User {
			p.refuse(c, codeUserTaken, "container %s runs as user %d, whose connections are not redirected; expected another --proxy-uid", p.text(c, "name"), user)
		}
	}
	if isUnknown {
		p.note("it has no runAsUser: if its image runs as user %d, its connections are not redirected, and --proxy-uid needs another number", o.User)
	}
}

// edit adds the containers and volumes.
func (p *Pod) edit(e *editor, o *Options) {
	label := ""
	for _, l := range serviceLabels {
		if label == "" && p.text(p.template, "metadata", "labels", l) != "" {
			label = l
		}
	}
	containers := []*yaml.Node{o.sidecar(label)}
	if o.Intercept.On {
		containers = append(containers, o.interceptor())
	}
	type addition struct {
		key   string
		value *yaml.Node
	}
	additions := []addition{{"initContainers", sequenceOf(containers)}, {"volumes", sequenceOf(o.volumes())}}
	if period := p.text(p.spec, "terminationGracePeriodSeconds"); period == "" {
		additions = slices.Insert(additions, 0, addition{"terminationGracePeriodSeconds", node(gracePeriod)})
	} else if seconds, isNumber := numberOf(period); isNumber && seconds < gracePeriod {
		p.note("its terminationGracePeriodSeconds of %d may cut a drain of the sidecar short", seconds)
	}
	var pairs []*yaml.Node
	for _, a := range additions {
		switch v, _ := lookup(p.spec, a.key); {
		case v == nil:
			pairs = append(pairs, node(a.key), a.value)
		case p.isShared(v):
		case v.Kind == yaml.ScalarNode: // null
			e.fill(v, a.value)
		default:
			e.prepend(v, a.value.Content...)
		}
	}
	if len(pairs) > 0 && !p.isShared(p.spec) {
		e.add(p.spec, pairs...)
	}
}

// isShared reports whether a node is an alias or has one, and refuses the pod if so.
func (p *Pod) isShared(n *yaml.Node) bool {
	shared := p.shared || n.Kind == yaml.AliasNode || p.aliases[n]
	if shared && len(p.refusals) == 0 {
		p.refuse(n, codeAlias, "what the sidecar is added to is shared through an alias, so another part of the document would get the sidecar, too: write it out")
	}
	return shared
}

// lookup returns the value of a key, without following an alias to it, or nil, and the merge key of the mapping if it has one.
func lookup(m *yaml.Node, key string) (value, merged *yaml.Node) {
	m = resolved(m)
	if m == nil || m.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		switch k := m.Content[i]; {
		case k.Value == key && k.Kind == yaml.ScalarNode:
			value = m.Content[i+1]
		case k.ShortTag() == "!!merge":
			merged = k
		}
	}
	return value, merged
}

// resolved returns what an alias stands for. n may be nil.
func resolved(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}
