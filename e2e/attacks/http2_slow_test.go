package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/e2e/harness/h2"
	"golang.org/x/net/http2"
)

// ends sends b and nothing more. The sidecar must end the connection.
func ends(name string, b ...[]byte) h2Way {
	return h2Way{name, func(_ context.Context, p *h2.Peer) error {
		p.Send(b...)
		return p.UntilEnd(func(*h2.Heard) bool { return true })
	}}
}

// unread sends what next returns, and reads nothing. The sidecar must end the connection: by timeouts.write, or by
// timeouts.idle if the kernels hold all that it wrote.
func unread(name string, next func(i int) []byte) h2Way {
	return h2Way{name, func(_ context.Context, p *h2.Peer) error {
		p.Send(h2.Hello(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}), h2.SettingsAck(), h2.WindowUpdate(0, 1<<30))
		for i := 0; ; i++ {
			if _, err := p.Nc.Write(next(i)); errors.Is(err, os.ErrDeadlineExceeded) {
				return stillHeld(p.Nc)
			} else if err != nil {
				return nil
			}
		}
	}}
}

// stillHeld returns an error if the process at the other end of nc, on this machine, has not closed it. A peer that
// does not read may never learn of the close: its kernel, which has no room left, drops each segment that comes.
func stillHeld(nc net.Conn) error {
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return err
	}
	port := func(a net.Addr) string { return fmt.Sprintf(":%04X", a.(*net.TCPAddr).Port) }
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // the local and the remote address are fields 1 and 2, the inode is field 9
		if strings.HasSuffix(f[1], port(nc.RemoteAddr())) && strings.HasSuffix(f[2], port(nc.LocalAddr())) && f[9] != "0" {
			return errors.New("the connection has not ended")
		}
	}
	return nil
}

// h2Echo is a whole request for its body of n bytes.
func h2Echo(id uint32, n int) []byte {
	b := h2.Post(id, "/echo", "content-length", fmt.Sprint(n))
	for n > 16<<10 {
		b, n = append(b, h2.Data(id, 0, make([]byte, 16<<10))...), n-16<<10
	}
	return append(b, h2.Data(id, h2.EndStream, make([]byte, n))...)
}

// h2Echoes are requests on the first streams.
func h2Echoes(streams, n int) (b []byte) {
	for i := range streams {
		b = append(b, h2Echo(uint32(2*i+1), n)...)
	}
	return b
}

// closedWindows says that no stream may send DATA before WINDOW_UPDATE.
var closedWindows = h2.Hello(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})

// http2Slow are peers that hold much and do little.
var http2Slow = []h2Attack{
	{name: "slow HTTP2 heads", size: 30, meets: refusedSeries("header-timeout"), ways: []h2Way{
		ends("half prefaces", []byte(http2.ClientPreface[:20])),
		ends("no SETTINGS", []byte(http2.ClientPreface)),
		ends("half frames", h2.Hello(), h2.Get(1, "/compute")[:20]),
		ends("half heads", h2.Hello(), unfinishedHeaders),
		{"drips", func(_ context.Context, p *h2.Peer) error {
			p.Send(h2.Hello(), unfinishedHeaders)
			for !p.Over() && p.Send(h2.Frame(http2.FrameContinuation, 0, 1, []byte{0})) {
				time.Sleep(100 * time.Millisecond)
			}
			return p.UntilEnd(func(*h2.Heard) bool { return true })
		}},
	}},
	{name: "slow HTTP2 bodies", size: 20, meets: refusedSeries("too-many-streams"), ways: []h2Way{
		{"drips", func(ctx context.Context, p *h2.Peer) error {
			p.Send(h2.Hello(), h2.SettingsAck())
			for i := range 64 {
				p.Send(h2.Post(uint32(2*i+1), "/compute", "content-length", "100000"))
			}
			for pauseFor(ctx, 300*time.Millisecond) && !p.Over() {
				for i := range 64 {
					p.Send(h2.Data(uint32(2*i+1), 0, []byte("x")))
				}
			}
			return nil
		}},
	}},
	{name: "half HTTP2 bodies", size: 20, ways: []h2Way{
		{"as much as the windows allow", func(ctx context.Context, p *h2.Peer) error {
			p.Send(h2.Hello(), h2.SettingsAck())
			for i := range 64 {
				p.Send(h2.Post(uint32(2*i+1), "/echo", "content-length", "100000"))
				for range 3 {
					p.Send(h2.Data(uint32(2*i+1), 0, make([]byte, 16<<10)))
				}
			}
			for pauseFor(ctx, 100*time.Millisecond) && !p.Over() {
			}
			return nil
		}},
	}},
	{name: "closed windows", size: 10, ways: []h2Way{
		{"of streams", func(ctx context.Context, p *h2.Peer) error {
			p.Send(closedWindows, h2.SettingsAck(), h2Echoes(90, 60_000))
			for pauseFor(ctx, 100*time.Millisecond) && !p.Over() {
			}
			return nil
		}},
		{"of the connection", func(ctx context.Context, p *h2.Peer) error {
			p.Send(h2.Hello(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}), h2.SettingsAck(), h2Echoes(90, 60_000))
			for pauseFor(ctx, 100*time.Millisecond) && !p.Over() {
			}
			return nil
		}},
		{"but for others", othersPass},
	}},
	{name: "windows of a byte", ways: []h2Way{{"served", byteByByte}}},
	{name: "unread HTTP2", size: 4, deaf: true, ways: []h2Way{
		unread("PING", always(bytes.Repeat(h2.Frame(http2.FramePing, 0, 0, make([]byte, 8)), 100))),
		unread("SETTINGS", always(bytes.Repeat(h2.Settings(), 100))),
		unread("refused streams", func(i int) []byte { return h2.Post(uint32(2*i+1), "/compute") }),
		unread("responses without a body", func(i int) []byte { return h2.Get(uint32(2*i+1), "/compute") }),
		unread("long responses", func(i int) []byte { return h2Echo(uint32(2*i+1), 60_000) }),
	}},
}

// othersPass has a stream with a closed window, beside which others must pass.
func othersPass(_ context.Context, p *h2.Peer) error {
	p.Send(closedWindows, h2.SettingsAck(), h2Echo(1, 60_000))
	for i := range 10 {
		id := uint32(2*i + 3)
		p.Send(h2Echo(id, 1000), h2.WindowUpdate(id, 1000))
		if err := p.UntilBody(id, 1000); err != nil {
			return err
		}
	}
	return nil
}

// byteByByte widens the windows of ten streams by a byte at a time. All responses must come.
func byteByByte(_ context.Context, p *h2.Peer) error {
	p.Send(closedWindows, h2.SettingsAck(), h2Echoes(10, 100))
	for range 100 {
		for i := range 10 {
			p.Send(h2.WindowUpdate(uint32(2*i+1), 1))
		}
	}
	for i := range 10 {
		if err := p.UntilBody(uint32(2*i+1), 100); err != nil {
			return err
		}
	}
	return nil
}

// tooLarge sends requests whose heads are over a limit: each gets a response with status 431, or is
// reset, or the connection ends with code.
func tooLarge(name string, code http2.ErrCode, heads func(stream uint32) []byte) h2Way {
	return h2Way{name, func(_ context.Context, p *h2.Peer) error {
		const streams = 20
		p.Send(h2.Hello(), h2.SettingsAck())
		p.Repeat(streams, func(i int) []byte { return heads(uint32(2*i + 1)) })
		err := p.Until("responses to all heads", func(h *h2.Heard) bool {
			over := 0
			for _, s := range h.Streams {
				if s.Reset || s.Ended {
					over++
				}
			}
			return over == streams || h.Ended
		})
		p.Mu.Lock()
		defer p.Mu.Unlock()
		h := &p.Heard
		for _, s := range h.Streams {
			if status := s.Field(":status"); status != "431" && !(s.Reset && status == "") {
				return fmt.Errorf("neither status 431 nor RST_STREAM: %s", h)
			}
		}
		if h.Ended && (!h.GoingAway || h.Code != code) {
			return fmt.Errorf("the connection did not end with %v: %s", code, h)
		}
		if h.Ended {
			err = nil
		}
		return err
	}}
}

// broken sends header blocks that end the connection with COMPRESSION_ERROR.
func broken(name string, block []byte) h2Way {
	return h2Way{name, func(_ context.Context, p *h2.Peer) error {
		p.Send(h2.Hello(), h2.SettingsAck(), h2.Heads(1, h2.EndStream, block))
		return p.UntilEnd(func(h *h2.Heard) bool { return h.GoingAway && h.Code == http2.ErrCodeCompression })
	}}
}

// aBomb is a head that refers to one long field of the table again and again.
func aBomb(stream uint32) []byte {
	block := h2.Block(h2.RequestFields("GET", "/compute")...)
	long := h2.Block("a", strings.Repeat("x", 4000))
	long[0] = 0x40 // with a place in the table
	return h2.Heads(stream, h2.EndStream, slices.Concat(block, long, bytes.Repeat([]byte{0xbe}, 10_000)))
}

// http2Heads are heads that are larger than they may be.
var http2Heads = []h2Attack{
	{name: "huge HTTP2 heads", meets: refusedSeries("header-too-large"), ways: []h2Way{
		tooLarge("bombs", http2.ErrCodeEnhanceYourCalm, aBomb),
		tooLarge("many fields", http2.ErrCodeEnhanceYourCalm, func(id uint32) []byte {
			return h2.Heads(id, h2.EndStream, append(h2.Block(h2.RequestFields("GET", "/compute")...), bytes.Repeat(h2.Block("a", "b"), 10_000)...))
		}),
		tooLarge("long fields", http2.ErrCodeEnhanceYourCalm, func(id uint32) []byte {
			return h2.Heads(id, h2.EndStream, append(h2.Block(h2.RequestFields("GET", "/compute")...), h2.Block("a", strings.Repeat("x", attackHeader+1))...))
		}),
		tooLarge("many cookies", http2.ErrCodeEnhanceYourCalm, func(id uint32) []byte {
			return h2.Heads(id, h2.EndStream, append(h2.Block(h2.RequestFields("GET", "/compute")...), bytes.Repeat(h2.Block("cookie", "a=bcdef"), 10_000)...))
		}),
	}},
	{name: "broken header blocks", ways: []h2Way{
		broken("an index past the table", append(h2.Block(h2.RequestFields("GET", "/")...), 0xfe)),
		broken("an endless integer", append(h2.Block(h2.RequestFields("GET", "/")...), bytes.Repeat([]byte{0xff}, 100)...)),
		broken("a huge string", append(h2.Block(h2.RequestFields("GET", "/")...), 0, 1, 'a', 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)),
		broken("a table size over the limit", append([]byte{0x3f, 0xe1, 0xff, 0x03}, h2.Block(h2.RequestFields("GET", "/")...)...)),
		broken("a table size behind a field", slices.Concat(h2.Block(h2.RequestFields("GET", "/")...), []byte{0x20})),
		broken("bad padding of Huffman", append(h2.Block(h2.RequestFields("GET", "/")...), 0, 0x81, 0x00, 0)),
	}},
}
