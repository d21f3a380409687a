#!/usr/bin/env bash
# The Kustomize components, the Helm chart and remora inject: what they make is strictly what the types of the
# Kubernetes API say, at the pod security level "restricted", and "remora check" reads the
# configurations. The last line is the count of checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh
workspace

# They are no part of the program, nor of its go.mod.
GOBIN=$dir/bin GOFLAGS='' go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
GOBIN=$dir/bin GOFLAGS='' go install helm.sh/helm/v3/cmd/helm@v3.22.0
(cd packaging/kubernetes/check && GOFLAGS='' go build -o "$dir/bin/check" .)
go build -o "$dir/bin/remora" ./cmd/remora

passed=0
pass() { echo "ok: $*" && passed=$((passed + 1)); }
fail() { echo "failed: $*" >&2 && exit 1; }

cp -r packaging/kubernetes "$dir"
cd "$dir/kubernetes"
export POD_NAME=pod-1 POD_IP=10.0.0.1 SERVICE=compute

for config in kustomize/*/remora.yaml; do
	../bin/remora check -c "$config" >/dev/null
	pass "$config"
done
../bin/kustomize build kustomize/example >example.yaml
../bin/check <example.yaml
[[ $(grep -c '^ *restartPolicy: Always' example.yaml) == 2 ]] || fail 'not a sidecar for each of two applications'
pass 'kustomize: the example, restricted'

# The interception needs more, and no more than it says.
sed -i 's/^components: .*/components: [..\/provider, ..\/consumer, ..\/intercept]/' kustomize/example/kustomization.yaml
../bin/kustomize build kustomize/example >intercept.yaml
grep -q 'name: remora-intercept' intercept.yaml || fail 'no interception'
../bin/check -level privileged <intercept.yaml
if ../bin/check <intercept.yaml; then fail 'the interception passes as restricted'; fi
pass 'kustomize: the example with interception'

../bin/helm dependency build helm/example >/dev/null
../bin/helm lint --strict helm/example
../bin/helm template compute helm/example >chart.yaml
../bin/check <chart.yaml
../bin/helm template compute helm/example --set remora.intercept.image=i:1 | ../bin/check -level privileged
pass 'helm: the example, restricted'
sed -n '/remora.yaml: |/,/^---/{/remora.yaml:\|^---/d;s/^    //;p}' chart.yaml >chart-remora.yaml
../bin/remora check -c chart-remora.yaml >/dev/null
pass 'helm: its configuration'
if ../bin/helm template compute helm/example --set remora.config= 2>error; then fail 'no configuration is accepted'; fi
grep -q 'configuration is missing' error || fail "$(cat error)"
pass 'helm: a missing configuration is an error'

# remora inject, with the manifests of the example.
{
	../bin/remora inject --config remora-provider --link-port 15006 --drain kustomize/example/compute.yaml
	echo ---
	../bin/remora inject --config remora-consumer kustomize/example/web.yaml
} >injected.yaml
[[ $(grep -c '^ *restartPolicy: Always' injected.yaml) == 2 ]] || fail 'not a sidecar for each of two applications'
../bin/check <injected.yaml
pass 'inject: the example, restricted'
../bin/remora inject --intercept kustomize/example/web.yaml | ../bin/check -level privileged
pass 'inject: the example with interception'

# The check can fail.
if sed 's/restartPolicy:/restartPolicies:/' example.yaml | ../bin/check; then fail 'an unknown field passes'; fi
if sed '/seccompProfile/,+1d' example.yaml | ../bin/check; then fail 'a pod without seccomp passes'; fi
pass 'unknown fields and weaker pods are refused'

echo "$passed passed, 0 failed"
