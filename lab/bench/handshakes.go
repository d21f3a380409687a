package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Jobs of the bench of handshakes.
const (
	AtListener Job = "listener" // one proxy, which is called by HTTPS
	AtLink     Job = "link"     // the second of two proxies, which show certificates to each other
	AtDial     Job = "dial"     // both of them: the first one dials for each request
)

// HandshakeRows are a listener and links of each proxy, with each kind of key.
func HandshakeRows() (rows []Row) {
	listener := func(h hop) []hop {
		h.SecureIn = true
		return []hop{h}
	}
	link := func(h hop) []hop {
		consumer, provider := h, h
		consumer.SecureOut, consumer.Mutual = true, true
		provider.SecureIn, provider.Mutual = true, true
		return []hop{consumer, provider}
	}
	for _, key := range handshakeKeys {
		add := func(proxy string, job Job, chain []hop) {
			rows = append(rows, Row{Name: handshakeRow(proxy, job, key), chain: chain, jobs: []Job{job}, rsa: key == "rsa", cut: job == AtDial})
		}
		add("haproxy", AtListener, listener(haproxy))
		add("nginx", AtListener, listener(nginx))
		add("remora", AtListener, listener(sidecar{In: "http", Out: "http"}.hop()))
		add("haproxy", AtLink, link(haproxy))
		add("nginx", AtLink, link(nginx))
		add("remora", AtLink, mesh(func(c, p *sidecar) { c.TLS, p.TLS = true, true }))
		add("haproxy", AtDial, link(haproxy))
		add("nginx", AtDial, link(nginx))
		add("remora", AtDial, mesh(func(c, p *sidecar) { c.TLS, p.TLS = true, true }))
	}
	return rows
}

// handshakeKeys are the kinds of keys: ECDSA P-256, and RSA of 2,048 bits.
var handshakeKeys = []string{"ecdsa", "rsa"}

func handshakeRow(proxy string, job Job, key string) string {
	return fmt.Sprintf("%s-%s-%s", proxy, job, key)
}

// Handshake is a kind of handshake that a load makes.
type Handshake struct {
	Job     Job         // whom it calls
	Resumes bool        // the session of the handshake before
	Version uint16      // of TLS
	Group   tls.CurveID // of the key exchange; clients offer X25519 and P-256, too
}

// String is the name of the load.
func (h Handshake) String() string {
	kind := "full"
	if h.Resumes {
		kind = "resumed"
	}
	return fmt.Sprintf("%s: %s handshakes, %s, %s", h.Job, kind, tls.VersionName(h.Version), h.Group)
}

// Handshakes are all kinds. A link of Remora is always of TLS 1.3, and resumes no session.
func Handshakes() (all []Handshake) {
	for _, resumes := range []bool{false, true} {
		all = append(all,
			Handshake{AtListener, resumes, tls.VersionTLS13, tls.X25519},
			Handshake{AtListener, resumes, tls.VersionTLS13, tls.X25519MLKEM768},
			Handshake{AtListener, resumes, tls.VersionTLS12, tls.X25519})
	}
	return append(all,
		Handshake{AtLink, false, tls.VersionTLS13, tls.X25519},
		Handshake{AtLink, false, tls.VersionTLS13, tls.X25519MLKEM768})
}

// HandshakeLoads are loops of so many clients, each of which makes one handshake after another for d, with
// each kind of handshake. Then come requests without handshakes, and beside so many a second.
func HandshakeLoads(clients int, storm float64, d time.Duration) (loads []Load) {
	for _, h := range Handshakes() {
		loads = append(loads, h.closed(clients, d))
	}
	for _, job := range []Job{AtListener, AtLink} {
		loads = append(loads, calm(job, d), stormy(job, storm, d))
	}
	return append(loads, dials(d))
}

// dialsName is the name of dials.
const dialsName = "dial: one request after another, each with a full handshake between the proxies"

// dials is a loop of one client. The connection between the proxies is cut after each response.
func dials(d time.Duration) Load {
	return Load{Name: dialsName, job: AtDial, period: closedPeriod, send: func(ctx context.Context, s *Stack) (*Result, error) {
		client, err := connect(ctx, s.Addr, 1, true)
		defer client.close()
		if err != nil {
			return nil, err
		}
		taken := hdrhistogram.New(1, int64(requestTimeout), 3)
		began := time.Now()
		for time.Since(began) < d && ctx.Err() == nil {
			s.cutter.cut()
			sent := time.Now()
			if err := client.request(); err != nil {
				return nil, err
			}
			taken.RecordValue(int64(time.Since(sent))) // longer ones can't be: a request is bounded
		}
		return &Result{Requests: taken.TotalCount(), Seconds: time.Since(began).Seconds(), Figures: latencyOf(taken)}, nil
	}}
}

const besideRate = 1000

// calmName is the name of calm.
func calmName(job Job) string { return fmt.Sprintf("%s: open loop, %d requests/s", job, besideRate) }

// calm is an open loop over connections that stay open.
func calm(job Job, d time.Duration) Load {
	l := Open(besideRate, d)
	l.Name, l.job = calmName(job), job
	return l
}

// closed is a loop of clients.
func (h Handshake) closed(n int, d time.Duration) Load {
	var clients []*tlsClient
	prepare := func(ctx context.Context, s *Stack) (err error) {
		if clients, err = s.clients(ctx, h, n); err == nil {
			_, err = handshakeLoop(ctx, clients, min(d, time.Second))
		}
		return err
	}
	send := func(ctx context.Context, _ *Stack) (*Result, error) { return handshakeLoop(ctx, clients, d) }
	return Load{Name: h.String(), job: h.Job, period: closedPeriod, handshakes: true, prepare: prepare, send: send}
}

// handshakeLoop has each client make one handshake after another for d. A handshake that fails ends the load.
func handshakeLoop(ctx context.Context, clients []*tlsClient, d time.Duration) (*Result, error) {
	began := time.Now()
	errs, taken := make([]error, len(clients)), make([]*hdrhistogram.Histogram, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() { taken[i], errs[i] = c.loop(ctx, began.Add(d)) })
	}
	all.Wait()
	seconds, sum := time.Since(began).Seconds(), taken[0]
	for _, one := range taken[1:] {
		sum.Merge(one)
	}
	r := &Result{Requests: sum.TotalCount(), Seconds: seconds, Figures: latencyOf(sum)}
	return r, errors.Join(errs...)
}

// tlsClient makes handshakes of one kind, each on a connection of its own. Goroutines may share it unless it
// resumes sessions.
type tlsClient struct {
	kind   Handshake
	addr   string
	config *tls.Config
}

// clients returns n clients. Each client that resumes sessions has a session already.
func (s *Stack) clients(ctx context.Context, kind Handshake, n int) (all []*tlsClient, err error) {
	for range n {
		c := &tlsClient{kind: kind, addr: s.called(kind.Job)}
		if c.config, err = s.clientTLS(); err != nil {
			return nil, err
		}
		c.config.MinVersion, c.config.MaxVersion = kind.Version, kind.Version
		c.config.CurvePreferences = []tls.CurveID{kind.Group, tls.X25519, tls.CurveP256}
		// The only suites of TLS 1.2: peers would choose others.
		c.config.CipherSuites = []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		}
		if kind.Resumes {
			c.config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			first := *c
			first.kind.Resumes = false
			if err := first.handshake(ctx); err != nil {
				return nil, err
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// called is the address of the proxy that handshakes of a job call.
func (s *Stack) called(job Job) string {
	if job == AtLink {
		return s.Last
	}
	return s.Addr
}

// clientTLS is the configuration of a client, which shows a certificate if it is asked for one.
func (s *Stack) clientTLS() (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(s.dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{ServerName: serverName, RootCAs: roots, Certificates: []tls.Certificate{own}}, nil
}

// loop makes one handshake after another until a time, at least one, and returns how long each took.
func (c *tlsClient) loop(ctx context.Context, until time.Time) (*hdrhistogram.Histogram, error) {
	taken := hdrhistogram.New(1, int64(requestTimeout), 3)
	for began := time.Now(); ; {
		if err := c.handshake(ctx); err != nil {
			return taken, err
		}
		end := time.Now()
		taken.RecordValue(int64(end.Sub(began))) // longer ones can't be: handshake is bounded
		if began = end; !end.Before(until) {
			return taken, nil
		}
	}
}

// handshake makes one handshake, and returns once the server has ended the connection. The server then has
// verified the client, which a client of TLS 1.3 does not wait for, and has sent its tickets.
func (c *tlsClient) handshake(ctx context.Context) error {
	nc, err := dial(ctx, c.addr, 0)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(requestTimeout))
	_ = nc.(*net.TCPConn).SetLinger(0) // its port is needed again
	over := tls.Client(nc, c.config)
	if err := over.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.kind, err)
	}
	if state := over.ConnectionState(); state.DidResume != c.kind.Resumes || state.CurveID != c.kind.Group {
		return fmt.Errorf("%s: resumed %t, group %s", c.kind, state.DidResume, state.CurveID)
	}
	_ = over.CloseWrite() // a failure shows when it reads
	_, err = io.Copy(io.Discard, over)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // it has sent no close_notify
	}
	return err
}

// handshakeVerdicts judges the promises of the bench of handshakes.
func (s Samples) handshakeVerdicts() (all []Verdict) {
	for _, key := range handshakeKeys {
		for _, h := range Handshakes() {
			limit := 1.2
			if h.Resumes {
				limit = 1
			}
			row := func(proxy string) string { return handshakeRow(proxy, h.Job, key) }
			all = append(all, s.compare("CPU per handshake", row("remora"), row("haproxy"), h.String(), CPU, limit))
		}
	}
	for _, key := range handshakeKeys {
		row := func(proxy string) string { return handshakeRow(proxy, AtDial, key) }
		all = append(all, s.compare("CPU", row("remora"), row("haproxy"), dialsName, CPU, 1.2))
		for _, job := range []Job{AtListener, AtLink} {
			all = append(all, s.beside(handshakeRow("remora", job, key), job))
		}
	}
	return all
}
