package bench

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/remora-proxy/remora/internal/mint"
	"github.com/remora-proxy/remora/lab/child"
)

//go:embed conf
var configFiles embed.FS

var configs = template.Must(template.New("").Funcs(template.FuncMap{"port": port}).ParseFS(configFiles, "conf/*"))

// port returns the port of an address.
func port(addr string) (string, error) {
	_, p, err := net.SplitHostPort(addr)
	return p, err
}

// place is where a proxy stands in a chain.
type place struct {
	Dir       string // for its own files; it exists
	Listen    string // address
	Upstreams []string
	Admin     string // address, of sidecars
	Hedge     bool   // of Envoy
	shared    *shared
}

// configured returns the args of a hop whose last argument is a configuration file, made
// from the template of that name.
func configured(name string, args ...string) func(place) ([]string, error) {
	return func(p place) ([]string, error) { return p.configure(name, p, args...) }
}

func (p place) configure(name string, data any, args ...string) ([]string, error) {
	path := filepath.Join(p.Dir, name)
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	if err := configs.ExecuteTemplate(f, name, data); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return append(args[:len(args):len(args)], path), f.Close()
}

func relayArgs(p place) ([]string, error) {
	listen, err := port(p.Listen)
	if err != nil {
		return nil, err
	}
	upstream, err := port(p.Upstreams[0])
	return []string{listen, upstream}, err
}

func (p place) sidecarArgs(s sidecar) (args []string, err error) {
	data := struct {
		place
		Loops         int
		In, Out       string
		Insecure      bool
		Service       []string
		TLS, Observed string // YAML
	}{place: p, Loops: 1, In: s.in, Out: s.out, Insecure: s.insecure, Service: s.service}
	if s.allLoops {
		data.Loops = 0
	}
	if s.tls {
		if data.TLS, err = p.shared.identity(); err != nil {
			return nil, err
		}
	}
	if s.observed {
		if data.Observed, err = p.shared.observe(p); err != nil {
			return nil, err
		}
	}
	return p.configure("remora.yaml", data, "run", "-c")
}

// shared is what the sidecars of a row have in common. Each part is made on first use.
type shared struct {
	dir      string
	tls      string // YAML; "" means not made yet
	observer *observer
}

// identity returns the tls block, in YAML without braces, of a self-signed certificate
// that all sidecars trust.
func (s *shared) identity() (string, error) {
	if s.tls != "" {
		return s.tls, nil
	}
	cert, key := filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		return "", fmt.Errorf("certificate: %w", err)
	}
	s.tls = fmt.Sprintf("cert: %q, key: %q, ca: %q, peers: [%s]", cert, key, cert, peerName)
	return s.tls, nil
}

const peerName = "bench"

func writeCertificate(cert, key string) error {
	now := time.Now()
	made, err := mint.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: peerName}, DNSNames: []string{peerName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil)
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := made.PEM()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, keyPEM, 0o600))
}

// How an observed sidecar is observed: the time between two scrapes of its metrics, and
// the shares of requests that it logs and traces.
const (
	scrapeEvery = time.Second
	logged      = 0.01
	traced      = 0.001
)

// observer scrapes the metrics of sidecars and receives their spans.
type observer struct {
	ctx              context.Context
	stop             context.CancelFunc
	receiver         *http.Server
	addr             string // of the receiver
	work             sync.WaitGroup
	scrapes, exports atomic.Int64
}

func newObserver() (*observer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver of traces: %w", err)
	}
	o := &observer{addr: ln.Addr().String()}
	o.ctx, o.stop = context.WithCancel(context.Background())
	o.receiver = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // an export of OTLP/HTTP
		o.exports.Add(1)
		w.Header().Set("content-type", "application/x-protobuf")
	})}
	o.work.Go(func() { o.receiver.Serve(ln) })
	return o, nil
}

// observe starts to scrape a sidecar, and returns the YAML of its log and its traces.
func (s *shared) observe(p place) (yaml string, err error) {
	if s.observer == nil {
		if s.observer, err = newObserver(); err != nil {
			return "", err
		}
	}
	s.observer.scrape(p.Admin)
	return fmt.Sprintf("access_log: {path: %q, sample: %g}\ntracing: {endpoint: \"http://%s\", sample: %g}",
		filepath.Join(p.Dir, "access.log"), logged, s.observer.addr, traced), nil
}

func (o *observer) scrape(admin string) {
	o.work.Go(func() {
		tick := time.NewTicker(scrapeEvery)
		defer tick.Stop()
		for {
			select {
			case <-o.ctx.Done():
				return
			case <-tick.C:
			}
			// The sidecar may not listen yet, or no more: check fails if none ever responded.
			if _, err := child.Call(o.ctx, http.MethodGet, "http://"+admin+"/metrics"); err == nil {
				o.scrapes.Add(1)
			}
		}
	})
}

// check returns an error if no metrics or no spans came.
func (s *shared) check() error {
	if o := s.observer; o != nil && (o.scrapes.Load() == 0 || o.exports.Load() == 0) {
		return errors.New("nothing was observed")
	}
	return nil
}

func (s *shared) close() {
	if o := s.observer; o != nil {
		o.stop()
		o.receiver.Close()
		o.work.Wait()
	}
}
