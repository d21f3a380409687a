package sources

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab"
)

// Tokens of the API server.
const (
	adminToken   = "admin-secret"
	sidecarToken = "sidecar-secret"
)

// cluster is an API server with its etcd.
type cluster struct {
	t      *testing.T
	binary string
	dir    string // of certificates, keys and tokens
	addr   string
	front  *harness.Forwarder // by which the sidecar reaches the server
	etcd   *lab.Etcd
	server *exec.Cmd
	admin  http.Client
}

// startCluster starts a cluster with the namespace shop, where the sidecar may list and watch endpoint slices.
func startCluster(t *testing.T) *cluster {
	binary := os.Getenv("KUBE_APISERVER")
	if binary == "" {
		t.Skip("KUBE_APISERVER is not set: see scripts/sources.sh")
	}
	c := &cluster{t: t, binary: binary, dir: t.TempDir(), addr: harness.FreeAddrs(t, 1)[0]}
	c.front = harness.Forward(t, c.addr)
	c.admin.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	must.WriteFile(t, c.file("tokens"), adminToken+",admin,1,system:masters\n"+sidecarToken+",sidecar,2\n")
	c.writeAccountKey()
	c.startEtcd()
	t.Cleanup(func() {
		c.kill()
		c.etcd.Close()
		if said, _ := os.ReadFile(c.file("log")); t.Failed() {
			t.Logf("the end of the API server's log: %s", said[max(0, len(said)-4000):])
		}
	})
	c.start()
	return c
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// writeAccountKey makes the key that signs tokens of service accounts. The server does not start without one.
func (c *cluster) writeAccountKey() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		c.t.Fatal(err)
	}
	must.WriteFile(c.t, c.file("account.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	must.WriteFile(c.t, c.file("account.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

func (c *cluster) startEtcd() {
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.etcd = e
}

// start starts the API server, and makes what the sidecar needs there.
func (c *cluster) start() {
	host, port, _ := strings.Cut(c.addr, ":")
	c.server = exec.Command(c.binary,
		"--etcd-servers=http://"+c.etcd.Addr(), "--bind-address="+host, "--secure-port="+port, "--cert-dir="+c.dir,
		"--token-auth-file="+c.file("tokens"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.223.0.0/24",
		"--service-account-issuer=https://cluster.test", "--service-account-key-file="+c.file("account.pub"),
		"--service-account-signing-key-file="+c.file("account.key"), "--disable-admission-plugins=ServiceAccount",
		"--external-hostname=127.0.0.1", "--advertise-address=10.222.255.1")
	log, err := os.OpenFile(c.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	c.server.Stdout, c.server.Stderr = log, log
	err = c.server.Start()
	log.Close()
	if err != nil {
		c.t.Fatal(err)
	}
	eventually.Nil(c.t, "the API server to be ready", func() error { return c.try(http.MethodGet, "/readyz", nil) })
	c.create("/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	c.create("/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles", `{"metadata": {"name": "remora"},
		"rules": [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]}`)
	c.create("/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", `{"metadata": {"name": "remora"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "remora"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "sidecar"}]}`)
}

// kill ends the API server without a warning.
func (c *cluster) kill() {
	_ = c.server.Process.Kill()
	_ = c.server.Wait()
}

// wipe replaces the data of the cluster by nothing.
func (c *cluster) wipe() {
	c.kill()
	c.etcd.Close()
	c.startEtcd()
	c.start()
}

// kubeconfig writes the file by which the sidecar reaches the cluster.
func (c *cluster) kubeconfig() string {
	path := c.file("kubeconfig")
	must.WriteFile(c.t, path, fmt.Sprintf(`
current-context: c
contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}]
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority: apiserver.crt}}]
users: [{name: u, user: {token: %s}}]`, c.front.Addr(), sidecarToken))
	return path
}

// try sends a request as the administrator.
func (c *cluster) try(method, path string, body []byte) error {
	_, err := c.send(method, path, body, "application/json")
	return err
}

// send is try with a body of another type. It returns the response. A conflict is no error.
func (c *cluster) send(method, path string, body []byte, contentType string) (string, error) {
	req := must.Request(c.t, method, "https://"+c.addr+path, bytes.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", contentType)
	resp, err := c.admin.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusConflict {
		err = fmt.Errorf("%s %s: %s: %.600s", method, path, resp.Status, text)
	}
	return string(text), err
}

// create makes an object, unless it is there already. Right after the start some kinds can't be made yet.
func (c *cluster) create(path, object string) {
	eventually.Nil(c.t, "to create in "+path, func() error { return c.try(http.MethodPost, path, []byte(object)) })
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"

// sliceOf returns an EndpointSlice of a Service.
func sliceOf(service string, addrs []string, port string) []byte {
	endpoints := []any{}
	for _, a := range addrs {
		endpoints = append(endpoints, map[string]any{"addresses": []string{a}, "conditions": map[string]bool{"ready": true}})
	}
	number, _ := strconv.Atoi(port)
	object, _ := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata":    map[string]any{"name": service + "-1", "labels": map[string]string{"kubernetes.io/service-name": service}},
		"addressType": "IPv4", "endpoints": endpoints, "ports": []any{map[string]any{"name": "http", "port": number, "protocol": "TCP"}},
	})
	return object
}

// publish makes one slice of the Service compute have these addresses.
func (c *cluster) publish(addrs []string, port string) error {
	object := sliceOf("compute", addrs, port)
	if err := c.try(http.MethodPut, slicesPath+"/compute-1", object); err == nil {
		return nil
	}
	return c.try(http.MethodPost, slicesPath, object)
}

// many publishes services.
func (c *cluster) many(services int) error {
	for i := range services {
		if err := c.try(http.MethodPost, slicesPath, sliceOf(manyName(i), manyAddrs(i), "80")); err != nil {
			return err
		}
	}
	return nil
}

// watches returns how many connections sidecars have: each has one, whatever it watches.
func (c *cluster) watches() int { return c.front.Connections() }

// kubernetesSource is an API server.
func kubernetesSource(t *testing.T) *source {
	c := startCluster(t)
	return &source{
		find: "discover: kubernetes", keys: fmt.Sprintf(", kubernetes: {kubeconfig: %q}", c.kubeconfig()), publish: c.publish, many: c.many, watches: c.watches,
		faults: []fault{
			{name: "killed", begin: c.kill, end: c.start, code: "unreachable"},
			{name: "silent", begin: func() { c.front.SetSilent(true) }, end: func() { c.front.SetSilent(false) }, code: "unreachable"},
			{name: "killed, and its data lost", begin: c.wipe, end: func() {}},
		},
	}
}
