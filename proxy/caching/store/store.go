// Package store keeps the responses of one cache on one loop, within a number of bytes.
//
//	store.go  Store, its index, and S3-FIFO, which decides what is evicted
//	ring.go   ring, the bytes of the entries in the order in which they came
//
// Keys and responses are bytes in rings, and the index has numbers in place of pointers, so that
// the garbage collector has nothing to scan. Memory is taken as it is needed, up to the bound.
package store

import (
	"math/bits"
	"time"
	"unsafe"
)

// Meta is what the owner knows of an entry without reading it. Times are on the loop's clock.
type Meta struct {
	Asked   time.Duration // when the request was sent whose response it is
	Born    time.Duration // when its age was 0
	Fresh   time.Duration // when it is stale
	Refresh time.Duration // when a hit refreshes it; at most Fresh
	Until   time.Duration // when it is of no use any more
	While   time.Duration // how long after Fresh it may be used while it is refreshed
	IfError time.Duration // how long after Fresh it may be used if the service fails
	Flags   uint32
	Status  uint16 // of the response
	Fields  uint32 // length of its headers, with which the value begins
}

// Entry is a stored response. It is valid until the next Put.
type Entry struct {
	Meta
	hash  uint64
	at    int   // offset in its ring
	size  int   // of key and value
	key   int   // length of the key
	chain int32 // the next entry of the bucket
	next  int32 // the next entry of the ring, or of the free list
	uses  uint8 // since it came, or was spared; at most maxUses
	main  bool
	dead  bool // removed or replaced; its bytes come free in turn
}

// Hash is the hash of the key.
func (e *Entry) Hash() uint64 { return e.hash }

// Size is the number of bytes of the value.
func (e *Entry) Size() int { return e.size - e.key }

// Sizes of the store. An entry of the index with its share of the tables takes about 140 bytes,
// so the index takes a fifth of the memory if entries have 560 bytes on average.
const (
	maxUses     = 3
	promoteUses = 2  // that move an entry from small to main
	maxSpared   = 64 // entries that one Put spares; further ones are evicted
	chunkLen    = 64
	meanEntry   = 700 // bytes of the bound for each entry of the index
	smallShare  = 10  // the ring small has a tenth
)

// Store is S3-FIFO (Yang et al., SOSP 2023): new entries come into a small ring, and those that
// are used there move on to the main ring. So a scan of keys that are used once evicts little.
type Store struct {
	small, main ring
	chunks      [][]Entry
	buckets     []int32  // by hash: 1 + the first entry
	ghosts      []uint32 // by hash: the rest of the hash of one that was evicted from small
	maxEntries  int
	free        int32 // 1 + the first unused entry
	made        int   // entries in chunks
	spared      int   // by this Put

	Entries int    // live ones
	Evicted uint64 // entries that were evicted before their time was up
}

// New returns a store that takes at most so many bytes of memory.
func New(bytes int) *Store {
	s := &Store{maxEntries: MaxEntries(bytes)}
	rest := bytes - s.maxEntries*int(unsafe.Sizeof(Entry{})) - 8*tableLen(s.maxEntries)
	s.small.init(rest / smallShare)
	s.main.init(rest - rest/smallShare)
	return s
}

// MaxEntries is how many entries a store of so many bytes has at most.
func MaxEntries(bytes int) int { return max(chunkLen, bytes/meanEntry/chunkLen*chunkLen) }

// tableLen is the length of a table for n entries.
func tableLen(n int) int { return 1 << bits.Len(uint(n-1)) }

// Bytes is the memory that the store holds.
func (s *Store) Bytes() int {
	return s.small.held + s.main.held + len(s.chunks)*chunkLen*int(unsafe.Sizeof(Entry{})) + 4*(len(s.buckets)+len(s.ghosts))
}

// MaxEntry is the size of the largest key with its value that Put takes.
func (s *Store) MaxEntry() int { return s.main.room / 4 }

func (s *Store) entry(i int32) *Entry { return &s.chunks[i/chunkLen][i%chunkLen] }

// Find returns the entry of a key, or nil.
func (s *Store) Find(hash uint64, key []byte) *Entry {
	if s.buckets == nil {
		return nil
	}
	for i := s.buckets[hash&uint64(len(s.buckets)-1)]; i != 0; {
		e := s.entry(i - 1)
		if e.hash == hash && e.key == len(key) && s.ringOf(e).equal(e.at, key) {
			return e
		}
		i = e.chain
	}
	return nil
}

// Use notes that an entry was used.
func (s *Store) Use(e *Entry) {
	if e.uses < maxUses {
		e.uses++
	}
}

func (s *Store) ringOf(e *Entry) *ring {
	if e.main {
		return &s.main
	}
	return &s.small
}

// Append appends the value of an entry to dst.
func (s *Store) Append(dst []byte, e *Entry) []byte {
	return s.ringOf(e).appendTo(dst, e.at+e.key, e.size-e.key)
}

// Put stores a value, in place of that of the same key. It reports whether the value was small
// enough. A value may have several parts.
func (s *Store) Put(now time.Duration, hash uint64, key []byte, m *Meta, value ...[]byte) bool {
	size := len(key)
	for _, part := range value {
		size += len(part)
	}
	old := s.Find(hash, key)
	toMain := size > s.small.room/4
	if old != nil {
		toMain = toMain || old.main
		s.Remove(old)
	}
	if size > s.MaxEntry() {
		return false
	}
	if s.buckets == nil {
		s.buckets, s.ghosts = make([]int32, tableLen(s.maxEntries)), make([]uint32, tableLen(s.maxEntries))
	}
	s.spared = 0
	ghost := &s.ghosts[hash&uint64(len(s.ghosts)-1)]
	if *ghost == ghostOf(hash) {
		*ghost, toMain = 0, true
	}
	to := &s.small
	if toMain {
		to = &s.main
	}
	i := s.take(now) // may move entries to the main ring
	s.makeRoom(now, to, size)
	e := s.entry(i)
	*e = Entry{Meta: *m, hash: hash, at: to.head, size: size, key: len(key), main: toMain, next: none}
	bucket := &s.buckets[hash&uint64(len(s.buckets)-1)]
	e.chain, *bucket = *bucket, i+1
	to.write(key)
	for _, part := range value {
		to.write(part)
	}
	s.push(to, i)
	s.Entries++
	return true
}

func ghostOf(hash uint64) uint32 { return uint32(hash>>32) | 1 }

// Remove removes an entry. Its bytes come free in turn.
func (s *Store) Remove(e *Entry) {
	at := &s.buckets[e.hash&uint64(len(s.buckets)-1)]
	for s.entry(*at-1) != e {
		at = &s.entry(*at - 1).chain
	}
	*at, e.dead = e.chain, true
	s.Entries--
}

// take returns an unused entry.
func (s *Store) take(now time.Duration) int32 {
	for s.free == 0 {
		switch {
		case s.made < s.maxEntries:
			s.chunks = append(s.chunks, make([]Entry, chunkLen))
			for i := range int32(chunkLen) {
				s.release(int32(s.made) + i)
			}
			s.made += chunkLen
		case s.small.first != none:
			s.evict(now, &s.small)
		default:
			s.evict(now, &s.main)
		}
	}
	i := s.free - 1
	s.free = s.entry(i).next
	return i
}

func (s *Store) release(i int32) {
	s.entry(i).next = s.free
	s.free = i + 1
}

func (s *Store) push(r *ring, i int32) {
	if r.first == none {
		r.first = i
	} else {
		s.entry(r.last).next = i
	}
	r.last = i
}

func (s *Store) makeRoom(now time.Duration, r *ring, size int) {
	for r.used+size > r.room {
		s.evict(now, r)
	}
}

// evict removes the oldest entry of r, moves it to the main ring, or spares it there.
func (s *Store) evict(now time.Duration, r *ring) {
	i := r.first
	e := s.entry(i)
	r.first, e.next = e.next, none
	r.used -= e.size
	useful := !e.dead && now < e.Until && s.spared < maxSpared
	switch {
	case useful && e.main && e.uses > 0:
		e.uses--
		s.spared++
		s.move(i, e, r)
	case useful && !e.main && e.uses >= promoteUses:
		e.uses = 0
		s.spared++
		s.makeRoom(now, &s.main, e.size)
		s.move(i, e, r)
	default:
		if !e.dead {
			if now < e.Until {
				s.Evicted++
			}
			if !e.main {
				s.ghosts[e.hash&uint64(len(s.ghosts)-1)] = ghostOf(e.hash)
			}
			s.Remove(e)
		}
		s.release(i)
	}
}

// move appends an entry, which is the oldest of from, to the main ring.
func (s *Store) move(i int32, e *Entry, from *ring) {
	at := s.main.head
	s.main.copyFrom(from, e.at, e.size)
	e.at, e.main = at, true
	s.push(&s.main, i)
}
