package attacks

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/e2e/harness/h2"
	"golang.org/x/net/http2"
)

// What the caller may get: exactly one of these.
const (
	isGood      = "200 good"
	isReset     = "502 upstream-reset"
	isMalformed = "502 upstream-malformed"
	isBroken    = isReset + "|" + isMalformed
	isGone      = "502 upstream-goaway"
	isConnect   = "502 upstream-connect"
	isTooLarge  = "502 response-too-large"
	isRefused   = "503 upstream-refused"
	isDeadline  = "504 deadline"
)

func hostiles() (all []h2Endpoint) {
	for code := range http2.ErrCode(16) {
		h := responding(fmt.Sprintf("RST_STREAM with %v", code), isReset, func(id uint32) []byte { return h2.Reset(id, code) })
		if code == http2.ErrCodeRefusedStream {
			h.elsewhere, h.want = true, isRefused
		}
		all = append(all, h, responding(fmt.Sprintf("RST_STREAM with %v behind the head", code), isReset, func(id uint32) []byte {
			return append(okHead(id, 0), h2.Reset(id, code)...)
		}))
	}
	for _, f := range [][2]string{
		{"x", "a\r\nb: c"}, {"x", "a\nb"}, {"x", "a\x00"}, {"X", "a"}, {"x y", "a"}, {"", "a"}, {"x:", "a"}, {"connection", "close"}, {"transfer-encoding", "chunked"},
		{"upgrade", "h2c"}, {"keep-alive", "1"}, {"proxy-connection", "a"}, {":path", "/"}, {":status", "200"}, {":x", "y"}, {"content-length", "5x"},
		{"content-length", "-1"}, {"content-length", "99999999999999999999"}, {"content-length", "5"},
	} {
		all = append(all, responding(fmt.Sprintf("the field %q", f), isMalformed, func(id uint32) []byte {
			return append(okHead(id, 0, "content-length", "4", f[0], f[1]), h2.Data(id, h2.EndStream, []byte("good"))...)
		}))
	}
	for _, status := range []string{"", "abc", "99", "20", "2000", "+20", "200 OK", "101", "0", "-10", "600\r\n"} {
		all = append(all, responding(fmt.Sprintf("the status %q", status), isMalformed, func(id uint32) []byte {
			return h2.Heads(id, h2.EndStream, h2.Block(":status", status))
		}))
	}
	for i, cut := range [][]byte{nil, make([]byte, 5), goodResponse(1)[:12], okHead(1, 0, "content-length", "4"),
		goodResponse(1)[:len(goodResponse(1))-10], goodResponse(1)[:len(goodResponse(1))-2], append(okHead(1, 0), h2.Data(1, 0, []byte("go"))...)} {
		all = append(all, respondingOnce(fmt.Sprintf("the connection ends at point %d", i), isReset, func(id uint32) []byte {
			b := bytes.Clone(cut)
			for at := 0; at+9 <= len(b); at += 9 + int(b[at+2]) {
				copy(b[at+5:], h2.Word(id))
			}
			return b
		}))
	}
	for _, c := range []struct {
		name    string
		payload []byte
	}{
		{"a frame size of 1", h2.Settings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})},
		{"a frame size of 2^24", h2.Settings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 24})},
		{"a window of 2^31", h2.Settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})},
		{"a push of 2", h2.Settings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})},
		{"half a setting", h2.Frame(http2.FrameSettings, 0, 0, make([]byte, 5))},
		{"SETTINGS of a stream", h2.Frame(http2.FrameSettings, 0, 1, nil)},
		{"an acknowledgement with settings", append(h2.Settings(), h2.Frame(http2.FrameSettings, http2.FlagSettingsAck, 0, make([]byte, 6))...)},
		{"PING first", h2.Frame(http2.FramePing, 0, 0, make([]byte, 8))},
		{"HTTP/1.1", []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")},
		{"noise", noise()},
	} {
		all = append(all, greet(c.name, isConnect+"|"+isReset, c.payload))
	}
	return append(all, moreHostiles...)
}

var moreHostiles = []h2Endpoint{
	{name: "closes at once", want: isBroken + "|" + isConnect, connected: func(*h2.Peer) bool { return false }},
	{name: "closes behind SETTINGS", want: isReset + "|" + isConnect + "|" + isGone, connected: func(p *h2.Peer) bool { p.Send(h2.Settings()); return false }},
	{name: "silence", want: isDeadline, connected: func(*h2.Peer) bool { return true }},
	{name: "silence behind SETTINGS", want: isDeadline},
	{name: "silence behind a head", want: isDeadline + "|200 .*", requested: func(p *h2.Peer, id uint32) bool { return p.Send(okHead(id, 0, "content-length", "4")) }},
	greet("SETTINGS are not acknowledged", isGood, h2.Settings()),
	greet("unknown settings", isGood, h2.Settings(http2.Setting{ID: 0xff, Val: 1<<32 - 1}, http2.Setting{ID: 0, Val: 1})),
	greet("unknown frames", isGood, h2.Settings(), h2.Frame(0xf0, 0xff, 7, make([]byte, 100))),
	greet("a header table of 4 GiB", isGood, h2.Settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1<<32 - 1})),
	greet("no header table", isGood, h2.Settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})),
	greet("a GOAWAY that rules out all", isGone, h2.Settings(), h2.GoAway(0, http2.ErrCodeNo)).takenElsewhere(),

	responding("PUSH_PROMISE", isBroken, func(id uint32) []byte {
		return append(h2.Frame(http2.FramePushPromise, h2.EndHeaders, id, append(h2.Word(2), h2.Block(h2.RequestFields("GET", "/")...)...)), goodResponse(id)...)
	}),
	responding("a response on a stream that has not begun", isBroken, func(id uint32) []byte { return append(goodResponse(id+2), goodResponse(id)...) }),
	responding("a response on a stream of the server", isBroken, func(id uint32) []byte { return append(goodResponse(2), goodResponse(id)...) }),
	responding("a response on stream 0", isBroken, func(id uint32) []byte { return append(goodResponse(0), goodResponse(id)...) }),
	responding("DATA before the head", isBroken, func(id uint32) []byte { return append(h2.Data(id, 0, []byte("x")), goodResponse(id)...) }),
	responding("empty DATA before the head", isBroken, func(id uint32) []byte { return append(h2.Data(id, h2.EndStream, nil), goodResponse(id)...) }),
	responding("interim responses", isGood, func(id uint32) []byte {
		return append(bytes.Repeat(h2.Heads(id, 0, h2.Block(":status", "103")), 3), goodResponse(id)...)
	}),
	responding("many interim responses", isGood, func(id uint32) []byte {
		return append(bytes.Repeat(h2.Heads(id, 0, h2.Block(":status", "103")), 1000), goodResponse(id)...)
	}),
	responding("endless interim responses", isBroken, func(id uint32) []byte {
		return append(bytes.Repeat(h2.Heads(id, 0, h2.Block(":status", "103")), 100_000), goodResponse(id)...)
	}),
	responding("an interim response that ends", isBroken, func(id uint32) []byte { return h2.Heads(id, h2.EndStream, h2.Block(":status", "100")) }),
	responding("no status", isMalformed, func(id uint32) []byte { return h2.Heads(id, h2.EndStream, h2.Block("x", "y")) }),
	responding("a status behind fields", isMalformed, func(id uint32) []byte { return h2.Heads(id, h2.EndStream, h2.Block("x", "y", ":status", "200")) }),
	responding("endless empty CONTINUATION", isBroken, func(id uint32) []byte {
		return append(h2.Frame(http2.FrameHeaders, 0, id, h2.Block(":status", "200")), bytes.Repeat(h2.Frame(http2.FrameContinuation, 0, id, nil), 10_000)...)
	}),
	responding("endless long CONTINUATION", isBroken, func(id uint32) []byte {
		return append(h2.Frame(http2.FrameHeaders, 0, id, h2.Block(":status", "200")),
			bytes.Repeat(h2.Frame(http2.FrameContinuation, 0, id, h2.Block("a", strings.Repeat("x", 16<<10-10))), 100)...)
	}),
	responding("a frame within a head", isBroken, func(id uint32) []byte {
		return append(h2.Frame(http2.FrameHeaders, 0, id, h2.Block(":status", "200")), h2.Frame(http2.FramePing, 0, 0, make([]byte, 8))...)
	}),
	responding("a bomb", isTooLarge, func(id uint32) []byte {
		long := h2.Block("a", strings.Repeat("x", 4000))
		long[0] = 0x40
		return h2.Heads(id, h2.EndStream, slices.Concat(h2.Block(":status", "200"), long, bytes.Repeat([]byte{0xbe}, 10_000)))
	}),
	responding("many fields", isTooLarge, func(id uint32) []byte {
		return h2.Heads(id, h2.EndStream, append(h2.Block(":status", "200"), bytes.Repeat(h2.Block("a", "b"), 10_000)...))
	}),
	responding("a broken header block", isBroken, func(id uint32) []byte { return h2.Heads(id, h2.EndStream, []byte{0x88, 0xfe}) }),
	responding("a huge frame", isBroken, func(id uint32) []byte { return []byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, byte(id)} }),
	responding("a body short of its length", isBroken, func(id uint32) []byte {
		return append(okHead(id, 0, "content-length", "5"), h2.Data(id, h2.EndStream, []byte("good"))...)
	}),
	responding("a body past its length", isBroken, func(id uint32) []byte {
		return append(okHead(id, 0, "content-length", "3"), h2.Data(id, h2.EndStream, []byte("good"))...)
	}),
	responding("no body in spite of its length", isBroken, func(id uint32) []byte { return okHead(id, h2.EndStream, "content-length", "3") }),
	responding("trailers without an end", isBroken, func(id uint32) []byte { return append(okHead(id, 0), h2.Heads(id, 0, h2.Block("a", "b"))...) }),
	responding("a pseudo-header field in trailers", isBroken, func(id uint32) []byte {
		return slices.Concat(okHead(id, 0), h2.Data(id, 0, []byte("x")), h2.Heads(id, h2.EndStream, h2.Block(":status", "200")))
	}),
	responding("more behind the end", isGood, func(id uint32) []byte { return append(goodResponse(id), h2.Data(id, 0, []byte("x"))...) }),
	responding("a reset behind the end", isGood, func(id uint32) []byte { return append(goodResponse(id), h2.Reset(id, http2.ErrCodeCancel)...) }),
	responding("WINDOW_UPDATE behind the end", isGood, func(id uint32) []byte { return append(goodResponse(id), h2.WindowUpdate(id, 1)...) }),
	responding("too wide a window", isBroken, func(id uint32) []byte { return append(h2.WindowUpdate(id, 1<<31-1), goodResponse(id)...) }),
	responding("too wide a window of the connection", isBroken, func(id uint32) []byte { return append(h2.WindowUpdate(0, 1<<31-1), goodResponse(id)...) }),
	responding("WINDOW_UPDATE of 0", isBroken, func(id uint32) []byte { return append(h2.WindowUpdate(id, 0), goodResponse(id)...) }),
	responding("WINDOW_UPDATE of 0 of the connection", isBroken, func(id uint32) []byte { return append(h2.WindowUpdate(0, 0), goodResponse(id)...) }),
	responding("some PING", isGood, func(id uint32) []byte {
		return append(bytes.Repeat(h2.Frame(http2.FramePing, 0, 0, make([]byte, 8)), 20), goodResponse(id)...)
	}),
	responding("floods of PING", isBroken, func(id uint32) []byte { return bytes.Repeat(h2.Frame(http2.FramePing, 0, 0, make([]byte, 8)), 10_000) }),
	responding("floods of SETTINGS", isBroken, func(id uint32) []byte { return bytes.Repeat(h2.Settings(), 10_000) }),
	responding("floods of empty DATA", isBroken, func(id uint32) []byte { return append(okHead(id, 0), bytes.Repeat(h2.Data(id, 0, nil), 10_000)...) }),
	responding("floods of unknown frames", isBroken, func(id uint32) []byte { return bytes.Repeat(h2.Frame(0xf0, 0, 0, nil), 50_000) }),

	responding("GOAWAY that spares the request", isGood, func(id uint32) []byte { return append(h2.GoAway(id, http2.ErrCodeNo), goodResponse(id)...) }),
	responding("GOAWAY again and again", isGood, func(id uint32) []byte {
		return append(bytes.Repeat(h2.GoAway(1<<31-1, http2.ErrCodeNo), 20), goodResponse(id)...)
	}),
	responding("floods of GOAWAY", isBroken, func(id uint32) []byte { return bytes.Repeat(h2.GoAway(1<<31-1, http2.ErrCodeNo), 50_000) }),
	responding("GOAWAY with rising ids", isGone+"|"+isBroken, func(id uint32) []byte {
		return slices.Concat(h2.GoAway(0, http2.ErrCodeNo), h2.GoAway(id, http2.ErrCodeNo), goodResponse(id))
	}).takenElsewhere(),
	responding("GOAWAY that rules the request out", isGone, func(id uint32) []byte { return h2.GoAway(id-1, http2.ErrCodeNo) }).takenElsewhere(),
	responding("GOAWAY of an error that rules the request out", isGone, func(id uint32) []byte { return h2.GoAway(id-1, http2.ErrCodeInternal) }).takenElsewhere(),
	respondingOnce("GOAWAY of an error that does not", isReset, func(id uint32) []byte { return h2.GoAway(id, http2.ErrCodeInternal) }),
	h2Endpoint{name: "no stream is allowed", want: isConnect, connected: func(p *h2.Peer) bool {
		return p.Send(h2.Settings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}), h2.SettingsAck())
	}}.takenElsewhere(),
	{name: "an early response", want: isGood, early: true, requested: func(p *h2.Peer, id uint32) bool {
		return p.Send(goodResponse(id), h2.Reset(id, http2.ErrCodeNo))
	}},
	{name: "a window below 0", want: isGood, connected: func(p *h2.Peer) bool {
		return p.Send(h2.Settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}), h2.SettingsAck())
	}, early: true, requested: func(p *h2.Peer, id uint32) bool {
		_ = p.Until("1000 bytes", func(h *h2.Heard) bool { return h.Streams[id].Length == 1000 || h.Streams[id].Ended })
		p.Send(h2.Settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), h2.WindowUpdate(id, 1000), h2.WindowUpdate(id, 1000))
		_ = p.Until("2000 bytes", func(h *h2.Heard) bool { return h.Streams[id].Length == 2000 || h.Streams[id].Ended })
		p.Send(h2.Settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}), h2.WindowUpdate(id, 1<<20))
		_ = p.Until("the rest", func(h *h2.Heard) bool { return h.Streams[id].Ended })
		return p.Send(goodResponse(id))
	}},
}
