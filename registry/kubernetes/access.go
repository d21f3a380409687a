package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// access is how the API server is reached: in a pod by its service account, elsewhere by a kubeconfig file. Files are read
// again for each connection and request, as tokens and certificates rotate.
type access struct {
	server    *url.URL
	namespace string // of services that name none
	ca        material
	cert, key material // of the client; nothing if it proves itself by a token
	token     material
}

// material is a secret or a certificate: given as it is, or in a file.
type material struct {
	data []byte
	file string
}

func (m material) read() ([]byte, error) {
	if m.file == "" {
		return m.data, nil
	}
	return os.ReadFile(m.file)
}

func (m material) empty() bool { return m.file == "" && len(m.data) == 0 }

// accountDir has the files of a pod's service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

var errNoCluster = errors.New("no cluster: the sidecar runs in no pod, as KUBERNETES_SERVICE_HOST is not set; expected kubeconfig")

// inCluster returns the access of a pod, whose service account has its files in dir.
func inCluster(dir string) (*access, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" {
		return nil, errNoCluster
	}
	a := &access{
		server: &url.URL{Scheme: "https", Host: net.JoinHostPort(host, cmp.Or(port, "443"))},
		ca:     material{file: filepath.Join(dir, "ca.crt")}, token: material{file: filepath.Join(dir, "token")},
	}
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return nil, err
	}
	a.namespace = strings.TrimSpace(string(namespace))
	return a, nil
}

// kubeconfig is the part of a kubeconfig file that this package uses.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster   string `yaml:"cluster"`
			User      string `yaml:"user"`
			Namespace string `yaml:"namespace"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server string `yaml:"server"`
			CA     string `yaml:"certificate-authority"`
			CAData string `yaml:"certificate-authority-data"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User struct {
			Token     string         `yaml:"token"`
			TokenFile string         `yaml:"tokenFile"`
			Cert      string         `yaml:"client-certificate"`
			CertData  string         `yaml:"client-certificate-data"`
			Key       string         `yaml:"client-key"`
			KeyData   string         `yaml:"client-key-data"`
			Exec      map[string]any `yaml:"exec"`
		} `yaml:"user"`
	} `yaml:"users"`
}

// fromKubeconfig returns the access of the current context of a kubeconfig file.
func fromKubeconfig(path string) (*access, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c kubeconfig
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a, err := c.access(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// access returns the access of the current context. Paths are relative to dir.
func (c *kubeconfig) access(dir string) (*access, error) {
	a := &access{}
	cluster, user := "", ""
	for _, of := range c.Contexts {
		if of.Name == c.CurrentContext {
			cluster, user, a.namespace = of.Context.Cluster, of.Context.User, cmp.Or(of.Context.Namespace, "default")
		}
	}
	m := materials{dir: dir}
	for _, of := range c.Clusters {
		if of.Name != cluster {
			continue
		}
		server, err := url.Parse(of.Cluster.Server)
		isURL := strings.HasPrefix(of.Cluster.Server, "https://") || strings.HasPrefix(of.Cluster.Server, "http://")
		if err != nil || !isURL || server.Host == "" {
			return nil, fmt.Errorf("the server of cluster %s is no URL: %q", cluster, of.Cluster.Server)
		}
		a.server, a.ca = server, m.of(of.Cluster.CAData, of.Cluster.CA)
	}
	if a.server == nil {
		return nil, fmt.Errorf("the current context %q has no cluster", c.CurrentContext)
	}
	for _, of := range c.Users {
		if of.Name != user {
			continue
		}
		if of.User.Exec != nil {
			return nil, fmt.Errorf("user %s gets its token from a program, which the sidecar does not run; expected token, tokenFile or client-certificate", user)
		}
		a.token = m.of("", of.User.TokenFile)
		if of.User.Token != "" {
			a.token = material{data: []byte(of.User.Token)}
		}
		a.cert, a.key = m.of(of.User.CertData, of.User.Cert), m.of(of.User.KeyData, of.User.Key)
	}
	return a, m.err
}

// materials reads the values of a kubeconfig file in dir.
type materials struct {
	dir string
	err error // of the first value that is wrong
}

// of returns the material that is given in base64 or, without that, in a file.
func (m *materials) of(encoded, file string) material {
	if encoded != "" {
		data, err := base64.StdEncoding.DecodeString(encoded)
		if m.err == nil {
			m.err = err
		}
		return material{data: data}
	}
	if file != "" && !filepath.IsAbs(file) {
		file = filepath.Join(m.dir, file)
	}
	return material{file: file}
}

// Times after which a connection to a server that has gone is given up.
const (
	dialTimeout = 3 * time.Second
	idleProbe   = 5 * time.Second  // of silence, before the kernel asks whether the server is there
	pingAfter   = 15 * time.Second // of silence, before a PING of HTTP/2 asks the same: a balancer does not answer that
	pingTimeout = 5 * time.Second
)

// client returns an HTTP client for the API server. A response must begin within silence: a balancer may keep the connection
// of a server that has gone. All requests share one connection of HTTP/2. The client ignores environment variables that name a
// proxy: they are meant for applications, and the proxy may be this sidecar. All connections end with life.
func (a *access) client(life context.Context, silence time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: idleProbe, Interval: idleProbe, Count: 3}}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &boundConn{c, context.AfterFunc(life, func() { _ = c.Close() })}, nil
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: dial,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			cfg, err := a.tls(addr)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, dialTimeout) // of the handshake, too
			defer cancel()
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			secured := tls.Client(c, cfg)
			if err := secured.HandshakeContext(ctx); err != nil {
				_ = c.Close()
				return nil, err
			}
			return secured, nil
		},
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		ResponseHeaderTimeout: silence,
		MaxIdleConnsPerHost:   1,
		IdleConnTimeout:       time.Minute,
	}}
}

// boundConn is a connection that ends with the context of the function that stop stops.
type boundConn struct {
	net.Conn
	stop func() bool
}

// Close implements net.Conn.
func (c *boundConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// tls returns the configuration of a connection to addr.
func (a *access) tls(addr string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if !a.ca.empty() {
		pem, err := a.ca.read()
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the certificate authority of the cluster has no certificate")
		}
	}
	if a.cert.empty() {
		return cfg, nil
	}
	cert, err := a.cert.read()
	if err != nil {
		return nil, err
	}
	key, err := a.key.read()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

// authorize adds the token to a request.
func (a *access) authorize(r *http.Request) error {
	token, err := a.token.read()
	if err == nil && len(token) > 0 {
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return err
}
