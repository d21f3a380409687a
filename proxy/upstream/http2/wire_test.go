package http2_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/remora-proxy/remora/protocol/http2"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// settings is an empty SETTINGS frame.
const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// frame returns a frame on a stream.
func frame(kind, flags, stream byte, payload string) string {
	f := proxytest.Frame(kind, flags, payload)
	f[8] = stream
	return string(f)
}

// Types of frames, and their flag ACK.
const (
	frameReset, frameSettings, framePing, frameGoAway, frameContinuation = 3, 4, 6, 7, 9
	flagAck                                                              = 1
)

// headsOf returns some fields of each head in what a client has sent, and whether it is all of the request.
func headsOf(sent []byte) (all []string) {
	frames := xhttp2.NewFramer(nil, bytes.NewReader(sent[len(http2.Preface):]))
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			return all
		}
		h, ok := f.(*xhttp2.MetaHeadersFrame)
		if !ok {
			continue
		}
		head := ""
		for _, f := range h.Fields {
			if slices.Contains([]string{":method", ":scheme", ":authority", ":path", "te", "content-length"}, f.Name) {
				head += fmt.Sprintf("%s: %s, ", f.Name, f.Value)
			}
		}
		all = append(all, fmt.Sprintf("%sall: %t", head, h.StreamEnded()))
	}
}

// TestRequestHeads: what an endpoint gets of a request's head, which has passed as a message or through a tunnel. Requests of gRPC
// want trailers.
func TestRequestHeads(t *testing.T) {
	const grpc = "Content-Type: application/grpc\r\n"
	for _, tls := range []string{"", "tls: {ca: system}"} {
		scheme := "http"
		if tls != "" {
			scheme = "https"
		}
		for _, c := range []struct{ text, want string }{
			{"GET /a HTTP/1.1\r\nHost: compute\r\n\r\n", ":method: GET, :scheme: %s, :path: /a, :authority: compute, all: true"},
			{"POST /a HTTP/1.1\r\nHost: compute\r\nContent-Length: 4\r\n\r\nbody",
				":method: POST, :scheme: %s, :path: /a, :authority: compute, content-length: 4, all: false"},
			{"POST /a HTTP/1.1\r\nHost: compute\r\n" + grpc + "Content-Length: 4\r\n\r\nbody",
				":method: POST, :scheme: %s, :path: /a, :authority: compute, te: trailers, all: false"},
		} {
			m, carrier, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Speaks: "http2", Match: messages,
				Service: proxytest.Fields("timeout: 1s", tls)})
			var peers []*proxytest.Peer
			m.Apps[0].Stop()
			m.W.Net.Listen(m.Apps[0].Addr, m.Apps[0].Loop, func() loop.Receiver {
				peers = append(peers, &proxytest.Peer{Says: []byte(settings)})
				return peers[len(peers)-1]
			})
			m.Do(m.Raw(c.text))
			m.W.Run(100 * time.Millisecond)
			s := openTunnel(m, carrier)
			if !s.pipe.Opened {
				t.Errorf("%q: the goroutine waits to send it", c.text)
			}
			s.write(c.text)
			want := fmt.Sprintf(c.want, scheme)
			if got := headsOf(peers[0].Heard); !slices.Equal(got, []string{want, want}) || len(peers) != 1 {
				t.Errorf("%q: the endpoint got\n%q on %d connections, want twice\n%q", c.text, got, len(peers), want)
			}
			s.end()
			m.W.Run(2 * time.Second)
			proxytest.CheckStreamsSettled(m, carrier)
		}
	}
}
