package inject

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Names in a pod that belong to the sidecar.
const (
	sidecarName   = "remora"
	interceptName = "remora-intercept"
	configVolume  = "remora-config"
	cacheVolume   = "remora-cache"
	tlsVolume     = "remora-tls"
	runVolume     = "remora-run"
)

// gracePeriod is the time for the drain of the sidecar, at most timeouts.drain, and the end of the application.
const gracePeriod = 60

// zoneLabel is on pods from Kubernetes 1.35.
const zoneLabel = "topology.kubernetes.io/zone"

// serviceLabels are those that may name the service of a pod, the best first.
var serviceLabels = []string{"app.kubernetes.io/name", "app", "k8s-app"}

// sidecar returns the container of the sidecar. serviceLabel is the label of the pod that names its service, or "".
func (o *Options) sidecar(serviceLabel string) *yaml.Node {
	c := mapping("name", sidecarName, "image", o.Image)
	if o.PullPolicy != "" {
		set(c, "imagePullPolicy", o.PullPolicy)
	}
	set(c, "restartPolicy", "Always", "args", flow(list("run", "-c", "/config/remora.yaml", "--watch")), "env", o.env(serviceLabel))
	if o.LinkPort > 0 {
		set(c, "ports", list(flow(mapping("name", "link", "containerPort", o.LinkPort))))
	}
	set(c, "startupProbe", o.probe(1, 60), "readinessProbe", o.probe(2, 0), "livenessProbe", o.probe(10, 6, "--live"))
	if o.Drain {
		set(c, "lifecycle", mapping("preStop", o.exec("drain", "--wait")))
	}
	set(c, "resources", o.resources(o.CPURequest, o.MemoryRequest, o.MemoryLimit), "securityContext", mapping(
		"runAsNonRoot", true,
		"runAsUser", o.User,
		"allowPrivilegeEscalation", false,
		"readOnlyRootFilesystem", true,
		"capabilities", flow(mapping("drop", list("ALL"))),
		"seccompProfile", flow(mapping("type", "RuntimeDefault")),
	))
	mounts := list(mount(configVolume, "/config"), mount(cacheVolume, "/cache"))
	if o.TLS != "" {
		set(mounts, mount(tlsVolume, "/tls"))
	}
	return set(c, "volumeMounts", mounts)
}

func mount(volume, path string) *yaml.Node {
	return flow(mapping("name", volume, "mountPath", path))
}

// variables are those of the environment that the sidecar always has, each with a field of the pod.
var variables = []struct{ name, path string }{
	{"POD_NAME", "metadata.name"},
	{"POD_NAMESPACE", "metadata.namespace"},
	{"POD_IP", "status.podIP"},
	{"NODE_NAME", "spec.nodeName"},
	{"ZONE", labelPath(zoneLabel)},
	{"SERVICE", ""}, // the label that names the service, if there is one
}

// env returns the environment of the sidecar.
func (o *Options) env(serviceLabel string) *yaml.Node {
	all := list()
	for _, f := range variables {
		if f.path == "" && serviceLabel == "" {
			continue
		}
		f.path = cmp.Or(f.path, labelPath(serviceLabel))
		path := node(f.path)
		if strings.Contains(f.path, "'") {
			path.Style = yaml.DoubleQuotedStyle
		}
		from := mapping("fieldRef", mapping("fieldPath", path))
		set(all, flow(mapping("name", f.name, "valueFrom", from)))
	}
	for _, e := range o.Env { // none has the name of another: Check
		name, value, _ := strings.Cut(e, "=")
		set(all, flow(mapping("name", name, "value", value)))
	}
	return all
}

func labelPath(label string) string { return "metadata.labels['" + label + "']" }

// probe returns a probe. The admin API is on loopback, so the sidecar's own program asks it. failures of 0 leaves the default
// of Kubernetes, 3.
func (o *Options) probe(period, failures int, args ...string) *yaml.Node {
	p := set(o.exec("healthcheck", args...), "periodSeconds", period, "timeoutSeconds", 4)
	if failures > 0 {
		set(p, "failureThreshold", failures)
	}
	return p
}

// exec returns what runs a command that asks the admin API.
func (o *Options) exec(command string, args ...string) *yaml.Node {
	all := list("/remora", command)
	if o.AdminPort != defaultAdminPort {
		set(all, "--admin", fmt.Sprintf("127.0.0.1:%d", o.AdminPort))
	}
	for _, a := range args {
		set(all, a)
	}
	return mapping("exec", flow(mapping("command", all)))
}

// resources returns the requests and limits of a container.
func (o *Options) resources(cpu, memory, memoryLimit string) *yaml.Node {
	requests := mapping("cpu", cpu, "memory", memory)
	limits := mapping("memory", memoryLimit)
	if o.CPULimit != "" {
		limits = mapping("cpu", o.CPULimit, "memory", memoryLimit)
	}
	return mapping("requests", flow(requests), "limits", flow(limits))
}

// interceptor returns the container that redirects what the application sends. It runs once the sidecar is ready, and ends.
func (o *Options) interceptor() *yaml.Node {
	i := &o.Intercept
	args := list("install", "--proxy-uid", strconv.Itoa(o.User), "--port", strconv.Itoa(i.Port))
	for _, option := range []struct{ name, value string }{{"--ports", i.Ports}, {"--exclude-ports", i.ExcludePorts}} {
		if option.value != "" {
			set(args, option.name, option.value)
		}
	}
	for _, cidr := range i.Exclude {
		set(args, "--exclude", cidr)
	}
	if i.NoIPv6 {
		set(args, "--no-ipv6")
	}
	return mapping("name", interceptName, "image", i.Image, "args", flow(args),
		"resources", o.resources("10m", "40Mi", "128Mi"), // it runs for a second
		"securityContext", mapping(
			"runAsUser", 0,
			"runAsNonRoot", false,
			"allowPrivilegeEscalation", false,
			"readOnlyRootFilesystem", true,
			"capabilities", flow(mapping("drop", list("ALL"), "add", list("NET_ADMIN", "NET_RAW"))),
			"seccompProfile", flow(mapping("type", "RuntimeDefault")),
		),
		"volumeMounts", list(mount(runVolume, "/run"))) // iptables locks /run/xtables.lock
}

// volumes returns the volumes of the sidecar.
func (o *Options) volumes() []*yaml.Node {
	all := []*yaml.Node{
		flow(mapping("name", configVolume, "configMap", mapping("name", o.Config))),
		flow(mapping("name", cacheVolume, "emptyDir", mapping())),
	}
	if o.TLS != "" {
		all = append(all, flow(mapping("name", tlsVolume, "secret", mapping("secretName", o.TLS))))
	}
	if o.Intercept.On {
		all = append(all, flow(mapping("name", runVolume, "emptyDir", mapping())))
	}
	return all
}

// node returns the node of a string, an int or a bool. A node stays as it is. A string that YAML 1.1 or 1.2 would read as
// another type, such as on or 1e3, is in quotes: kubectl reads YAML 1.1.
func node(v any) *yaml.Node {
	switch v := v.(type) {
	case *yaml.Node:
		return v
	case string:
		n := new(yaml.Node)
		if err := n.Encode(v); err != nil {
			panic(err) // a string can always be encoded
		}
		return n
	case int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(v)}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	}
	panic(fmt.Sprintf("inject: no node for a %T", v))
}

// mapping returns a mapping of keys and values in turn.
func mapping(pairs ...any) *yaml.Node {
	return set(&yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, pairs...)
}

func mappingOf(pairs []*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: pairs}
}

// set appends keys and values in turn to a mapping, or items to a sequence, and returns it.
func set(n *yaml.Node, content ...any) *yaml.Node {
	for _, c := range content {
		n.Content = append(n.Content, node(c))
	}
	return n
}

// list returns a sequence.
func list(items ...any) *yaml.Node { return set(sequenceOf(nil), items...) }

func sequenceOf(items []*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: items}
}

// flow has a node written on one line.
func flow(n *yaml.Node) *yaml.Node {
	n.Style = yaml.FlowStyle
	return n
}
