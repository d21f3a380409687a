package inject

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	kubectl "sigs.k8s.io/yaml" // kubectl reads manifests by this package

	"github.com/remora-proxy/remora/internal/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// cases are files in testdata, each with what it becomes in NAME.injected.yaml.
var cases = []struct {
	file   string
	change func(o *Options)
}{
	{"deployment.yaml", nil},
	{"kinds.yaml", nil},
	{"list.json", nil},
	{"unset.yaml", nil},
	{"alone.yaml", nil},
	{"provider.yaml", func(o *Options) {
		o.Image, o.PullPolicy, o.Config, o.TLS = "registry.test/remora:1", "IfNotPresent", "compute-remora", "compute-certificate"
		o.Env = []string{"ETCD=http://etcd:2379", "MOTTO=a: 'b' = \"c\"\nd", "EMPTY="}
		o.LinkPort, o.AdminPort, o.Drain, o.CPULimit = 15006, 9902, true, "2"
	}},
	{"intercept.yaml", func(o *Options) {
		o.User = 2000
		o.Intercept = Intercept{
			On: true, Image: "remora-intercept:1", Port: 15002, Ports: "80,8000-8100", ExcludePorts: "3306", NoIPv6: true,
			Exclude: []string{"10.0.0.0/8", "192.168.0.1"},
		}
	}},
}

func optionsOf(change func(o *Options)) *Options {
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	return &o
}

func goldenOf(file string) string {
	return filepath.Join("testdata", strings.TrimSuffix(file, filepath.Ext(file))+".injected"+filepath.Ext(file))
}

// TestInject: each input becomes what its golden file has, and a second time nothing changes.
func TestInject(t *testing.T) {
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			o := optionsOf(c.change)
			if err := o.Check(); err != nil {
				t.Fatal(err)
			}
			in := must.ReadFile(t, filepath.Join("testdata", c.file))
			out, _, err := Inject(in, o)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				must.WriteFile(t, goldenOf(c.file), out)
			}
			if want := must.ReadFile(t, goldenOf(c.file)); !bytes.Equal(out, want) {
				t.Errorf("got\n%s\nexpected\n%s", out, want)
			}
			again, _, err := Inject(out, o)
			if err != nil || !bytes.Equal(again, out) {
				t.Errorf("a second time it becomes %q, %v", again, err)
			}
			if !contains(out, in) {
				t.Error("what was there is there no longer")
			}
		})
	}
}

// contains reports whether text has all characters of in, in their order. A null may have become a value.
func contains(text, in []byte) bool {
	for _, b := range bytes.ReplaceAll(bytes.ReplaceAll(in, []byte("~"), nil), []byte("null"), nil) {
		i := bytes.IndexByte(text, b)
		if i < 0 {
			return false
		}
		text = text[i+1:]
	}
	return true
}

// TestLineEnds: what is added has the line ends of the file. A byte order mark stays.
func TestLineEnds(t *testing.T) {
	in, want := must.ReadFile(t, "testdata/deployment.yaml"), must.ReadFile(t, goldenOf("deployment.yaml"))
	for _, of := range []func(text []byte) []byte{
		func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) },
		func(text []byte) []byte { return append([]byte("\ufeff"), text...) },
	} {
		out, _, err := Inject(of(in), optionsOf(nil))
		if err != nil || !bytes.Equal(out, of(want)) {
			t.Errorf("got %q, %v", out, err)
		}
	}
	mark := []byte("\ufeff" + `{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "x"}]}}`)
	if out, _, err := Inject(mark, optionsOf(nil)); err != nil || !bytes.HasPrefix(out, mark[:20]) {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestStringsStayStrings: what an option has is a string to kubectl, which reads YAML 1.1.
func TestStringsStayStrings(t *testing.T) {
	for _, value := range []string{
		"yes", "Yes", "YES", "no", "on", "On", "off", "y", "Y", "n", "N", "true", "False", "~", "null", "Null",
		"1", "-1", "1e3", "1.5", "0x1f", "0o17", "0b11", "012", "1_000", "1:30", ".inf", ".nan", "2026-01-02", "<<", "=", "- a", "#", " a ",
		"a: b", "a\nb", "{}", "!x", "&a", "*a", "%", "@", "`", "'", "\"", "\\", "\t", "\u2028",
	} {
		for _, in := range []string{
			pod("hostPID: true" + container), pod("initContainers: []\nvolumes: []" + container),
			`{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "x"}]}}`,
		} {
			out, _, err := Inject([]byte(in), optionsOf(func(o *Options) {
				o.Env = []string{"VALUE=" + value}
				o.Config, o.TLS, o.Image, o.CPURequest = value, value, value, value
			}))
			if err != nil {
				t.Fatalf("%q: %v", value, err)
			}
			var got map[string]any
			if err := kubectl.Unmarshal(out, &got); err != nil {
				t.Fatalf("%q: %v in %s", value, err, out)
			}
			spec := got["spec"].(map[string]any)
			sidecar := spec["initContainers"].([]any)[0].(map[string]any)
			env := sidecar["env"].([]any)
			volumes := spec["volumes"].([]any)
			for _, s := range []any{
				env[len(env)-1].(map[string]any)["value"], sidecar["image"],
				sidecar["resources"].(map[string]any)["requests"].(map[string]any)["cpu"],
				volumes[0].(map[string]any)["configMap"].(map[string]any)["name"],
				volumes[2].(map[string]any)["secret"].(map[string]any)["secretName"],
			} {
				if s != value {
					t.Errorf("%q becomes %v (%T) in %s", value, s, s, out)
				}
			}
		}
		in := strings.ReplaceAll(pod(fmt.Sprintf("serviceAccountName: %q", value)+container), "{name: p}", fmt.Sprintf("{namespace: %q}", value))
		out, _, err := RBAC([]byte(in), "shop")
		if err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		_, bound, _ := bytes.Cut(out, []byte("---\n"))
		var binding struct {
			Metadata struct{ Namespace any }
			Subjects []struct{ Name, Namespace any }
		}
		if err := kubectl.Unmarshal(bound, &binding); err != nil || len(binding.Subjects) != 1 {
			t.Fatalf("%q: %v in %s", value, err, out)
		}
		for _, s := range []any{binding.Metadata.Namespace, binding.Subjects[0].Name, binding.Subjects[0].Namespace} {
			if s != value {
				t.Errorf("%q becomes %v (%T) in %s", value, s, s, out)
			}
		}
	}
}

// pod is a manifest with the spec of a pod, which begins on line 4.
func pod(spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  " + strings.ReplaceAll(spec, "\n", "\n  ") + "\n"
}

const container = "\ncontainers: [{name: x, image: y}]"

func intercepting(o *Options) { o.Intercept.On = true }

// refusals are inputs that can't have the sidecar, each with a code and the line that its error names.
var refusals = []struct {
	name   string
	in     string
	change func(o *Options)
	code   string
	line   int
}{
	{"nothing", "", nil, codeNotManifest, 0},
	{"only a comment", "# nothing\n---\n", nil, codeNotManifest, 0},
	{"no YAML", "a: b: c\n", nil, codeNotYAML, 0},
	{"no YAML in the second document", pod("hostPID: true"+container) + "---\n\tx", nil, codeNotYAML, 0},
	{"a tab", "a:\n\tb: c\n", nil, codeNotYAML, 0},
	{"no UTF-8", "a: \xff\n", nil, codeNotYAML, 0},
	{"UTF-16", "\xff\xfea\x00:\x00", nil, codeNotYAML, 0},
	{"control characters", "a: \x00\n", nil, codeNotYAML, 0},
	{"an unknown alias", "a: *b\n", nil, codeNotYAML, 0},
	{"a page of HTML", "<html>\n", nil, codeNotManifest, 1},
	{"a list", "- a\n", nil, codeNotManifest, 1},
	{"no kind", "apiVersion: v1\n", nil, codeNotManifest, 1},
	{"no apiVersion", "kind: Pod\n", nil, codeNotManifest, 1},
	{"an item without a kind", "apiVersion: v1\nkind: List\nitems: [{spec: {}}]\n", nil, codeNotManifest, 3},
	{"too large", "a: b\n#" + strings.Repeat("x", maxInput), nil, codeTooLarge, 0},
	{"too deep", strings.Repeat("[", 20_000), nil, codeNotYAML, 0},

	{"a key twice", pod("hostPID: true\nhostPID: false" + container), nil, codeDuplicateKey, 6},
	{"a key twice in another document", "apiVersion: v1\nkind: Service\nspec: {a: b, 'a': c}\n", nil, codeDuplicateKey, 3},
	{"initContainers twice", pod("initContainers: []\n\"initContainers\": []" + container), nil, codeDuplicateKey, 6},

	{"the spec is an alias", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, spec: &s {containers: [{name: x}]}}\n- {apiVersion: v1, kind: Pod, spec: *s}\n", nil, codeAlias, 4},
	{"the item is an alias", "apiVersion: v1\nkind: List\nmetadata: {annotations: &p {apiVersion: v1, kind: Pod, spec: {containers: [{name: x}]}}}\nitems: [*p]\n", nil, codeAlias, 3},
	{"the volumes are an alias", "apiVersion: v1\nkind: Pod\nmetadata: {finalizers: &v [a]}\nspec:\n  volumes: *v\n  containers: [{name: x}]\n", nil, codeAlias, 5},
	{"the spec has an alias", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: &s\n  containers: [{name: x, env: [{name: a, value: b}]}]\nstatus: *s\n", nil, codeAlias, 4},
	{"a merge key in the spec", "apiVersion: v1\nkind: Pod\nmetadata: &m {hostNetwork: true}\nspec:\n  <<: *m\n  containers: [{name: x}]\n", nil, codeAlias, 5},

	{"a list in itself", "apiVersion: v1\nkind: List\nitems: &i\n- {apiVersion: v1, kind: List, items: *i}\n", nil, codeAlias, 4},
	{"a list is an alias", "apiVersion: v1\nkind: List\nitems:\n- &l {apiVersion: v1, kind: List, items: []}\n- *l\n", nil, codeAlias, 5},

	{"a list by a merge key", "apiVersion: v1\nkind: List\nmetadata: &m {items: []}\n<<: *m\n", nil, codeAlias, 1},

	{"an explicit key", pod("? containers\n: [{name: x}]"), nil, codeLayout, 0},
	{"an anchor at an empty list", pod("initContainers: &i []" + container), nil, codeLayout, 0},

	{"no spec", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n", nil, codeInvalid, 1},
	{"no containers", pod("hostPID: true"), nil, codeInvalid, 1},
	{"containers are no list", pod("containers: {name: x}"), nil, codeInvalid, 5},
	{"volumes are no list", pod("volumes: 3" + container), nil, codeInvalid, 5},
	{"another annotation", "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {remora-proxy.github.io/inject: \"no\"}}\nspec: {containers: [{name: x}]}\n", nil, codeAnnotation, 1},

	{"a container of that name", pod("containers:\n- name: remora"), nil, codeNameTaken, 6},
	{"an init container of that name", pod("initContainers: [{name: remora}]" + container), nil, codeNameTaken, 5},
	{"a container with the name of the interceptor", pod("initContainers: [{name: remora-intercept}]" + container), nil, codeNameTaken, 5},
	{"a volume of that name", pod("volumes: [{name: remora-cache}]" + container), nil, codeNameTaken, 5},
	{"the port of the admin API", pod("containers: [{name: x, ports: [{containerPort: 9901}]}]"), nil, codePortTaken, 5},
	{"the port of links", pod("containers: [{name: x, ports: [{containerPort: 15006}]}]"), func(o *Options) { o.LinkPort = 15006 }, codePortTaken, 5},
	{"the port of redirected connections", pod("containers: [{name: x, ports: [{containerPort: 15001}]}]"), intercepting, codePortTaken, 5},
	{"the volume for the lock", pod("volumes: [{name: remora-run}]" + container), nil, codeNameTaken, 5},
	{"Windows", pod("os: {name: windows}" + container), nil, codeWindows, 5},
	{"nodes with Windows", pod("nodeSelector: {kubernetes.io/os: windows}" + container), nil, codeWindows, 5},

	{"hostNetwork", pod("hostNetwork: true" + container), intercepting, codeHostNetwork, 5},
	{"hostNetwork as in YAML 1.1", pod("hostNetwork: yes" + container), intercepting, codeHostNetwork, 5},
	{"hostNetwork by an alias", "apiVersion: v1\nkind: Pod\nmetadata: {generation: &t true}\nspec:\n  hostNetwork: *t\n  containers: [{name: x}]\n", intercepting, codeHostNetwork, 5},
	{"the user of the sidecar", pod("containers: [{name: x, securityContext: {runAsUser: 65532}}]"), intercepting, codeUserTaken, 5},
	{"a pod with the user of the sidecar", pod("securityContext: {runAsUser: 65532}" + container), intercepting, codeUserTaken, 6},
	{"another mesh", pod("containers: [{name: istio-proxy}]"), intercepting, codeOtherProxy, 5},
}

func TestRefusals(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			out, _, err := Inject([]byte(c.in), optionsOf(c.change))
			var r *Refusal
			if !errors.As(err, &r) || r.Code != c.code || r.Line != c.line || out != nil {
				t.Errorf("got %.80q, %v; expected %s at line %d", out, err, c.code, c.line)
			}
		})
	}
}

// TestNotRefused: neighbours of what is refused.
func TestNotRefused(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		change func(o *Options)
	}{
		"hostNetwork without interception":     {pod("hostNetwork: true" + container), nil},
		"no hostNetwork":                       {pod("hostNetwork: no" + container), intercepting},
		"the user without interception":        {pod("securityContext: {runAsUser: 65532}" + container), nil},
		"containers with another user":         {pod("securityContext: {runAsUser: 65532}\ncontainers: [{name: x, securityContext: {runAsUser: 1}}]"), intercepting},
		"another mesh without interception":    {pod("containers: [{name: istio-proxy}]"), nil},
		"the port without interception":        {pod("containers: [{name: x, ports: [{containerPort: 15001}]}]"), nil},
		"an anchor without an alias":           {pod("dnsConfig: &d {}" + container), nil},
		"an alias elsewhere in the pod":        {pod("dnsConfig: &d {}\naffinity: *d" + container), nil},
		"a merge key in a container":           {"apiVersion: v1\nkind: Pod\nmetadata: {labels: &l {a: b}}\nspec:\n  containers: [{name: x, image: y, resources: {limits: {<<: *l}}}]\n", nil},
		"a billion laughs":                     {"apiVersion: v1\nkind: Pod\n" + laughs() + "spec:\n  containers: [{name: x}]\n", nil},
		"a space that is no line end to Go":    {pod("hostname: \"a\u2028  b\u0085  c\" # \u2028" + container), nil},
		"a mapping behind dashes":              {"apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n  apiVersion: v1\n  spec:\n   initContainers:\n   -   name: x\n       image: y\n   containers:\n   -\n    name: z\n", nil},
		"kept line ends":                       {pod("initContainers:\n- args:\n  - |+\n    x\n\n\n  name: y" + container), nil},
		"a document that begins on its marker": {"--- {apiVersion: v1, kind: Pod, spec: {containers: [{name: x}]}}\n--- # two\napiVersion: v1\nkind: Pod\nspec: {containers: [{name: x}]}", nil},
		"a directive":                          {"%YAML 1.1\n---\n" + pod("hostPID: true"+container), nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, pods, err := Inject([]byte(c.in), optionsOf(c.change))
			if err != nil || len(pods) == 0 || pods[0].Outcome != added {
				t.Fatalf("%v, %+v", err, pods)
			}
			if again, _, err := Inject(out, optionsOf(c.change)); err != nil || !bytes.Equal(again, out) {
				t.Errorf("a second time %q becomes %q, %v", out, again, err)
			}
		})
	}
}

// laughs are annotations with an alias of an alias, and so on: whole they would have 10^30 elements.
func laughs() string {
	text := "metadata:\n  annotations:\n    a0: &a0 x\n"
	for i := range 30 {
		text += fmt.Sprintf("    a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	return text
}

// TestAllRefusals: one run names each pod that can't have the sidecar.
func TestAllRefusals(t *testing.T) {
	_, _, err := Inject([]byte(pod("hostPID: true")+"---\n"+pod("containers: [{name: remora}]")), optionsOf(nil))
	if err == nil || !strings.Contains(err.Error(), "line 1: Pod p: ") || !strings.Contains(err.Error(), "line 11: Pod p: ") {
		t.Errorf("got %v", err)
	}
}

// TestRBAC: the role has a binding for each service account, in each namespace.
func TestRBAC(t *testing.T) {
	in := pod("serviceAccountName: web"+container) + "---\n" + pod("serviceAccountName: web\nserviceAccount: x"+container) + "---\n" +
		pod("serviceAccount: old\nautomountServiceAccountToken: yes"+container) + "---\n" +
		strings.Replace(pod("hostPID: true"+container), "{name: p}", "{name: p, namespace: other}", 1)
	out, _, err := RBAC([]byte(in), "shop")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		must.WriteFile(t, "testdata/rbac.yaml", out)
	}
	if want := must.ReadFile(t, "testdata/rbac.yaml"); !bytes.Equal(out, want) {
		t.Errorf("got\n%s", out)
	}
	for in, code := range map[string]string{
		pod("hostPID: true" + container):                       codeNoNamespace,
		pod("automountServiceAccountToken: false" + container): codeNoToken,
		pod("automountServiceAccountToken: off" + container):   codeNoToken,
		pod("automountServiceAccountToken: no" + container):    codeNoToken,
		"a": codeNotManifest,
	} {
		namespace := ""
		if code == codeNoToken {
			namespace = "shop"
		}
		var r *Refusal
		if out, _, err := RBAC([]byte(in), namespace); !errors.As(err, &r) || r.Code != code || out != nil {
			t.Errorf("%q: got %q, %v; expected %s", in, out, err, code)
		}
	}
}

// TestNotes: the report says what a manifest does not tell about users.
func TestNotes(t *testing.T) {
	const user, period = "it has no runAsUser", "its terminationGracePeriodSeconds of 5"
	for _, c := range []struct {
		spec   string
		change func(o *Options)
		want   []string
	}{
		{"hostPID: true" + container, nil, nil},
		{"hostPID: true" + container, intercepting, []string{user}},
		{"terminationGracePeriodSeconds: 5" + container, intercepting, []string{user, period}},
		{"securityContext: {runAsUser: 1}" + container, intercepting, nil},
		{"initContainers: [{name: i}]\ncontainers: [{name: x, securityContext: {runAsUser: 1}}]", intercepting, []string{user}},
		{"containers: [{name: x, securityContext: {runAsUser: 1}}]", intercepting, nil},
	} {
		_, pods, err := Inject([]byte(pod(c.spec)), optionsOf(c.change))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for note := range strings.SplitSeq(pods[0].Note, "; ") {
			for _, known := range []string{user, period} {
				if strings.HasPrefix(note, known) {
					got = append(got, known)
				}
			}
		}
		if !slices.Equal(got, c.want) || (pods[0].Note == "") != (c.want == nil) {
			t.Errorf("%q: %q, want %q", c.spec, pods[0].Note, c.want)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		"--image:":             func(o *Options) { o.Image = "a b" },
		"--image-pull-policy:": func(o *Options) { o.PullPolicy = "always" },
		"--config:":            func(o *Options) { o.Config = "" },
		"--tls:":               func(o *Options) { o.TLS = "A" },
		"--env:":               func(o *Options) { o.Env = []string{"A"} },
		"variable ZONE":        func(o *Options) { o.Env = []string{"ZONE=x"} },
		"variable SERVICE":     func(o *Options) { o.Env = []string{"SERVICE=x"} },
		"variable A":           func(o *Options) { o.Env = []string{"A=1", "A=2"} },
		"got \"80,90-80\"":     func(o *Options) { o.Intercept.On, o.Intercept.Ports = true, "80,90-80" },
		"got \"0-80\"":         func(o *Options) { o.Intercept.On, o.Intercept.ExcludePorts = true, "0-80" },
		"--link-port:":         func(o *Options) { o.LinkPort = 70_000 },
		"--admin-port:":        func(o *Options) { o.AdminPort = 0 },
		"--intercept-port:":    func(o *Options) { o.Intercept.Port = -1 },
		"--proxy-uid:":         func(o *Options) { o.User = 0 },
		"--cpu-request:":       func(o *Options) { o.CPURequest = "a lot" },
		"--memory-limit:":      func(o *Options) { o.MemoryLimit = "1GB" },
		"--intercept, too":     func(o *Options) { o.Intercept.Ports = "80" },
		"--ports:":             func(o *Options) { o.Intercept.On, o.Intercept.Ports = true, "80-" },
		"--exclude-ports:":     func(o *Options) { o.Intercept.On, o.Intercept.ExcludePorts = true, "65536" },
		"--exclude:":           func(o *Options) { o.Intercept.On, o.Intercept.Exclude = true, []string{"host"} },
	} {
		if err := optionsOf(change).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}

// TestLikeKustomize: the sidecar is the same as that of packaging/kubernetes, but for its environment.
func TestLikeKustomize(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"consumer": func(o *Options) { o.Config = "remora-consumer" },
		"provider": func(o *Options) { o.Config, o.LinkPort, o.Drain = "remora-provider", 15006, true },
	} {
		type container map[string]any
		var patch, got struct {
			Spec struct {
				Template struct {
					Spec struct {
						InitContainers []container `yaml:"initContainers"`
						Volumes        any
						Period         int `yaml:"terminationGracePeriodSeconds"`
					}
				}
			}
		}
		out, _, err := Inject(must.ReadFile(t, "testdata/provider.yaml"), optionsOf(change))
		if err != nil {
			t.Fatal(err)
		}
		for into, text := range map[any][]byte{&got: out, &patch: must.ReadFile(t, "../../../packaging/kubernetes/kustomize/"+name+"/patch.yaml")} {
			if err := yaml.Unmarshal(text, into); err != nil {
				t.Fatal(err)
			}
		}
		for _, of := range [][]container{got.Spec.Template.Spec.InitContainers, patch.Spec.Template.Spec.InitContainers} {
			delete(of[0], "env")
		}
		if a, b := fmt.Sprint(got), fmt.Sprint(patch); a != b {
			t.Errorf("%s: got\n%s\nKustomize has\n%s", name, a, b)
		}
	}
}

// TestCommand: manifests come from a file or standard input, and nothing is written if one of them is refused.
func TestCommand(t *testing.T) {
	in := must.ReadFile(t, "testdata/provider.yaml")
	for _, c := range []struct {
		args       []string
		in         string
		out, err   string // parts
		succeeds   bool
		everything bool // out is all of it
	}{
		{[]string{"testdata/provider.yaml"}, "", "restartPolicy: Always", "testdata/provider.yaml: line 1: Deployment compute: sidecar added\n", true, false},
		{[]string{"--image", "i:2"}, string(in), "image: i:2", "standard input: line 1: Deployment compute: sidecar added\n", true, false},
		{[]string{"-"}, "apiVersion: v1\nkind: Service\n", "apiVersion: v1\nkind: Service\n", "standard input: no pod in it\n", true, true},
		{[]string{"--rbac", "-n", "shop"}, string(in), "kind: RoleBinding", "Deployment compute: role added\n", true, false},
		{[]string{"-"}, string(in) + "---\n" + pod("hostPID: true"), "", "standard input: line 14: Pod p: it has no containers [invalid]", false, true},
		{[]string{"--intercept", "-"}, "x", "", "[not-a-manifest]", false, true},
		{[]string{"missing.yaml"}, "", "", "missing.yaml", false, true},
		{[]string{"a", "b"}, "", "", "expected one file", false, true},
		{[]string{"--namespace", "shop"}, "", "", "--rbac", false, true},
		{[]string{"--link-port", "-1"}, "", "", "--link-port", false, true},
	} {
		var out, said bytes.Buffer
		cmd := New()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(c.args)
		cmd.SetIn(strings.NewReader(c.in))
		cmd.SetOut(&out)
		cmd.SetErr(&said)
		err := cmd.Execute()
		if err != nil {
			fmt.Fprintln(&said, err)
		}
		if (err == nil) != c.succeeds || !strings.Contains(out.String(), c.out) || c.everything && out.String() != c.out || !strings.Contains(said.String(), c.err) {
			t.Errorf("%q: got %q, and said %q", c.args, out.String(), said.String())
		}
	}
}

// TestCodesAreDocumented: the README has each code, and no other.
func TestCodesAreDocumented(t *testing.T) {
	text := string(must.ReadFile(t, "../../../packaging/kubernetes/README.md"))
	_, table, _ := strings.Cut(text, "code | what to do")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed, have []string
	for _, m := range regexp.MustCompile("(?m)^`([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		listed = append(listed, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\tcode\w+ += "([a-z-]+)"$`).FindAllStringSubmatch(string(must.ReadFile(t, "manifest.go")), -1) {
		have = append(have, m[1])
	}
	slices.Sort(listed)
	slices.Sort(have)
	if len(have) < 10 || !slices.Equal(listed, have) {
		t.Errorf("the table has %q, the code %q", listed, have)
	}
}

// FuzzInject: whatever the input, it is refused, or has the sidecar, which a second run finds.
func FuzzInject(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
	}
	for _, c := range refusals {
		if len(c.in) < 4096 {
			f.Add([]byte(c.in), false)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, intercept bool) {
		o := optionsOf(func(o *Options) { o.Intercept.On = intercept })
		out, pods, err := Inject(text, o)
		if err != nil {
			if r := new(Refusal); !errors.As(err, &r) || out != nil {
				t.Fatalf("%v with %q", err, out)
			}
			return
		}
		if !contains(out, text) {
			t.Fatalf("%q became %q", text, out)
		}
		again, found, err := Inject(out, o)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("a second time %q becomes %q, %v", out, again, err)
		}
		for i, p := range pods {
			if found[i].Outcome == added || p.Outcome == "" {
				t.Fatalf("%+v, then %+v", p, found[i])
			}
		}
	})
}
