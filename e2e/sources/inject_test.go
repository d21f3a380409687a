package sources

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/cmd/remora/inject"
	"github.com/remora-proxy/remora/internal/must"
)

// collections have the paths of the kinds that TestInject sends.
var collections = map[string]string{
	"Pod": "/api/v1/namespaces/shop/pods", "Service": "/api/v1/namespaces/shop/services",
	"ReplicationController": "/api/v1/namespaces/shop/replicationcontrollers",
	"Deployment":            "/apis/apps/v1/namespaces/shop/deployments",
	"StatefulSet":           "/apis/apps/v1/namespaces/shop/statefulsets",
	"DaemonSet":             "/apis/apps/v1/namespaces/shop/daemonsets",
	"ReplicaSet":            "/apis/apps/v1/namespaces/shop/replicasets",
	"Job":                   "/apis/batch/v1/namespaces/shop/jobs",
	"CronJob":               "/apis/batch/v1/namespaces/shop/cronjobs",
	"Role":                  "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles",
	"RoleBinding":           "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings",
}

// tryManifest has the API server check an object as strictly as it can, without keeping it.
func (c *cluster) tryManifest(path, manifest string) error {
	_, err := c.send(http.MethodPost, path+"?dryRun=All&fieldValidation=Strict", []byte(manifest), "application/yaml")
	return err
}

// TestInject: the API server accepts what "remora inject" makes of each kind.
func TestInject(t *testing.T) {
	c := startCluster(t)
	options := inject.DefaultOptions()
	options.TLS, options.LinkPort, options.AdminPort, options.Drain, options.CPULimit = "certificate", 15006, 9902, true, "2"
	options.Env, options.PullPolicy = []string{"A=\"b\": c"}, "Always"
	options.Intercept.On, options.Intercept.Exclude = true, []string{"10.0.0.0/8"}
	for _, o := range []inject.Options{inject.DefaultOptions(), options} {
		tried := map[string]bool{}
		for _, file := range []string{"deployment.yaml", "kinds.yaml", "list.json", "unset.yaml"} {
			text := must.ReadFile(t, filepath.Join("../../cmd/remora/inject/testdata", file))
			out, _, err := inject.Inject(text, &o)
			if err != nil {
				t.Fatal(err)
			}
			for _, manifest := range documents(t, out) {
				kind := kindOf(manifest)
				if kind == "List" || kind == "" {
					continue // of kubectl, which sends its items
				}
				if err := c.tryManifest(collections[kind], manifest); err != nil {
					t.Errorf("%s: %v\n%s", file, err, manifest)
				}
				tried[kind] = true
			}
		}
		if len(tried) < 9 {
			t.Errorf("only these were tried: %v", tried)
		}
	}
	if err := c.tryManifest(collections["Pod"], restrictedPod+"\nstatsu: {}"); err == nil {
		t.Error("a pod with an unknown field was accepted")
	}
}

// documents returns the manifests of an output, as the API server takes them.
func documents(t *testing.T, out []byte) (all []string) {
	if out[0] != '{' {
		return strings.Split(string(out), "\n---\n")
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err) // what was JSON is JSON
	}
	for _, item := range list.Items {
		all = append(all, string(item))
	}
	return all
}

var kinds = regexp.MustCompile(`(?m)^(?:kind: |\s*"kind": "|.*?"kind": ")(\w+)`)

func kindOf(manifest string) string {
	if m := kinds.FindStringSubmatch(manifest); m != nil {
		return m[1]
	}
	return ""
}

const restrictedPod = `apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: app
      image: app:1
      securityContext:
        runAsNonRoot: true
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
        seccompProfile: {type: RuntimeDefault}`

// TestInjectSecurity: the sidecar is admitted where only pods of the level "restricted" are. The interception is not.
func TestInjectSecurity(t *testing.T) {
	c := startCluster(t)
	c.create("/api/v1/namespaces", `{"metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`)
	for _, intercept := range []bool{false, true} {
		o := inject.DefaultOptions()
		o.Intercept.On = intercept
		out, _, err := inject.Inject([]byte(restrictedPod), &o)
		if err != nil {
			t.Fatal(err)
		}
		err = c.tryManifest("/api/v1/namespaces/restricted/pods", string(out))
		if refused := err != nil && strings.Contains(err.Error(), "violates PodSecurity"); refused != intercept || !refused && err != nil {
			t.Errorf("with interception %v: %v", intercept, err)
		}
	}
}

// TestInjectRBAC: the API server accepts the role, by which the account may list the endpoint slices of its namespace and no more.
func TestInjectRBAC(t *testing.T) {
	c := startCluster(t)
	out, _, err := inject.RBAC([]byte(restrictedPod), "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range documents(t, out) {
		manifest = strings.ReplaceAll(manifest, "name: remora,", "name: injected,") // the cluster has a remora already
		manifest = strings.ReplaceAll(manifest, "name: remora}", "name: injected}")
		if _, err := c.send(http.MethodPost, collections[kindOf(manifest)], []byte(manifest), "application/yaml"); err != nil {
			t.Fatalf("%v\n%s", err, manifest)
		}
	}
	review := func(verb, resource, namespace string) string {
		return `{"spec": {"user": "system:serviceaccount:shop:default", "resourceAttributes":
			{"verb": "` + verb + `", "group": "discovery.k8s.io", "resource": "` + resource + `", "namespace": "` + namespace + `"}}}`
	}
	for request, allowed := range map[string]bool{
		review("list", "endpointslices", "shop"): true, review("watch", "endpointslices", "shop"): true,
		review("create", "endpointslices", "shop"): false, review("list", "endpointslices", "default"): false,
	} {
		text, err := c.send(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", []byte(request), "application/json")
		if err != nil || strings.Contains(text, `"allowed":true`) != allowed {
			t.Errorf("%s: %s, %v", request, text, err)
		}
	}
}
