// Package certs keeps TLS identities that live in PEM files: it reads them,
// reads them again when they change, and says whom to trust. Everything that
// speaks TLS asks it for a configuration at each handshake, so that a rotated
// certificate serves the next connection and disturbs none that is open.
package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options say where an identity is and whom it is shown to.
type Options struct {
	// Cert and Key are files with a chain, leaf first, and its private key.
	// Both "": no certificate of our own, for clients only.
	Cert, Key string

	// CA is a file with the authorities that sign the peers' certificates.
	// "": those of the system.
	CA string

	// Peers are the names accepted, as ParsePeers has them. Empty, for
	// clients only: the name that was dialled.
	Peers []string

	// Interval is how often the files are looked at. 0: 5 s.
	Interval time.Duration

	// Logger hears of rotations. nil: slog.Default().
	Logger *slog.Logger
}

const (
	defaultInterval = 5 * time.Second

	// maxFile bounds a PEM file, in bytes: bundles of all public authorities
	// have a quarter of that.
	maxFile = 1 << 20
)

// Source is one identity, kept current. Its methods may be called from any
// goroutine.
type Source struct {
	opt     Options
	peers   Peers
	current atomic.Pointer[configs]

	loads, failures atomic.Uint64

	read [sha256.Size]byte // digest of the files that were last tried; watch's

	once sync.Once
	stop chan struct{}
	done chan struct{}
}

// configs is what one state of the files makes. It is immutable.
type configs struct {
	server, client *tls.Config
	expires        time.Time
}

// Open reads the files and begins to watch them. The Source must be closed.
func Open(o Options) (*Source, error) {
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	peers, err := ParsePeers(o.Peers)
	if err != nil {
		return nil, err
	}
	s := &Source{opt: o, peers: peers, stop: make(chan struct{}), done: make(chan struct{})}
	files, err := s.readFiles()
	if err != nil {
		return nil, err
	}
	s.read = files.digest()
	if err := s.use(files); err != nil {
		return nil, err
	}
	go s.watch()
	return s, nil
}

// Server is the configuration for the next connection that is accepted: TLS 1.3,
// the client's certificate required and held against Peers. It must not be
// changed.
func (s *Source) Server() *tls.Config { return s.current.Load().server }

// Client is the configuration for the next connection that is dialled: TLS 1.3
// with Peers; without them TLS 1.2 will do, and ServerName is the caller's to
// set, on a clone. It must not be changed.
func (s *Source) Client() *tls.Config { return s.current.Load().client }

// Stats is what a Source counts.
type Stats struct {
	Loads    uint64    // times that files were taken into use, the first included
	Failures uint64    // times that changed files were no good
	Expires  time.Time // end of the own certificate; zero without one
}

// Stats returns the counters of s.
func (s *Source) Stats() Stats {
	return Stats{Loads: s.loads.Load(), Failures: s.failures.Load(), Expires: s.current.Load().expires}
}

// Close ends the watch. What the Source handed out stays valid.
func (s *Source) Close() {
	s.once.Do(func() { close(s.stop) })
	<-s.done
}

// watch looks at the files again and again. It reads them, small as they are:
// orchestrators swap symbolic links, for which times of modification and
// notifications of the kernel need care, and the content tells all.
func (s *Source) watch() {
	defer close(s.done)
	look := time.NewTicker(s.opt.Interval)
	defer look.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-look.C:
			s.reload()
		}
	}
}

// reload takes changed files into use. While they are no good (half of a
// rotation is on disk, say) the last good ones stay.
func (s *Source) reload() {
	files, err := s.readFiles()
	var digest [sha256.Size]byte // all zero: they can't be read
	if err == nil {
		digest = files.digest()
	}
	if digest == s.read {
		return
	}
	s.read = digest
	if err == nil {
		err = s.use(files)
	}
	if err != nil {
		s.failures.Add(1)
		s.opt.Logger.Warn("changed TLS files are no good; the last good ones stay in use",
			"code", "tls_reload", "cert", s.opt.Cert, "error", err)
		return
	}
	s.opt.Logger.Info("TLS files reloaded", "cert", s.opt.Cert, "expires", s.current.Load().expires)
}

// files are the contents of the three files; nil where there is no file.
type files struct{ cert, key, ca []byte }

func (s *Source) readFiles() (f files, err error) {
	if (s.opt.Cert == "") != (s.opt.Key == "") {
		return f, errors.New("tls: cert and key are given together or not at all")
	}
	for _, x := range []struct {
		path string
		into *[]byte
	}{{s.opt.Cert, &f.cert}, {s.opt.Key, &f.key}, {s.opt.CA, &f.ca}} {
		if *x.into, err = readPEM(x.path); err != nil {
			return f, fmt.Errorf("tls: %w", err)
		}
	}
	return f, nil
}

// readPEM reads one file, nil for none.
func readPEM(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(b) > maxFile {
		err = fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return b, err
}

func (f *files) digest() [sha256.Size]byte {
	h := sha256.New()
	for _, b := range [][]byte{f.cert, f.key, f.ca} {
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}
