package attacks

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/e2e/harness/h2"
	"golang.org/x/net/http2"
)

// mostFrames is how often a flood repeats its frames at most. Each limit is far below.
const mostFrames = 200_000

// calmed sends first, and then what next returns again and again. The connection must end with
// ENHANCE_YOUR_CALM.
func calmed(name string, first []byte, next func(i int) []byte) h2Way {
	return h2Way{name, func(_ context.Context, p *h2.Peer) error {
		p.Send(h2.Hello(), h2.SettingsAck(), first)
		p.Repeat(mostFrames, next)
		return p.UntilEnd((*h2.Heard).Calmed)
	}}
}

func always(b []byte) func(int) []byte { return func(int) []byte { return b } }

// calmedOnStreams is calmed with a stream for each time.
func calmedOnStreams(name string, next func(stream uint32) []byte) h2Way {
	return calmed(name, nil, func(i int) []byte { return next(uint32(2*i + 1)) })
}

// floodSeries counts connections that were closed for one flood.
func floodSeries(limit string) string {
	return fmt.Sprintf("remora_http2_errors_total{reason=\"h2_flood_%s\"}", limit)
}

var unfinishedHeaders = h2.Frame(http2.FrameHeaders, h2.EndStream, 1, h2.Block(h2.RequestFields("GET", "/compute")...))

// http2Floods are frames that cost more than they are worth.
var http2Floods = []h2Attack{
	{name: "rapid resets", meets: floodSeries("resets"), ways: []h2Way{
		calmedOnStreams("heads", func(id uint32) []byte {
			return append(h2.Get(id, "/compute"), h2.Reset(id, http2.ErrCodeCancel)...)
		}),
		// DATA counts as useful work, but not that of requests that are given up.
		calmedOnStreams("heads and DATA", func(id uint32) []byte {
			return slices.Concat(h2.Post(id, "/compute"), h2.Data(id, 0, []byte("x")), h2.Reset(id, http2.ErrCodeCancel))
		}),
		calmedOnStreams("complete requests", func(id uint32) []byte {
			return slices.Concat(h2.Post(id, "/compute"), h2.Data(id, h2.EndStream, []byte("x")), h2.Reset(id, http2.ErrCodeCancel))
		}),
		calmed("a hundred at a time", nil, func(i int) (b []byte) {
			for j := range 100 {
				b = append(b, h2.Get(uint32(2*(100*i+j)+1), "/compute")...)
			}
			for j := range 100 {
				b = append(b, h2.Reset(uint32(2*(100*i+j)+1), http2.ErrCodeNo)...)
			}
			return b
		}),
	}},
	{name: "provoked resets", meets: floodSeries("provoked"), ways: []h2Way{
		calmedOnStreams("WINDOW_UPDATE of 0", func(id uint32) []byte {
			return append(h2.Post(id, "/compute"), h2.WindowUpdate(id, 0)...)
		}),
		calmedOnStreams("too wide windows", func(id uint32) []byte {
			return append(h2.Post(id, "/compute"), h2.WindowUpdate(id, 1<<31-1)...)
		}),
		calmedOnStreams("too wide windows of complete requests", func(id uint32) []byte {
			return append(h2.Get(id, "/compute"), h2.WindowUpdate(id, 1<<31-1)...)
		}),
		// DATA on a stream that is over ends the connection at once, so the requests must take a while.
		calmedOnStreams("DATA behind the end", func(id uint32) []byte {
			return slices.Concat(h2.Post(id, "/compute"), h2.Data(id, h2.EndStream, []byte("{}")), h2.Data(id, 0, []byte("x")))
		}),
		calmedOnStreams("DATA past Content-Length", func(id uint32) []byte {
			return append(h2.Post(id, "/compute", "content-length", "1"), h2.Data(id, 0, []byte("xx"))...)
		}),
		calmedOnStreams("an end before Content-Length", func(id uint32) []byte {
			return append(h2.Post(id, "/compute", "content-length", "3"), h2.Data(id, h2.EndStream, []byte("xx"))...)
		}),
		calmedOnStreams("names in upper case", func(id uint32) []byte { return h2.Post(id, "/compute", "Upper", "x") }),
		calmedOnStreams("fields of a connection", func(id uint32) []byte { return h2.Post(id, "/compute", "connection", "close") }),
		calmedOnStreams("trailers without an end", func(id uint32) []byte {
			return append(h2.Post(id, "/compute"), h2.Heads(id, 0, h2.Block("a", "b"))...)
		}),
		calmedOnStreams("streams over the limit", func(id uint32) []byte { return h2.Post(id, "/compute") }),
		{"streams over a limit that is not acknowledged", func(_ context.Context, p *h2.Peer) error {
			p.Send(h2.Hello())
			p.Repeat(mostFrames, func(i int) []byte { return h2.Post(uint32(2*i+1), "/compute") })
			return p.UntilEnd((*h2.Heard).Calmed)
		}},
	}},
	{name: "CONTINUATION", meets: floodSeries("continuations"), ways: []h2Way{
		calmed("empty", unfinishedHeaders, always(h2.Frame(http2.FrameContinuation, 0, 1, nil))),
		calmed("tiny", unfinishedHeaders, always(h2.Frame(http2.FrameContinuation, 0, 1, []byte{0x82}))),
		calmed("huge", unfinishedHeaders, always(h2.Frame(http2.FrameContinuation, 0, 1, h2.Block("a", strings.Repeat("x", 16<<10-10))))),
		calmed("one endless field", h2.Frame(http2.FrameHeaders, 0, 1, []byte{0, 1, 'a', 0x7f, 0xff, 0xff, 0xff, 0x7f}),
			always(h2.Frame(http2.FrameContinuation, 0, 1, bytes.Repeat([]byte("x"), 16<<10)))),
	}},
	{name: "PING", meets: floodSeries("pings"), ways: []h2Way{
		calmed("PING", nil, always(h2.Frame(http2.FramePing, 0, 0, make([]byte, 8)))),
	}},
	{name: "SETTINGS", meets: floodSeries("settings"), ways: []h2Way{
		calmed("empty", nil, always(h2.Settings())),
		calmed("table sizes", nil, func(i int) []byte {
			return h2.Settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(i%2) * (1<<32 - 1)})
		}),
		calmed("initial windows", h2.Post(1, "/compute"), func(i int) []byte {
			return h2.Settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i%2) * (1<<31 - 1)})
		}),
		calmed("unknown", nil, always(h2.Settings(make([]http2.Setting, 2000)...))),
	}},
	{name: "empty DATA", meets: floodSeries("empty_data"), ways: []h2Way{
		calmed("empty", h2.Post(1, "/compute"), always(h2.Data(1, 0, nil))),
		calmed("padded", h2.Post(1, "/compute"), always(h2.Data(1, http2.FlagDataPadded, append([]byte{100}, make([]byte, 100)...)))),
	}},
	{name: "frames without use", meets: floodSeries("others"), ways: []h2Way{
		calmed("WINDOW_UPDATE of the connection", nil, always(h2.WindowUpdate(0, 1))),
		calmed("WINDOW_UPDATE of a stream", h2.Post(1, "/compute"), always(h2.WindowUpdate(1, 1))),
		calmedOnStreams("PRIORITY", func(id uint32) []byte { return h2.Frame(http2.FramePriority, 0, id, append(h2.Word(0), 1)) }),
		calmed("unknown", nil, always(h2.Frame(0xfa, 0, 0, make([]byte, 100)))),
		calmed("PING acknowledgements", nil, always(h2.Frame(http2.FramePing, http2.FlagPingAck, 0, make([]byte, 8)))),
		calmed("RST_STREAM of a stream that is over", append(h2.Get(1, "/compute"), h2.Reset(1, http2.ErrCodeCancel)...),
			always(h2.Reset(1, http2.ErrCodeCancel))),
	}},
}
