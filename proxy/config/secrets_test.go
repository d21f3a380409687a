package config

import (
	"strings"
	"testing"
)

// TestSecretsMisplaced: if a mistake puts a secret in the wrong place, the error does
// not show it either.
func TestSecretsMisplaced(t *testing.T) {
	for _, text := range []string{
		`tracing: {headers: "authorization: Bearer hunter2"}`,
		`tracing: {headers: ["authorization: Bearer hunter2"]}`,
		`tracing: {headers: {authorization: [hunter2]}}`,
		`tracing: {headers: {"authorization: Bearer hunter2": ""}}`,
		`tracing: {headers: {"authorization=hunter2": ""}}`,
		`tracing: {headers: {"authorization:hunter2": "", "authorization:hunter2": ""}}`,
		`tracing: {headers: authorization:hunter2}`,
		"tracing:\n  headers:\n    authorization:hunter2\n",
		"tracing:\n  headers: hunter2\n   authorization: hunter2\n",
		`tracing: "authorization: hunter2"`,
		`tracing: {endpoint: "https://user:hunter2@otlp"}`,
		`tracing: {endpoint: "https://user:hun?ter2@otlp"}`,
		`tracing: {endpoint: "https://user:hunter2@otlp:%"}`,
		`tracing: {endpoint: "https://otlp/?key=hunter2"}`,
		`tracing: {endpoint: "https://otlp/?key=a@hunter2"}`,
		`registry: {etcd: {endpoints: ["https://10.0.0.1:2379?token=hunter2"]}}`,
		`services: {a: {discover: static, endpoints: ["10.0.0.1:80"], check: {http: "health?token=hunter2"}}}`,
		`tracing: {endpoint: "https://otlp/#hunter2"}`,
		`registry: {etcd: {endpoints: ["http://root:hunter2@10.0.0.1:2379"]}}`,
		`registry: {etcd: {endpoints: ["root:hunter2@10.0.0.1:2379"]}}`,
		`registry: {etcd: {endpoints: ["root:hunter2@10.0.0.1"]}}`,
		`registry: {etcd: {endpoints: ["etcd://root:hunter2@10.0.0.1:2379"]}}`,
		`registry: {etcd: {endpoints: "http://root:hunter2@10.0.0.1:2379"}}`,
		`registry: {etcd: {endpoints: {"http://root:hunter2@10.0.0.1:2379": 1}}}`,
		`registry: {etcd: "http://root:hunter2@10.0.0.1:2379"}`,
		`registry: "http://root:hunter2@10.0.0.1:2379"`,
		"registry:\n  etcd:\n    password:hunter2\n",
		`registry: {etcd: {password: "${hunter2"}}`,
		`registry: {etcd: {password: "${PW-hunter2}"}}`,
		`registry: {etcd: {password: "${PW:-hunter2${X}"}}`,
		`registry: {etcd: {passwort: hunter2}}`,
		`admin: {token: {hunter2: 1}}`,
		`admin: "token: hunter2"`,
		`admin: {"token: hunter2": ""}`,
		`admin: {"token=hunter2": ""}`,
		`admin: {"token: hunter2": "", "token: hunter2": ""}`,
		`admin: [token: hunter2]`,
		`admin: [hunter2]`,
		"admin:\n  token:hunter2\n",
		"admin:\n  token:\thunter2\n  x\n",
		"admin:\n  token: hunter2: x\n",
		"admin:\n  token: *hunter2\n",
		"admin:\n  token: \"hunter2\n",
		"admin:\n  token: 'hunter2' hunter2\n",
		"admin:\n  token: @hunter2\n",
		"admin:\n  token: `hunter2\n",
		"admin:\n  token: !hunter2 x\n",
		"admin:\n  token: !!hunter2 x\n",
		"admin:\n  token: |hunter2\n",
		"admin:\n  token: >hunter2\n",
		"admin:\n  token: \"\\hunter2\"\n",
		"admin:\n  token: [hunter2\n",
		"admin:\n  token: {hunter2\n",
		"admin:\n  token: ]hunter2\n",
		"admin:\n  token: - hunter2\n",
		"admin:\n  token: ? hunter2\n",
		"admin:\n\ttoken: hunter2\n",
		"admin:\n  token: hunter2\n token: hunter2\n",
		"admin: {token: &hunter2 }\n",
		`services: {s: {discover: static, endpoints: ["http://u:hunter2@a:1"]}}`,
		`services: {s: {discover: static, endpoints: ["a:1"], check: {http: "http://u:hunter2@a/healthz"}}}`,
		`services: {s: {discover: static, endpoints: "http://u:hunter2@a:1"}}`,
		`register: [{advertise: "u:hunter2@a:1"}]`,
	} {
		_, err := Parse("x", []byte(text), environment)
		if err == nil {
			t.Errorf("%s: no error", text)
		} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestSecrets checks that neither errors nor a printed configuration show a secret.
func TestSecrets(t *testing.T) {
	c := mustParse(t, `{admin: {token: hunter2}, registry: {etcd: {endpoints: ["a:1"], username: u, password: hunter2}},
		tracing: {headers: {authorization: Bearer hunter2}}}`)
	data, err := c.YAML()
	if err != nil || strings.Contains(string(data), "hunter2") || !strings.Contains(string(data), redacted) {
		t.Errorf("%v\n%s", err, data)
	}
	_, err = Parse("x", []byte("admin: {token: hunter2}\nregistry: {etcd: {password: hunter2}}\n"+
		"tracing: {headers: {a: \"hunter2\\n\"}}\n"), environment)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}
