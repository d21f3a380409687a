package http_test

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"
	"weak"
)

// TestScratch: each kind of response is encoded in the memory of the one before.
func TestScratch(t *testing.T) {
	long := strings.Repeat("l", 4000)
	for name, c := range map[string]struct {
		says string
		then []string // what the application says
	}{
		"a failure": {says: "GET / HTTP/1.1\r\nHost: unknown\r\n\r\n"},
		"a message": {says: get("/"), then: []string{response(9000, "")}},
		"an interim": {says: get("/"), then: []string{
			"HTTP/1.1 103 Early Hints\r\nLink: " + long + "\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: " + long + "\r\n\r\n", response(2, ""),
		}},
	} {
		s := newTurns(t, "")
		if c.then != nil {
			s.Say(get("/")) // after which the loop has memory for a short message
			s.Answer(response(2, ""))
		}
		var at []*byte
		s.OnWrite = func(b []byte) {
			if c.then == nil || len(b) > len(long) {
				at = append(at, unsafe.SliceData(b))
			}
		}
		for range 2 {
			s.Say(c.says)
			for _, says := range c.then {
				s.Answer(says)
			}
		}
		if len(at) < 2 || at[0] != at[1] {
			t.Errorf("%s: %d responses were written, from %v", name, len(at), at)
		}
	}
}

// TestLongScratch: the memory of a response with a long head is free once the response was written, in one write or in pieces.
func TestLongScratch(t *testing.T) {
	const long = 300 << 10 // longer than what a loop keeps
	top := "limits: {header: 512KiB, message: 1MiB}"
	for name, size := range map[string]int{"a short body": 2, "a long body": 20 << 10, "pieces": pieceSize + 1} {
		s := newTurns(t, top)
		path := get("/")
		if name == "pieces" {
			path = get("/cached")
			s.Say(path)
			s.Answer(response(size, "x: "+strings.Repeat("l", long)+"\r\n"))
		}
		var head weak.Pointer[byte]
		s.OnWrite = func(b []byte) {
			if len(b) > long && strings.HasPrefix(string(b), "HTTP/1.1 200 OK") {
				head = weak.Make(unsafe.SliceData(b))
			}
		}
		if s.Say(path); name != "pieces" {
			s.Answer(response(size, "x: "+strings.Repeat("l", long)+"\r\n"))
		}
		if n := strings.Count(string(s.Conn.Out), "y"); n < size || head == (weak.Pointer[byte]{}) {
			t.Errorf("%s: %d bytes of the body came", name, n)
		}
		runtime.GC()
		if head.Value() != nil {
			t.Errorf("%s: the memory of the head is still referenced", name)
		}
		runtime.KeepAlive(s)
	}
}

// TestEditsOfCached: a route changes each response that it gives from its cache, as it changes the first one.
func TestEditsOfCached(t *testing.T) {
	s := newTurns(t, `routes: [{match: {host: compute, path: /cached}, service: compute, cache: {ttl: 1h}, response_headers: {set: {x-back: "{request_id}"}, remove: [x-secret]}}, {match: {host: compute}, service: compute}]`)
	for _, id := range []string{"one", "two", "three"} {
		s.Conn.Out = s.Conn.Out[:0]
		s.Say("GET /cached HTTP/1.1\r\nHost: compute\r\nX-Request-Id: " + id + "\r\n\r\n")
		if id == "one" {
			s.Answer(response(2, "x-secret: 1\r\n"))
		}
		got := string(s.Conn.Out)
		if strings.Count(got, "x-back: ") != 1 || !strings.Contains(got, "x-back: "+id+"\r\n") || strings.Contains(got, "x-secret") || !strings.HasSuffix(got, "\r\n\r\nyy") {
			t.Errorf("%s: received %q", id, got)
		}
	}
	if s.served() != 1 {
		t.Errorf("%d requests are served", s.served())
	}
}
