package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/atomicfile"
)

// Record is what a Cache stores of one service.
type Record struct {
	Service string `json:"service"`
	Origin  string `json:"origin"` // names the registry; a record of another origin must not be used

	// Cluster, Term and Revision are the registry's own version of its data.
	Cluster  uint64 `json:"cluster"`
	Term     uint64 `json:"term"`
	Revision int64  `json:"revision"`

	Changed   time.Time  `json:"changed"`
	Endpoints []Endpoint `json:"endpoints"`
}

// maxRecord limits a file of the cache, in bytes: MaxListed of ordinary size.
const maxRecord = 16 << 20

const rewriteAfter = 5 * time.Second

// Cache stores the last known endpoints of services on disk, one file each, for a start while
// the registry is unavailable. Writes happen in the background. Only the newest record of a
// service is written, and a file is replaced atomically. A failed write, as with a full disk,
// is repeated every rewriteAfter, and logged once for all services. A nil *Cache stores nothing.
type Cache struct {
	dir       string
	protocols Protocols
	log       *slog.Logger

	mu      sync.Mutex
	pending map[string]Record // unwritten records by service; only the newest
	wake    chan struct{}     // capacity 1
	closing chan struct{}
	done    chan struct{}

	failing map[string]string // of the goroutine that writes: the reason why a service could not be written, by service
}

// OpenCache makes dir if it is missing, and checks that it is writable. The caller must call
// Close. A record with a protocol that is not one of protocols is damaged.
func OpenCache(dir string, protocols Protocols, log *slog.Logger) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("registry: cache: %w", err)
	}
	probe, err := os.CreateTemp(dir, atomicfile.Temporary)
	if err != nil {
		return nil, fmt.Errorf("registry: cache: %w", err)
	}
	probe.Close()
	os.Remove(probe.Name())
	c := &Cache{
		dir:       dir,
		protocols: protocols,
		log:       log,
		pending:   make(map[string]Record),
		wake:      make(chan struct{}, 1),
		closing:   make(chan struct{}),
		done:      make(chan struct{}),
		failing:   make(map[string]string),
	}
	go c.run()
	return c, nil
}

// Load returns the record of service. ok is false if there is none, or if it is damaged, which is logged.
func (c *Cache) Load(service string) (rec Record, ok bool) {
	if c == nil {
		return Record{}, false
	}
	rec, err := c.read(service)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("registry cache: file ignored", "file", c.path(service), "error", err)
		}
		return Record{}, false
	}
	return rec, true
}

func (c *Cache) read(service string) (Record, error) {
	f, err := os.Open(c.path(service))
	if err != nil {
		return Record{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return Record{}, err
	}
	return decodeRecord(service, data, c.protocols)
}

var errSize = fmt.Errorf("more than %d bytes, or %d endpoints", maxRecord, MaxListed)

// checkSize returns errSize if a record is too large to be read again.
func checkSize(bytes, endpoints int) error {
	if bytes > maxRecord || endpoints > MaxListed {
		return errSize
	}
	return nil
}

func decodeRecord(service string, data []byte, protocols Protocols) (Record, error) {
	var rec Record
	if err := checkSize(len(data), 0); err != nil {
		return Record{}, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return Record{}, err
	}
	if rec.Service != service {
		return Record{}, fmt.Errorf("record of another service, %q", rec.Service)
	}
	if err := checkSize(len(data), len(rec.Endpoints)); err != nil {
		return Record{}, err
	}
	for _, e := range rec.Endpoints {
		if a, err := ParseAddr(e.Addr); err != nil || a.String() != e.Addr {
			return Record{}, fmt.Errorf("%w: %q", ErrAddress, e.Addr)
		}
		if err := protocols.Check(e.Protocol); err != nil {
			return Record{}, fmt.Errorf("%s: %w", e.Addr, err)
		}
	}
	rec.Endpoints = Normalize(rec.Endpoints)
	// Other zones, or years of five digits, may be read but not written again.
	rec.Changed = rec.Changed.UTC()
	if y := rec.Changed.Year(); y < 0 || y > 9999 {
		return Record{}, fmt.Errorf("changed in the year %d", y)
	}
	return rec, nil
}

// Store replaces the record of a service. It returns at once. The caller must not change
// rec.Endpoints afterwards.
func (c *Cache) Store(rec Record) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.pending[rec.Service] = rec
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Close writes the pending records and ends the cache. Call it once, after the last Store.
func (c *Cache) Close() {
	if c == nil {
		return
	}
	close(c.closing)
	<-c.done
}

func (c *Cache) run() {
	defer close(c.done)
	var again <-chan time.Time // nil before a write has failed
	for {
		select {
		case <-c.wake:
		case <-again:
		case <-c.closing:
			c.flush()
			return
		}
		if c.flush() {
			again = time.After(rewriteAfter)
		}
	}
}

// flush writes the pending records. It keeps those that were not written, if another try may help, and reports whether there are any.
func (c *Cache) flush() (kept bool) {
	c.mu.Lock()
	batch := c.pending
	c.pending = make(map[string]Record)
	c.mu.Unlock()
	told := make(map[string]bool)
	for _, reason := range c.failing {
		told[reason] = true
	}
	for service, rec := range batch {
		err := c.write(rec)
		if err == nil {
			delete(c.failing, service)
			continue
		}
		if err != errSize { // the next try would fail, too
			c.keep(rec)
			kept = true
		}
		reason := reasonOf(err)
		if !told[reason] {
			c.log.Warn("registry cache: write failed; the last record stays", "service", service, "error", err)
		}
		told[reason], c.failing[service] = true, reason
	}
	return kept
}

// reasonOf returns the text of an error without the name of a temporary file, which is another one each time.
func reasonOf(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// keep makes rec pending again, unless a newer record of its service is pending.
func (c *Cache) keep(rec Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, newer := c.pending[rec.Service]; !newer {
		c.pending[rec.Service] = rec
	}
}

func (c *Cache) write(rec Record) error {
	data, err := json.MarshalIndent(rec, "", " ")
	if err == nil {
		err = checkSize(len(data), len(rec.Endpoints))
	}
	if err != nil {
		return err
	}
	return atomicfile.Write(c.path(rec.Service), data)
}

// path returns the file of service. No service name can lead to another directory: "/" is
// escaped, and the suffix makes "." and ".." harmless.
func (c *Cache) path(service string) string {
	return filepath.Join(c.dir, url.PathEscape(service)+".json")
}
