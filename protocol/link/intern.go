package link

import (
	"bytes"
	"hash/maphash"

	"github.com/remora-proxy/remora/protocol"
)

// Limits of the interning table of one direction.
const (
	tableEntries = 128
	tableBytes   = 8 << 10

	// Values may use at most half of the table, so that names always have room.
	valueEntries = tableEntries / 2
	valueBytes   = tableBytes / 2

	minEntry = 3   // shorter text gains nothing
	maxEntry = 256 // longer text seldom repeats, and would fill the table

	// traceIndex is an index that no entry can have. As the name of a header it means
	// traceName with a value in binary.
	traceIndex = tableEntries

	positions = 48 // number of header lines with a position cache
)

const (
	leastEntries = 8   // of a table that is not empty
	textBlock    = 512 // bytes of memory that short texts share
	ownBlock     = 128 // longer text has memory of its own

	entryMemory   = 32     // bytes of memory of an entry of either table
	emptyInterner = 3 << 9 // the same of an interner without entries
)

// texts is the memory of a table's texts. A text never moves or changes.
type texts struct {
	block []byte // the latest; its free capacity takes the next short texts
	held  int    // bytes of all blocks
}

func (t *texts) clone(text []byte) []byte {
	if len(text) > ownBlock {
		t.held += len(text)
		return bytes.Clone(text)
	}
	if len(text) > cap(t.block)-len(t.block) {
		t.block = make([]byte, 0, textBlock)
		t.held += textBlock
	}
	start := len(t.block)
	t.block = append(t.block, text...)
	return t.block[start:len(t.block):len(t.block)]
}

// grown returns entries with room for another one.
func grown[E any](entries []E) []E {
	if n := len(entries); n == cap(entries) {
		return append(make([]E, 0, max(leastEntries, 2*n)), entries...)
	}
	return entries
}

// internedValues are the headers whose values are interned: they repeat between requests and
// hold no secret. All other values, such as those of authorization, cookie and set-cookie, are
// always sent as literal text.
var internedValues = []string{
	"accept", "accept-encoding", "accept-language", "accept-ranges", "cache-control", "cdn-loop", "connection",
	"content-encoding", "content-language", "content-type", "server", "te", "user-agent", "vary", "via",
	"x-forwarded-proto", "x-powered-by",
}

// interner is the table of the sending side: it turns texts into numbers. Entries are never
// removed or changed.
//
// A client that sends a new header name in each request would fill the table. So a text is
// defined only when it comes again while its fingerprint is in a small sketch. Service names
// are the exception: they come from the configuration.
type interner struct {
	entries []entry
	bytes   int // bytes of text in them
	texts   texts

	values     int // entries that are values
	valueBytes int

	slots [2 * tableEntries]uint8 // open addressing by hash: 1 + index
	seed  maphash.Seed

	// seen has fingerprints of texts that are not defined, the newest first in each set. A set
	// has four ways, so that texts of one message don't always evict each other from it.
	seen [64][4]uint32

	// last has, for each position in the list of headers, the entries of the previous message.
	// A client's messages are similar: one comparison finds most texts without hashing.
	last    [positions]hint
	trailer hint

	service, method, authority uint8 // likewise: the entries of the previous message

	never int // fields of the message so far that are never indexed

	defs []byte // DEFINE frames that must precede the next message
}

type entry struct {
	text   []byte
	values bool // a header name whose values are interned
}

// held returns the bytes of memory of the table.
func (t *interner) held() int {
	if t == nil {
		return 0
	}
	return emptyInterner + cap(t.entries)*entryMemory + t.texts.held
}

// hint is the result of the last lookup of a header line: 1 + index.
type hint struct{ name, value uint8 }

type kind uint8

const (
	kindName    kind = iota
	kindValue        // shares half of the table
	kindService      // defined on its first use
)

// lookup returns 1 + the index of text, or 0 if it has no entry. It defines text if that is
// due. hint is the entry to try first.
func (t *interner) lookup(text []byte, hint uint8, k kind) uint8 {
	if hint != 0 && bytes.Equal(t.entries[hint-1].text, text) {
		return hint
	}
	if len(text) < minEntry || len(text) > maxEntry {
		return 0
	}
	h := maphash.Bytes(t.seed, text)
	slot := uint8(h)
	for t.slots[slot] != 0 {
		if i := t.slots[slot]; bytes.Equal(t.entries[i-1].text, text) {
			return i
		}
		slot++ // wraps: there are as many slots as values of a uint8
	}
	if !t.repeats(h) && k != kindService || !t.room(len(text), k) || !isText(text) {
		return 0
	}
	t.define(text, k)
	t.slots[slot] = uint8(len(t.entries))
	return t.slots[slot]
}

// repeats reports whether a text with this hash was seen recently, and records it.
func (t *interner) repeats(h uint64) bool {
	set, print := &t.seen[h>>8%uint64(len(t.seen))], uint32(h>>32)|1
	for _, p := range set {
		if p == print {
			return true
		}
	}
	copy(set[1:], set[:])
	set[0] = print
	return false
}

func (t *interner) room(size int, k kind) bool {
	if k == kindValue && (t.values == valueEntries || t.valueBytes+size > valueBytes) {
		return false
	}
	return len(t.entries) < tableEntries && t.bytes+size <= tableBytes
}

func (t *interner) define(text []byte, k kind) {
	e := entry{text: t.texts.clone(text)}
	if k == kindName {
		for _, name := range internedValues {
			e.values = e.values || protocol.EqualFold(text, name)
		}
	}
	if k == kindValue {
		t.values++
		t.valueBytes += len(text)
	}
	t.defs = appendHeader(t.defs, uint8(frameDefine), uint64(len(t.entries)), len(text))
	t.defs = append(t.defs, text...)
	t.entries = append(grown(t.entries), e)
	t.bytes += len(text)
}

type table struct {
	entries []defined
	bytes   int // bytes of text in them
	texts   texts
}

type defined struct {
	text  []byte // messages may refer to it for as long as they live
	class textClass
}

func (t *table) define(index uint64, text []byte) error {
	if index != uint64(len(t.entries)) || index >= tableEntries || len(text) == 0 || t.bytes+len(text) > tableBytes {
		return ErrDefine
	}
	class := classify(text)
	if class&classText == 0 {
		return ErrDefine
	}
	t.entries = append(grown(t.entries), defined{t.texts.clone(text), class})
	t.bytes += len(text)
	return nil
}

// held returns the bytes of memory of the table.
func (t *table) held() int { return cap(t.entries)*entryMemory + t.texts.held }
