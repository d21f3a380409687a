package proxy_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// frame is a frame of HTTP/2.
func rawFrame(kind xhttp2.FrameType, flags xhttp2.Flags, stream uint32, payload string) []byte {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), byte(kind), byte(flags)}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// fields is a header block of literals: names and values by turns.
func fields(all ...string) string {
	var b []byte
	for i := range all {
		if i%2 == 0 {
			b = append(b, 0)
		}
		b = append(append(b, byte(len(all[i]))), all[i]...)
	}
	return string(b)
}

const (
	endStream  = xhttp2.FlagDataEndStream
	endHeaders = xhttp2.FlagHeadersEndHeaders
)

// sentHTTP2 checks that b, from a sidecar, is well-formed HTTP/2 with one message on each
// stream. It returns how many of them are responses.
func sentHTTP2(t *testing.T, b []byte) (responses int) {
	t.Helper()
	fr := xhttp2.NewFramer(io.Discard, bytes.NewReader(b))
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	heads, over := map[uint32]bool{}, map[uint32]bool{}
	for {
		f, err := fr.ReadFrame()
		if err == io.EOF || err == io.ErrUnexpectedEOF { // the connection ends within a frame
			return responses
		}
		if err != nil {
			t.Fatalf("malformed: %v\n%x", err, b)
		}
		id, ends := f.Header().StreamID, false
		switch f := f.(type) {
		case *xhttp2.MetaHeadersFrame:
			if f.PseudoValue("status")[0] != '1' && !heads[id] {
				heads[id] = true
				responses++
			}
			ends = f.StreamEnded()
		case *xhttp2.DataFrame:
			if ends = f.StreamEnded(); !heads[id] {
				t.Fatalf("DATA before the head of stream %d\n%x", id, b)
			}
		case *xhttp2.RSTStreamFrame:
			over[id] = true
			continue
		default:
			continue
		}
		if over[id] {
			t.Fatalf("a frame behind the end of stream %d\n%x", id, b)
		}
		over[id] = ends
	}
}

// FuzzDownstreamHTTP2 sends anything behind a preface to an HTTP listener. The sidecar sends
// well-formed HTTP/2, one response to a request at most, and no memory is held in the end.
func FuzzDownstreamHTTP2(f *testing.F) {
	head := fields(":method", "POST", ":scheme", "http", ":path", "/a", ":authority", "a")
	post := append(rawFrame(xhttp2.FrameHeaders, endHeaders, 1, head), rawFrame(xhttp2.FrameData, endStream, 1, "abc")...)
	get := rawFrame(xhttp2.FrameHeaders, endHeaders|endStream, 3, fields(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a"))
	for _, s := range [][]byte{
		post, get, append(post, get...), rawFrame(xhttp2.FramePing, 0, 0, "12345678"),
		append(rawFrame(xhttp2.FrameHeaders, 0, 1, head[:10]), rawFrame(xhttp2.FrameContinuation, endHeaders, 1, head[10:])...),
		append(slices.Clone(get), rawFrame(xhttp2.FrameRSTStream, 0, 3, "\x00\x00\x00\x08")...),
		append(rawFrame(xhttp2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x08"), post...),
		slices.Concat(post[:len(post)-12], rawFrame(xhttp2.FrameHeaders, endHeaders|endStream, 1, fields("t", "1"))),
		append(rawFrame(xhttp2.FrameSettings, 0, 0, "\x00\x04\x00\x00\x00\x00"), post...),
		rawFrame(xhttp2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"),
		append(post, rawFrame(xhttp2.FrameData, 0, 1, "more")...),
	} {
		f.Add(s, uint64(1))
	}
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, OneHop: true, Limits: "limits: {message: 1MiB}"})
		m.W.Options.Cut = 0.7
		p := &proxytest.Peer{Says: slices.Concat([]byte(http2.Preface), rawFrame(xhttp2.FrameSettings, 0, 0, ""), said)}
		m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, p) })
		m.W.RunUntil(func() bool { return p.Ended }, 45*time.Second)
		sentHTTP2(t, p.Heard)
		if !p.Ended {
			m.Clients.Do(func() { p.Conn.Close() })
			m.W.Run(time.Second)
		}
		m.Settled()
	})
}

// requestStreams returns the streams whose requests have begun in b, a prefix of what a sidecar
// sends.
func requestStreams(b []byte) (ids []uint32) {
	b, _ = bytes.CutPrefix(b, []byte(http2.Preface))
	for len(b) >= 9 {
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		if id := binary.BigEndian.Uint32(b[5:]); xhttp2.FrameType(b[3]) == xhttp2.FrameHeaders {
			ids = append(ids, id)
		}
		b = b[min(9+n, len(b)):]
	}
	return ids
}

// thisStream stands for the stream of a request in the frames of FuzzUpstreamHTTP2.
const thisStream = 0x7fffffff

// toStream returns said with the stream of a request in place of thisStream.
func toStream(said []byte, id uint32) []byte {
	b := bytes.Clone(said)
	for at := 0; at+9 <= len(b); at += 9 + int(b[at])<<16 + int(b[at+1])<<8 + int(b[at+2]) {
		if binary.BigEndian.Uint32(b[at+5:]) == thisStream {
			binary.BigEndian.PutUint32(b[at+5:], id)
		}
	}
	return b
}

// FuzzUpstreamHTTP2 makes an application answer each request with anything. Each caller gets
// exactly one well-formed response.
func FuzzUpstreamHTTP2(f *testing.F) {
	head := rawFrame(xhttp2.FrameHeaders, endHeaders, thisStream, fields(":status", "200", "content-length", "2"))
	ok := append(slices.Clone(head), rawFrame(xhttp2.FrameData, endStream, thisStream, "ok")...)
	for _, s := range [][]byte{
		ok, slices.Concat(ok, ok), head, rawFrame(xhttp2.FrameHeaders, endHeaders|endStream, thisStream, fields(":status", "204")),
		slices.Concat(rawFrame(xhttp2.FrameHeaders, endHeaders, thisStream, fields(":status", "103")), ok),
		rawFrame(xhttp2.FrameHeaders, endHeaders, thisStream, fields(":status", "103")),
		slices.Concat(head, rawFrame(xhttp2.FrameData, 0, thisStream, "ok"), rawFrame(xhttp2.FrameHeaders, endHeaders|endStream, thisStream, fields("t", "1"))),
		rawFrame(xhttp2.FrameRSTStream, 0, thisStream, "\x00\x00\x00\x07"), rawFrame(xhttp2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"),
		slices.Concat(rawFrame(xhttp2.FrameGoAway, 0, 0, "\x7f\xff\xff\xff\x00\x00\x00\x00"), ok),
		slices.Concat(rawFrame(xhttp2.FrameSettings, 0, 0, "\x00\x03\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00"), ok),
		slices.Concat(rawFrame(xhttp2.FramePing, 0, 0, "12345678"), rawFrame(xhttp2.FrameWindowUpdate, 0, thisStream, "\x00\x00\x00\x01"), ok),
		[]byte("HTTP/1.1 200 OK\r\n\r\n"),
	} {
		for seed := range uint64(4) {
			f.Add(s, seed)
		}
	}
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: seed, Apps: 1, Service: "timeout: 1s, idempotent: true",
			OneHop: true, Speaks: "http2", Limits: "limits: {message: 1MiB}"})
		m.W.Options.Cut = 0.7
		m.Apps[0].Stop()
		m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-raw"), func() loop.Receiver {
			p := &proxytest.Peer{ClosesAfterReply: seed%2 == 1}
			greeted, done := false, 0
			p.Reply = func(heard []byte) (b []byte) {
				if !greeted && seed%4 < 2 {
					greeted = true
					b = append(rawFrame(xhttp2.FrameSettings, 0, 0, ""), rawFrame(xhttp2.FrameSettings, xhttp2.FlagSettingsAck, 0, "")...)
				}
				for _, id := range requestStreams(heard)[done:] {
					done++
					b = append(b, toStream(said, id)...)
				}
				return b
			}
			return p
		})
		for range 3 {
			raw := &proxytest.Peer{Says: m.Get("/").Raw}
			m.Clients.Do(func() { m.Clients.Dial(proxytest.Egress, time.Second, raw) })
			answered := func() bool { return raw.Ended || finalHead(raw.Heard) }
			if !m.W.RunUntil(answered, 10*time.Second) {
				t.Fatal("no response")
			}
			m.W.Run(100 * time.Millisecond)
			if n := responsesIn(t, raw.Heard, nil); n != 1 {
				t.Fatalf("%d responses to one request: %q", n, raw.Heard)
			}
			m.Clients.Do(func() { raw.Conn.Close() })
			m.W.Run(10 * time.Millisecond)
		}
		m.Settled()
	})
}
