package config

import "slices"

// Kubernetes is the cluster whose Services have endpoints.
type Kubernetes struct {
	// A kubeconfig file, whose current context counts. Without one, the sidecar is in a pod and uses its service account.
	Kubeconfig string `yaml:"kubeconfig" reload:"restart"`
	// Namespace of Services that name none. Without one, that of the account or the context.
	Namespace string `yaml:"namespace" reload:"restart"`
	// Services whose Service has another name or namespace, or several ports.
	Services []KubernetesService `yaml:"services" reload:"restart"`
}

// KubernetesService is a Service of Kubernetes.
type KubernetesService struct {
	// Required: name of the service here.
	Service string `yaml:"service" reload:"restart"`
	// Name of the Service. Without one, that of the service here.
	Name string `yaml:"name" reload:"restart"`
	// Without one, `registry.kubernetes.namespace`.
	Namespace string `yaml:"namespace" reload:"restart"`
	// Name or number of its port. A Service with several ports requires `port`.
	Port string `yaml:"port" reload:"restart"`
}

// DiscoverKubernetes is the value of Service.Discover for the endpoints of a Service of Kubernetes.
const DiscoverKubernetes = "kubernetes"

func init() { declareRegistry(DiscoverKubernetes, new(Kubernetes)) }

// Kubernetes returns the settings of Kubernetes.
func (r *Registry) Kubernetes() *Kubernetes { return block[Kubernetes](r.Blocks) }

// servers implements registryBlock. In a pod no key is needed.
func (k *Kubernetes) servers() (key string, n int) { return "", 1 }

func (k *Kubernetes) registers() bool { return false }

func (k *Kubernetes) tls() *TLS { return nil }

// check reports entries that are for no service, and several for one.
func (k *Kubernetes) check(in scope, at path) {
	for i, s := range k.Services {
		of := at.key("services").item(i).key("service")
		in.refuseIf(s.Service == "", of, "missing; expected the name of a service")
		in.refuseIf(slices.ContainsFunc(k.Services[:i], func(o KubernetesService) bool { return o.Service == s.Service }), of,
			"%s is listed twice", s.Service)
	}
}
