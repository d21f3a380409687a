package link

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

func TestRequestTransfer(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	long := strings.Repeat("v", 30000)
	for name, req := range map[string]*protocol.Request{
		"typical": typical(7),
		"empty":   {Method: []byte("GET"), Path: []byte("*")},
		"all": {
			Codec: protocol.CodecHTTP, Service: []byte("s"), Method: []byte("PUT"), Path: []byte("/a"), Authority: []byte("h:1"),
			Headers:  headers("Host", "h:1", "empty", "", "tab", "a\tb", "utf8", "žluťoučký", "dup", "1", "dup", "2"),
			Trailers: headers("x-sum", "1"), Body: []byte("b"), Attempt: 2, Hedge: true, Idempotent: true, Timed: true,
		},
		"dubbo": {Codec: dubbo.CodecHessian2, Service: []byte("com.acme.Features"), Method: []byte("get"),
			Headers: headers("", "", "odd name:", "x"), Body: []byte{0, 1, 2, '\r', '\n'}},
		"fastjson":    {Codec: dubbo.CodecFastjson, Attempt: 255},
		"one-way":     {Codec: dubbo.CodecHessian2, Method: []byte("log"), OneWay: true, Hedge: true},
		"big body":    {Method: []byte("POST"), Path: []byte("/"), Headers: typical(1).Headers, Body: big},
		"big head":    {Method: []byte("POST"), Path: []byte("/"), Headers: headers("a", long, "b", long), Trailers: headers("c", "d")},
		"both big":    {Method: []byte("POST"), Path: []byte("/"), Headers: headers("a", long, "b", long), Body: big},
		"two traces":  {Method: []byte("GET"), Path: []byte("/"), Headers: append(typical(1).Headers, typical(2).Headers...)},
		"long target": {Method: []byte("GET"), Path: []byte("/" + long)},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := newLink(t, Settings{}, ReaderLimits{Message: 4 << 20})
			var o owners
			want := showRequest(req, 1500*time.Microsecond)
			for id := range uint64(3) { // literal, defined, interned
				d.w.Request(id+1, req, 1500*time.Microsecond-999, o.next())
				exchange(t, d, a)
				got := a.h.requests[id+1]
				if got == nil {
					t.Fatalf("request %d did not arrive: %v", id+1, a.h.events)
				}
				if got := showRequest(got, a.h.ttls[id+1]); got != want {
					t.Fatalf("request %d\n got %.2000s\nwant %.2000s", id+1, got, want)
				}
			}
			if o.released != 3 || d.w.Queued() != 0 || a.r.Buffered() != 0 {
				t.Fatalf("released %d of 3, queued %d, buffered %d", o.released, d.w.Queued(), a.r.Buffered())
			}
		})
	}
}

func TestResponseTransfer(t *testing.T) {
	for name, resp := range map[string]*protocol.Response{
		"typical":       typicalResponse(),
		"no reason":     {Status: 200, DeclaredLength: -1},
		"other reason":  {Status: 404, Reason: []byte("Gone fishing"), DeclaredLength: -1},
		"unknown":       {Status: 599, DeclaredLength: 0},
		"head":          {Status: 304, Reason: []byte("Not Modified"), DeclaredLength: 1 << 40},
		"trailers":      {Status: 500, Headers: headers("a", "b"), Trailers: headers("c", "d"), Body: []byte("x"), DeclaredLength: -1},
		"rpc":           {Status: 503, RPC: 100, Headers: headers("a", "b"), Body: []byte("x"), DeclaredLength: -1},
		"traced":        {Status: 200, Headers: typical(3).Headers, DeclaredLength: -1, Body: []byte("body")},
		"big":           {Status: 200, Body: bytes.Repeat([]byte("x"), 1<<20), DeclaredLength: -1},
		"big and trace": {Status: 200, Headers: typical(3).Headers, Body: bytes.Repeat([]byte("x"), 1<<20), DeclaredLength: -1},
	} {
		t.Run(name, func(t *testing.T) {
			d, a := newLink(t, Settings{}, ReaderLimits{})
			for id := range uint64(3) {
				a.w.Response(id+1, resp, dubbo.CodecFastjson, nil)
				exchange(t, d, a)
				got := d.h.responses[id+1]
				if got == nil {
					t.Fatalf("response %d did not arrive", id+1)
				}
				if got, want := showResponse(got, d.h.codecs[id+1]), showResponse(resp, dubbo.CodecFastjson); got != want {
					t.Fatalf("response %d\n got %s\nwant %s", id+1, got, want)
				}
			}
		})
	}
}

func TestControlFrames(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	a.w.CancelAck(3, CancelDropped)
	a.w.CancelAck(4, CancelAtApp)
	a.w.Refused(5, NoSlot)
	a.w.GoAway(1<<40, Draining)
	a.w.Credit(1000)
	a.w.Ping(1)
	a.w.Ping(2) // replaces it
	a.w.Pong(1<<64 - 1)
	a.w.Load(Load{Pending: 1})
	a.w.Load(Load{Pending: 1 << 31, Queued: 2, Latency: 1500 * time.Nanosecond, SinceResponse: 0})
	b := a.w.Append(nil, 0)
	if a.w.Ready() || len(a.w.Append(nil, 1000)) != 0 {
		t.Error("Append has more frames")
	}
	want := []string{
		"cancel_ack 3 dropped", "cancel_ack 4 at_app", "refused 5 no_slot", "goaway 1099511627776 draining",
		"credit 1000", "ping 2", "pong 18446744073709551615", "load pending=2147483648 queued=2 latency=2µs since=0s",
	}
	splits(t, b, func(t *testing.T, parts [][]byte) {
		d, _ = newLink(t, Settings{}, ReaderLimits{})
		for _, p := range parts {
			feed(t, d, p)
		}
		if !slices.Equal(d.h.events, want) {
			t.Errorf("got %q", d.h.events)
		}
	})

	a.w.Load(Load{SinceResponse: -time.Second})
	d.h.events = nil
	feed(t, d, a.w.Append(nil, 0))
	if want := "load pending=0 queued=0 latency=0s since=-1ns"; d.h.events[0] != want {
		t.Errorf("got %q, want %q", d.h.events[0], want)
	}
	if !d.w.Cancel(9) {
		t.Error("Cancel of an id that left: not sent")
	}
	feed(t, a, d.w.Append(nil, 0))
	if a.h.events[0] != "cancel 9" {
		t.Errorf("got %q", a.h.events)
	}
}

// A Reader reports the same for a conversation, however it is split.
func TestReaderSplits(t *testing.T) {
	d, a := newLink(t, Settings{}, ReaderLimits{})
	for id := range uint64(5) {
		d.w.Request(2*id+1, typical(int(id)), time.Second, nil)
		big := typical(int(id))
		big.Body = bytes.Repeat(big.Body, 60)
		d.w.Request(2*id+2, big, 0, nil)
	}
	var sent []byte
	for d.w.Ready() {
		b := d.w.Append(nil, 1000)
		sent = append(sent, b...)
		feed(t, a, b)
		d.w.Granted(a.r.TakeConsumed())
	}
	if len(a.h.requests) != 10 {
		t.Fatalf("%d requests arrived", len(a.h.requests))
	}
	splits(t, sent, func(t *testing.T, parts [][]byte) {
		_, e := newLink(t, Settings{}, ReaderLimits{})
		for _, p := range parts {
			p = bytes.Clone(p) // the caller may overwrite it after Feed
			feed(t, e, p)
			clear(p)
			e.r.TakeConsumed()
		}
		for id, req := range e.h.requests { // after all input was overwritten
			if got, want := showRequest(req, 0), showRequest(a.h.requests[id], 0); got != want {
				t.Errorf("request %d\n got %s\nwant %s", id, got, want)
			}
		}
		if !slices.Equal(e.h.events, a.h.events) {
			t.Errorf("got %q\nwant %q", e.h.events, a.h.events)
		}
		if e.r.Buffered() != 0 {
			t.Errorf("%d bytes are still buffered", e.r.Buffered())
		}
	})
}
