package link

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// wire returns the bytes that d sends for one message, after a has decoded them.
func wire(t *testing.T, d, a *side, id uint64, hs []protocol.Header) []byte {
	t.Helper()
	d.w.Request(id, &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: hs}, 0, nil)
	b := d.w.Append(nil, 0)
	feed(t, a, b)
	got := a.h.requests[id]
	if got == nil || len(got.Headers) != len(hs) {
		t.Fatalf("request %d: %q", id, a.h.events)
	}
	for i, h := range got.Headers {
		if !bytes.Equal(h.Name, hs[i].Name) || !bytes.Equal(h.Value, hs[i].Value) {
			t.Fatalf("header %d: %q: %q", i, h.Name, h.Value)
		}
	}
	return b
}

func TestInternRepeatedText(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	hs := headers("Content-Type", "application/json", "X-Tenant", "acme-corporation", "User-Agent", "Go-http-client/1.1")
	var b []byte
	for id := range uint64(4) {
		b = wire(t, d, a, id+1, hs)
	}
	for _, gone := range []string{"Content-Type", "application/json", "X-Tenant", "User-Agent", "Go-http"} {
		if bytes.Contains(b, []byte(gone)) {
			t.Errorf("%q is sent as text", gone)
		}
	}
	if !bytes.Contains(b, []byte("acme-corporation")) {
		t.Error("the value of a header outside internedValues is interned")
	}
	moved := []protocol.Header{hs[2], hs[0], hs[1]} // found without the position cache
	if b := wire(t, d, a, 5, moved); bytes.Contains(b, []byte("User-Agent")) || bytes.Contains(b, []byte("Go-http")) {
		t.Error("a header that moved is sent as text")
	}
}

func TestSecretsAreNeverInterned(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for _, name := range []string{"authorization", "Cookie", "set-cookie", "proxy-authorization", "x-api-key", "x-auth-token"} {
		for range 6 {
			b := wire(t, d, a, uint64(len(a.h.requests)+1), headers(name, "secret-0123456789"))
			if !bytes.Contains(b, []byte("secret-0123456789")) {
				t.Fatalf("the value of %s is interned", name)
			}
		}
	}
	for _, e := range a.r.names.entries {
		if bytes.Contains(e.text, []byte("secret")) {
			t.Errorf("the peer's table holds %q", e.text)
		}
	}
}

// TestDefineLimits: a peer may define so many texts, and so many bytes of them.
func TestDefineLimits(t *testing.T) {
	define := func(at, size int) []byte {
		return append(appendHeader(nil, uint8(frameDefine), uint64(at), size), bytes.Repeat([]byte{'d'}, size)...)
	}
	for _, c := range []struct {
		name        string
		texts, size int
	}{{"texts", tableEntries, 1}, {"bytes", 2, tableBytes / 2}} {
		_, a := newLink(t, Settings{}, ReaderLimits{})
		for i := range c.texts {
			feed(t, a, define(i, c.size))
			if n := a.r.Interned(); c.size == 1 && i == 0 && n != leastEntries*entryMemory+textBlock {
				t.Errorf("one text takes %d bytes", n)
			}
		}
		if err := a.r.Feed(define(c.texts, 1)); err != ErrDefine {
			t.Errorf("too many %s: %v", c.name, err)
		}
	}
}

// Names and values that don't repeat are not defined.
func TestInternUniqueText(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for id := range uint64(2000) {
		wire(t, d, a, id+1, headers(fmt.Sprint("x-noise-", id), "v", "user-agent", fmt.Sprint("agent ", id)))
	}
	if n := len(a.r.names.entries); n > 5 {
		t.Errorf("the table has %d entries", n)
	}
}

func TestInternTableLimits(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	long := string(bytes.Repeat([]byte("x"), 200))
	for id := range uint64(3000) {
		n := id / 4 % 300 // each four times in a row
		wire(t, d, a, id+1, headers("user-agent", fmt.Sprint("agent ", n), fmt.Sprint("x-", n, long), "v"))
	}
	names := d.w.names
	if len(names.entries) == 0 || len(names.entries) > tableEntries || names.bytes > tableBytes || names.values == 0 ||
		names.values > valueEntries || names.valueBytes > valueBytes {
		t.Errorf("%d entries, %d bytes, %d values, %d bytes", len(names.entries), names.bytes, names.values, names.valueBytes)
	}
	if len(a.r.names.entries) != len(names.entries) || a.r.names.bytes != names.bytes {
		t.Errorf("the peer's table has %d entries, %d bytes", len(a.r.names.entries), a.r.names.bytes)
	}
	b := wire(t, d, a, 5000, headers("user-agent", "agent 299"))
	if !bytes.Contains(b, []byte("agent 299")) {
		t.Error("text that did not fit is not sent as text")
	}
}

// Clients choose values, so values may use only half of the table.
func TestInternValueLimits(t *testing.T) {
	for _, size := range []int{10, 200} {
		d, a := newLink(t, Settings{}, ReaderLimits{})
		for id := range uint64(2000) {
			wire(t, d, a, id+1, headers("user-agent", fmt.Sprintf("%0*d", size, id/4)))
		}
		names := d.w.names
		if names.values < 10 || names.values > valueEntries || names.valueBytes > valueBytes {
			t.Errorf("%d values, %d bytes", names.values, names.valueBytes)
		}
		for range 3 {
			wire(t, d, a, uint64(len(a.h.requests)+1), headers("x-late", "v"))
		}
		if b := wire(t, d, a, 5000, headers("x-late", "v")); bytes.Contains(b, []byte("x-late")) {
			t.Error("there is no room for a name")
		}
	}
}

// A dropped request still sends its definitions, since other messages use them.
func TestInternAfterDrop(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for id := range uint64(4) { // defines text, but is never sent
		d.w.Request(id+1, typical(1), 0, nil)
		d.w.Drop(id + 1)
	}
	b := wire(t, d, a, 5, typical(1).Headers)
	if len(a.h.requests) != 1 || !bytes.Contains(b, []byte("content-type")) {
		t.Errorf("got %q", a.h.events)
	}
}

func TestTraceparent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for value, binary := range map[string]bool{
		good: true,
		"00-00000000000000000000000000000000-0000000000000000-ff":  true,
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":  false, // upper case would be lost
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":  false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0":   false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-": false,
		"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":  false,
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01":  false,
		"": false,
	} {
		d, a := newLink(t, Settings{}, ReaderLimits{})
		b := wire(t, d, a, 1, headers("a", "b", "traceparent", value, "c", "d"))
		if got := !bytes.Contains(b, []byte("traceparent")); got != binary {
			t.Errorf("%q in binary: %t", value, got)
		}
		b = wire(t, d, a, 2, headers("Traceparent", value)) // its case would be lost
		if !bytes.Contains(b, []byte("Traceparent")) {
			t.Error("a name in another case is not literal")
		}
	}
}
