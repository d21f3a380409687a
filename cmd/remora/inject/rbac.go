package inject

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const rbacVersion = "rbac.authorization.k8s.io/v1"

// RBAC returns manifests that let the service accounts of the pods in text list and watch the EndpointSlices of their
// namespace, which discover: kubernetes needs. namespace is that of objects that name none. An error is one or several
// Refusals, joined.
func RBAC(text []byte, namespace string) ([]byte, []*Pod, error) {
	m, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	accounts := make(map[string][]string) // by namespace
	var refused []error
	for _, p := range m.pods {
		p.Outcome = "role added"
		of := cmp.Or(p.Namespace, namespace)
		switch {
		case p.annotation() == disabled:
			p.Outcome = optedOut
			continue
		case of == "":
			p.refuse(p.object, codeNoNamespace, "it names no namespace, and a binding must: expected --namespace")
		case p.noToken:
			p.refuse(p.object, codeNoToken, "it has automountServiceAccountToken: false, and the sidecar needs the token")
		}
		for _, r := range p.refusals {
			refused = append(refused, r)
		}
		accounts[of] = append(accounts[of], cmp.Or(p.account, "default"))
	}
	if len(refused) > 0 {
		return nil, m.pods, errors.Join(refused...)
	}
	var out strings.Builder
	for _, of := range slices.Sorted(maps.Keys(accounts)) {
		writeDocument(&out, role(of))
		slices.Sort(accounts[of])
		for _, account := range slices.Compact(accounts[of]) {
			writeDocument(&out, binding(of, account))
		}
	}
	return []byte(out.String()), m.pods, nil
}

func writeDocument(to *strings.Builder, n *yaml.Node) {
	if to.Len() > 0 {
		to.WriteString("---\n")
	}
	to.WriteString(render(n))
}

// role returns the Role of sidecars in a namespace.
func role(namespace string) *yaml.Node {
	rule := mapping("apiGroups", list("discovery.k8s.io"), "resources", list("endpointslices"), "verbs", list("list", "watch"))
	return mapping("apiVersion", rbacVersion, "kind", "Role", "metadata", flow(mapping("name", sidecarName, "namespace", namespace)),
		"rules", list(flow(rule)))
}

// binding returns what gives a service account the Role. Each account has one of its own, so that applying another
// application's manifests does not overwrite it.
func binding(namespace, account string) *yaml.Node {
	return mapping("apiVersion", rbacVersion, "kind", "RoleBinding",
		"metadata", flow(mapping("name", sidecarName+"-"+account, "namespace", namespace)),
		"roleRef", flow(mapping("apiGroup", "rbac.authorization.k8s.io", "kind", "Role", "name", sidecarName)),
		"subjects", list(flow(mapping("kind", "ServiceAccount", "name", account, "namespace", namespace))))
}
