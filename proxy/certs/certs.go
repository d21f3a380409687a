// Package certs keeps TLS identities up to date. It reads them from PEM files,
// reads these again when they change, and verifies the certificates of peers.
//
// The command opens a Source for each configured identity. The drivers of links
// (proxy/reactor) and the client of etcd (registry/etcd) ask it for a configuration at each
// handshake: the next connection uses a rotated certificate, and open ones stay.
package certs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Options say where the files of an identity are, and which peers it accepts.
type Options struct {
	// Cert and Key are the files of a chain, leaf first, and of its private key.
	// A client without a certificate of its own leaves both empty.
	Cert, Key string

	// CA is a file of the authorities that sign peers' certificates; empty means the system's.
	CA string

	// CRL is a file of revocation lists that authorities in CA have signed, in PEM or DER. Peers
	// with a certificate on a list are refused. Empty means that none is revoked.
	CRL string

	// Peers are the accepted names, in the syntax of identity.Parse. A client may
	// leave them empty: the peer must then prove the name that was dialled. An HTTP server may,
	// too: it then accepts every certificate that is signed by CA.
	Peers []string

	// HTTP is set for an identity that serves or calls by HTTP/1.1; nil means a link or etcd.
	HTTP *HTTP

	// Interval is the time between two reads of the files; 0 means 5 s.
	Interval time.Duration

	// Logger gets a record of each reload; nil means slog.Default().
	Logger *slog.Logger

	// OnTrust is called after changed files have changed who is accepted, by any goroutine. nil
	// means that nobody is told.
	OnTrust func()
}

const (
	defaultInterval = 5 * time.Second

	// maxFile bounds a PEM file, in bytes: four times a bundle of all public authorities.
	maxFile = 1 << 20
)

// Source is one identity, kept up to date. Any goroutine may call its methods.
type Source struct {
	opt     Options
	peers   Peers
	current atomic.Pointer[configs]

	loads, failures atomic.Uint64

	lastTried [sha256.Size]byte // digest of the files; after Open only watch uses it
	lastTrust [sha256.Size]byte // digest of those in use that say who is accepted

	stop context.CancelFunc // ends watch
	done chan struct{}      // closed when watch has ended
}

// configs are the configurations made of one state of the files, and immutable but for warned.
type configs struct {
	server, client  *tls.Config
	begins, expires time.Time // of the own certificate that ends first
	trusted         *authorities
	sessions        tls.ClientSessionCache // of an HTTP client; a new certificate or authority begins without any
	warned          bool                   // of outdated lists; only Open and then watch access it
}

// Open reads the files and begins to watch them. The caller must call Close.
func Open(o Options) (*Source, error) {
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	peers, err := ParsePeers(o.Peers)
	if err != nil {
		return nil, err
	}
	s := &Source{opt: o, peers: peers, done: make(chan struct{})}
	files, err := s.readFiles()
	if err != nil {
		return nil, err
	}
	s.lastTried, s.lastTrust = files.digest(), files.trust()
	if err := s.use(files); err != nil {
		return nil, err
	}
	s.warnOutdated(time.Now())
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.watch(ctx)
	return s, nil
}

// Has reports whether s was opened for the files and peers of o.
func (s *Source) Has(o Options) bool {
	return s.opt.Cert == o.Cert && s.opt.Key == o.Key && s.opt.CA == o.CA && s.opt.CRL == o.CRL &&
		slices.Equal(s.opt.Peers, o.Peers) && s.opt.HTTP.equal(o.HTTP)
}

// Server returns the configuration for the next accepted connection, which the caller must not
// change. Without HTTP it requires TLS 1.3 and a client certificate with a name in Peers.
func (s *Source) Server() *tls.Config { return s.current.Load().server }

// Client returns the configuration for the next dialled connection. With Peers it
// requires TLS 1.3. Without them it accepts TLS 1.2, and the caller must set
// ServerName, on a clone. The caller must not change it.
func (s *Source) Client() *tls.Config { return s.current.Load().client }

// Stats are the counters of a Source.
type Stats struct {
	Loads    uint64    // loads of the files, the first included
	Failures uint64    // changed files that could not be used
	Begins   time.Time // of the certificate of the identity that ends first; zero without one
	Expires  time.Time // its end
	Outdates time.Time // first nextUpdate of a revocation list; zero without one
}

// Stats returns the counters of s.
func (s *Source) Stats() Stats {
	c := s.current.Load()
	st := Stats{Loads: s.loads.Load(), Failures: s.failures.Load(), Begins: c.begins, Expires: c.expires}
	if lists := c.trusted.lists; lists != nil {
		st.Outdates = lists.outdate
	}
	return st
}

// Close stops the watch. Configurations that the Source returned stay valid.
func (s *Source) Close() {
	s.stop()
	<-s.done
}

// watch compares the small files at each interval: orchestrators replace files by changing
// symbolic links, which modification times and kernel notifications do not reliably show.
func (s *Source) watch(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(s.opt.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.reload()
			s.warnOutdated(time.Now())
		}
	}
}

// reload puts changed files into use. If they can't be used, for example because a
// rotation is only half written, the last good ones stay in use.
func (s *Source) reload() {
	files, err := s.readFiles()
	var digest [sha256.Size]byte // all zero if the files can't be read
	if err == nil {
		digest = files.digest()
	}
	if digest == s.lastTried {
		return
	}
	s.lastTried = digest
	if err == nil {
		err = s.use(files)
	}
	if err != nil {
		s.failures.Add(1)
		s.opt.Logger.Warn("changed TLS files can't be used; the last good ones stay in use",
			"code", "tls_reload", "cert", s.opt.Cert, "error", err)
		return
	}
	s.opt.Logger.Info("TLS files reloaded", "cert", s.opt.Cert, "expires", s.current.Load().expires)
	if trust := files.trust(); trust != s.lastTrust {
		s.lastTrust = trust
		if s.opt.OnTrust != nil {
			s.opt.OnTrust()
		}
	}
}

// files holds the contents of the files; nil where none is configured.
type files struct {
	cert, key, ca, crl []byte
	more               []keyPair
}

// keyPair is a certificate and its private key, in PEM.
type keyPair struct{ cert, key []byte }

func (s *Source) readFiles() (f files, err error) {
	if (s.opt.Cert == "") != (s.opt.Key == "") {
		return f, errors.New("tls: cert and key must be set together")
	}
	for _, x := range []struct {
		path string
		max  int
		into *[]byte
	}{{s.opt.Cert, maxFile, &f.cert}, {s.opt.Key, maxFile, &f.key}, {s.opt.CA, maxFile, &f.ca}, {s.opt.CRL, maxLists, &f.crl}} {
		if *x.into, err = readFile(x.path, x.max); err != nil {
			return f, fmt.Errorf("tls: %w", err)
		}
	}
	if s.opt.HTTP == nil {
		return f, nil
	}
	for _, named := range s.opt.HTTP.More {
		var pair keyPair
		if pair.cert, err = readFile(named.Cert, maxFile); err == nil {
			pair.key, err = readFile(named.Key, maxFile)
		}
		if err != nil {
			return f, fmt.Errorf("tls: %w", err)
		}
		f.more = append(f.more, pair)
	}
	return f, nil
}

// readFile reads one file of at most max bytes. It returns nil for an empty path.
func readFile(path string, max int) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	if strings.Contains(path, "-----BEGIN") { // perhaps a private key, which no error may show
		return nil, errors.New("expected the path of a file, got its content")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(max)+1))
	if len(b) > max {
		err = fmt.Errorf("%s is larger than %d MiB", path, max>>20)
	}
	return b, err
}

func (f *files) digest() [sha256.Size]byte {
	all := [][]byte{f.cert, f.key, f.ca, f.crl}
	for _, pair := range f.more {
		all = append(all, pair.cert, pair.key)
	}
	return digest(all...)
}

// trust is the digest of the files that say who is accepted.
func (f *files) trust() [sha256.Size]byte { return digest(f.ca, f.crl) }

func digest(contents ...[]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, b := range contents {
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}
