// Command check reads Kubernetes manifests from standard input. Each must be what the types of the
// API say, without unknown or repeated fields, and its pods must have the pod security level restricted:
// see https://kubernetes.io/docs/concepts/security/pod-security-standards/.
//
//	check [-level baseline]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	level := flag.String("level", "restricted", "pod security level that all pods must have")
	flag.Parse()
	if err := check(os.Stdin, api.Level(*level)); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func check(r io.Reader, level api.Level) error {
	manifests, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	pods, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	found := 0
	for _, text := range bytes.Split(manifests, []byte("\n---\n")) {
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		object, kind, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, text)
		}
		found++
		meta, spec := podOf(object)
		if spec == nil {
			fmt.Println(kind.Kind)
			continue
		}
		results := pods.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, meta, spec)
		if result := policy.AggregateCheckResults(results); !result.Allowed {
			return fmt.Errorf("%s: %s", kind.Kind, strings.TrimSpace(result.ForbiddenDetail()))
		}
		fmt.Printf("%s: %s\n", kind.Kind, level)
	}
	if found == 0 {
		return fmt.Errorf("no manifest on standard input")
	}
	return nil
}

// podOf returns the pod that an object makes, or nil.
func podOf(object runtime.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	if deployment, ok := object.(*appsv1.Deployment); ok {
		template := &deployment.Spec.Template
		return &template.ObjectMeta, &template.Spec
	}
	return nil, nil
}
