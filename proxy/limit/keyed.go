package limit

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// By says which requests share a bucket of a Keyed.
type By uint8

// What requests with one bucket have in common.
const (
	ByNone   By = iota // nothing: all share one
	ByPeer             // the address of the client
	ByPath             // the path
	ByHeader           // the value of a header
)

// Keyed is the rate limit of a listener or route, which all loops share: one bucket, or one for
// each key.
//
// The buckets are in sets of ways. A key belongs to one set. A new key takes the place of the
// bucket of its set that is full, or will be full first: a full bucket is like a new one, so
// nothing is lost with it. Of full buckets that is the least recently used one. If none is full, a
// key gets some of its tokens back early. No key is ever refused because of another.
type Keyed struct {
	Config config.RateLimit
	By     By
	Header string // the name of the header, in lower case

	one  *Rate // the only bucket, or the settings of all
	sets []bucketSet
}

const (
	ways    = 8    // buckets of a set
	sets    = 2048 // of a Keyed
	maxKey  = 256  // longer keys are told apart by so many bytes
	maxKeys = ways * sets
)

type bucketSet [ways]atomic.Pointer[bucket]

// bucket is the bucket of one key.
type bucket struct {
	key  string
	full atomic.Int64 // as of Rate
}

// NewKeyed returns a limit with the settings c, whose rate is not 0.
func NewKeyed(c *config.RateLimit) *Keyed {
	l := &Keyed{Config: *c, one: NewRate(c)}
	kind, header := c.KeyParts()
	switch kind {
	case config.KeyPeer:
		l.By = ByPeer
	case config.KeyPath:
		l.By = ByPath
	case config.KeyHeader:
		l.By, l.Header = ByHeader, strings.ToLower(header)
	}
	if l.By != ByNone {
		l.sets = make([]bucketSet, sets)
	}
	return l
}

// Take takes a token for a request at now with a key, which is only read. It reports whether
// there was one.
func (l *Keyed) Take(now time.Duration, key []byte) bool {
	if l.By == ByNone {
		return l.one.Take(now)
	}
	return l.one.take(&l.bucketOf(key).full, now)
}

// bucketOf returns the bucket of a key, and makes it if there is none. When two loops make one at
// the same time, both use the first of the set; what a third loop has taken from the other
// meanwhile is lost.
func (l *Keyed) bucketOf(key []byte) *bucket {
	key = key[:min(len(key), maxKey)]
	s := &l.sets[hash(key)%sets]
	for {
		if b := s.lookup(key); b != nil {
			return b
		}
		at, old := s.fullest()
		made := &bucket{key: string(key)}
		if !at.CompareAndSwap(old, made) {
			continue
		}
		first := s.lookup(key)
		if first == made || first == nil { // nil: the place was taken again
			return made
		}
		at.CompareAndSwap(made, nil)
		return first
	}
}

// lookup returns the first bucket of a key, or nil.
func (s *bucketSet) lookup(key []byte) *bucket {
	for i := range s {
		if b := s[i].Load(); b != nil && b.key == string(key) {
			return b
		}
	}
	return nil
}

// fullest returns a free place, or that of the bucket that is full first.
func (s *bucketSet) fullest() (at *atomic.Pointer[bucket], b *bucket) {
	for i := range s {
		other := s[i].Load()
		if other == nil {
			return &s[i], nil
		}
		if b == nil || other.full.Load() < b.full.Load() {
			at, b = &s[i], other
		}
	}
	return at, b
}

// hash is FNV-1a. It needs no secret: whoever finds keys for one set gains what any new key gets.
func hash(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h ^ h>>32
}
