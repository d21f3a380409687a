package replica

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab/wire"
)

// http2Client is that of the standard library.
func http2Client(t *testing.T) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testTimeout}
}

// TestHTTP2 makes many calls at once with a client that shares no code with the replica.
func TestHTTP2(t *testing.T) {
	for _, mode := range []Mode{Fast, Stall} {
		r := start(t, Options{Mode: mode, StallMean: time.Second, StallLen: time.Millisecond}, nil)
		client := http2Client(t)
		var calls sync.WaitGroup
		for range 16 {
			calls.Go(func() {
				for range 20 {
					resp, err := client.Post("http://"+r.Addr()+"/s/m", "application/grpc", strings.NewReader("\x00\x00\x00\x00\x01x"))
					if err != nil {
						t.Error(err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || resp.ProtoMajor != 2 || len(body) != 5+bodySize || binary.BigEndian.Uint32(body[1:]) != bodySize {
						t.Errorf("%s, %q, %v", resp.Proto, body, err)
					}
					if resp.Header.Get("Content-Type") != "application/grpc" || resp.Trailer.Get("Grpc-Status") != "0" {
						t.Errorf("headers %v, trailers %v", resp.Header, resp.Trailer)
					}
				}
			})
		}
		calls.Wait()
		eventually.True(t, "no call is in flight", func() bool { return r.Stats().InFlight == 0 })
		if s := r.Stats(); s.Served != 320 || s.Aborted != 0 {
			t.Errorf("mode %s: %+v", mode, s)
		}
	}
}

// TestHTTP2Reset checks that the work of a cancelled call goes on, and is counted.
func TestHTTP2Reset(t *testing.T) {
	clock := newFakeClock()
	r := start(t, Options{Mode: Stall}, clock)
	c, next := rawHTTP2(t, r, nil)
	call := func(stream uint32) []byte {
		return wire.AppendFrame(nil, wire.Frame{Type: wire.Headers, Flags: wire.EndStream | wire.EndHeaders, Stream: stream})
	}
	c.Write(call(1))
	clock.awaitAsleep(t, 1)
	c.Write(append(wire.AppendFrame(nil, wire.Frame{Type: wire.Reset, Stream: 1, Payload: make([]byte, 4)}), call(3)...))
	clock.awaitAsleep(t, 2)
	clock.set(clock.now().Add(time.Second))
	if f := next(); f.Type != wire.Headers || f.Stream != 3 {
		t.Errorf("%+v, want the response to the call that was not cancelled", f)
	}
	eventually.True(t, "no call is in flight", func() bool { return r.Stats().InFlight == 0 })
	if s := r.Stats(); s.Served != 2 || s.Aborted != 1 {
		t.Errorf("%+v, want 2 served, 1 aborted", s)
	}
}

// rawHTTP2 opens a connection with these settings, and reads the replica's first frames.
func rawHTTP2(t *testing.T, r *Replica, settings []byte) (c net.Conn, next func() wire.Frame) {
	c, br := dial(t, r)
	var in []byte
	next = func() wire.Frame {
		t.Helper()
		for {
			f, n, err := wire.ParseFrame(in)
			if err == nil {
				in = in[n:]
				return f
			}
			b := make([]byte, 4096)
			read, err := br.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			in = append(in[:len(in):len(in)], b[:read]...)
		}
	}
	for _, b := range []byte(wire.Preface) { // each alone
		c.Write([]byte{b})
	}
	c.Write(wire.AppendFrame(nil, wire.Frame{Type: wire.Settings, Payload: settings}))
	if f := next(); f.Type != wire.Settings || f.Flags != 0 {
		t.Fatalf("%+v", f)
	}
	if f := next(); f.Type != wire.WindowUpdate || f.Increment() != wire.MostWindow-wire.FirstWindow {
		t.Fatalf("%+v", f)
	}
	if f := next(); f.Type != wire.Settings || f.Flags != wire.Ack {
		t.Fatalf("%+v", f)
	}
	return c, next
}

// TestHTTP2Tables decodes responses for a client with a table and for one without.
func TestHTTP2Tables(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	for table, settings := range map[uint32][]byte{4096: nil, 0: {0, wire.TableSize, 0, 0, 0, 0}} {
		c, next := rawHTTP2(t, r, settings)
		d := hpack.NewDecoder(table, nil)
		d.SetAllowedMaxDynamicTableSize(table)
		for stream := uint32(1); stream < 7; stream += 2 {
			c.Write(wire.AppendFrame(nil, wire.Frame{Type: wire.Headers, Flags: wire.EndStream | wire.EndHeaders, Stream: stream}))
			var got string
			for _, kind := range []byte{wire.Headers, wire.Data, wire.Headers} {
				f := next()
				if f.Type != kind || f.Stream != stream {
					t.Fatalf("%+v", f)
				}
				if kind == wire.Headers {
					fields, err := d.DecodeFull(f.Payload)
					got += fmt.Sprint(fields, err, f.Flags)
				}
			}
			want := fmt.Sprint(grpcHead, nil, wire.EndHeaders) + fmt.Sprint(grpcTrailers, nil, wire.EndHeaders|wire.EndStream)
			if got != want {
				t.Errorf("table of %d: %s, want %s", table, got, want)
			}
		}
	}
}

// TestHTTP2Window checks that responses wait for the window of the connection.
func TestHTTP2Window(t *testing.T) {
	const fit = wire.FirstWindow / (5 + bodySize)
	r := start(t, Options{Mode: Fast}, nil)
	c, next := rawHTTP2(t, r, nil)
	var calls []byte
	for i := range fit + 2 {
		calls = wire.AppendFrame(calls, wire.Frame{Type: wire.Headers, Flags: wire.EndStream | wire.EndHeaders, Stream: uint32(1 + 2*i)})
	}
	calls = wire.AppendFrame(calls, wire.Frame{Type: wire.Ping, Payload: make([]byte, 8)})
	c.Write(calls)
	responses := func() (n int) {
		for {
			switch f := next(); {
			case f.Type == wire.Ping && f.Flags == wire.Ack:
				return n
			case f.Type == wire.Data:
				n++
			}
		}
	}
	if n := responses(); n != fit {
		t.Errorf("%d responses, want %d", n, fit)
	}
	more := wire.AppendWindow(nil, 0, 2*(5+bodySize))
	c.Write(wire.AppendFrame(more, wire.Frame{Type: wire.Ping, Payload: make([]byte, 8)}))
	if n := responses(); n != 2 {
		t.Errorf("%d more responses, want 2", n)
	}
}

// TestHTTP2Thaw checks that a frozen replica does not acknowledge anything.
func TestHTTP2Thaw(t *testing.T) {
	clock := newFakeClock()
	r := start(t, Options{Mode: Stall, Seed: 1, StallMean: mean, StallLen: long}, clock)
	began := clock.now()
	c, next := rawHTTP2(t, r, nil)
	var freeze Freeze
	for f := range NewSchedule(1, mean, long).from(0) {
		freeze = f
		break
	}
	clock.set(began.Add(freeze.Start + time.Microsecond))
	c.Write(wire.AppendFrame(nil, wire.Frame{Type: wire.Ping, Payload: make([]byte, 8)}))
	clock.awaitAsleep(t, 1)
	clock.set(began.Add(freeze.End))
	if f := next(); f.Type != wire.Ping || f.Flags != wire.Ack {
		t.Errorf("%+v", f)
	}
}

// TestHTTP2Bad checks that a client that is not one of HTTP/2, or no longer, is left.
func TestHTTP2Bad(t *testing.T) {
	r := start(t, Options{Mode: Fast}, nil)
	c, br := dial(t, r)
	io.WriteString(c, wire.Preface[:len(wire.Preface)-1]+"?")
	if resp, _ := answer(t, br, "GET"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", resp.StatusCode)
	}
	c, _ = rawHTTP2(t, r, nil)
	io.WriteString(c, strings.Repeat("\xff", 9))
	if b, err := io.ReadAll(c); err != nil && len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
}
