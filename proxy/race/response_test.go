package race

import (
	"slices"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
)

// newResponses returns the responses of a shard that needs no loop.
func newResponses() *Responses {
	p := &Responses{Shard: &shard.Shard{Process: new(shard.Process)}}
	p.Shard.Buffers.Ahead = 1 << 20
	return p
}

// TestBorrowedMarks: the fields of a borrowed response are never indexed if the filter says so, and no longer once the
// response is used again.
func TestBorrowedMarks(t *testing.T) {
	p := newResponses()
	for _, marked := range []bool{true, false} {
		res := p.New()
		res.Borrow(200, []byte("A: b\r\nContent-Length: 0\r\n"), nil, nil, marked)
		res.Own()
		if len(res.Headers) != 1 || res.Headers[0].NeverIndexed != marked || protocol.Find(res.Headers, "a") == nil {
			t.Errorf("marked %t: %v", marked, res.Headers)
		}
		res.Release()
	}
}

// TestOwn: a borrowed response becomes one with memory of its own, but for what others share. All of it is given back.
func TestOwn(t *testing.T) {
	for _, isShared := range []bool{true, false} {
		p := newResponses()
		lines, body := []byte("A: b\r\nContent-Length: 4\r\nC: d: e\r\n"), []byte("text")
		var m *shard.Memory
		if isShared {
			m = new(shard.Memory)
			m.Share(p.Shard, nil)
		}
		res := p.New()
		res.Borrow(200, lines, body, m, false)
		if n := res.Size(); n != len(lines)+len(body) {
			t.Errorf("shared %t: %d bytes before", isShared, n)
		}
		res.Own()
		clear(lines)
		if !isShared {
			clear(body)
		}
		if string(res.Body) != "text" || len(res.Headers) != 2 || string(protocol.Find(res.Headers, "a")) != "b" || string(protocol.Find(res.Headers, "c")) != "d: e" {
			t.Errorf("shared %t: %q %q", isShared, res.Headers, res.Body)
		}
		if res.Fields != nil || res.Shares() != isShared || res.Buffered() < res.Held || res.Held == 0 {
			t.Errorf("shared %t: %d bytes held, %d with its part", isShared, res.Held, res.Buffered())
		}
		held := res.Held
		if res.Own(); res.Held != held || len(res.Headers) != 2 {
			t.Errorf("shared %t: changed by a second call", isShared)
		}
		if res.Release(); res.Held != 0 || p.Shard.Uncounted != 0 || p.Shard.Process.Budget.Held() != 0 {
			t.Errorf("shared %t: %d bytes are held after the release", isShared, p.Shard.Uncounted)
		}
		if again := p.New(); again != res || again.Shares() || again.Size() != 0 || len(again.Headers) != 0 || again.DeclaredLength != -1 {
			t.Errorf("shared %t: the next response is %+v", isShared, again)
		}
	}
}

// TestAlias: responses with the same memory hold equal parts, in whatever order they are released.
func TestAlias(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		p := newResponses()
		first := p.New()
		first.HeadBuffer = p.Shard.Buffers.GetRoom(100)
		first.HeadBuffer.B = append(first.HeadBuffer.B, "NameValuebody"...)
		text := first.HeadBuffer.B
		first.Status, first.Headers = 201, []protocol.Header{
			{Name: text[:4], Value: text[4:9]}, {Name: protocol.NameDate, Value: first.date[:]}, {Name: text[:1]}, // without a value
		}
		first.Body, first.DeclaredLength, first.Codec = text[9:], 4, protocol.CodecHTTP+1
		copy(first.date[:], "now")
		first.Charge()
		alone := first.Buffered()
		const size = len("NameValuebody") + len("Date") + shard.DateLen + len("N")
		all := []*Response{first, first.Alias(), nil}
		all[2] = all[1].Alias()
		for i, res := range all {
			if res.Status != 201 || string(res.Body) != "body" || res.DeclaredLength != 4 || res.Codec != first.Codec || res.Held != first.Held || string(protocol.Find(res.Headers, "name")) != "Value" {
				t.Errorf("%d: %+v", i, res.Response)
			}
			if date := protocol.Find(res.Headers, "date"); string(date[:3]) != "now" || &date[0] != &res.date[0] {
				t.Errorf("%d: the date is that of another", i)
			}
			if res.Size() != size || res.Buffered() >= alone || res.Buffered() <= res.Held || !res.Shares() {
				t.Errorf("%d: %d bytes, %d held, %d by one alone", i, res.Size(), res.Buffered(), alone)
			}
		}
		for _, i := range order {
			all[i].Release()
		}
		if p.Shard.Uncounted != 0 {
			t.Errorf("%v: %d bytes are held after the release", order, p.Shard.Uncounted)
		}
	}
}

// TestSizes: a response is as long as its text, or as what has arrived of a stream. All of its memory counts.
func TestSizes(t *testing.T) {
	buffer := func(text string) *bytebufferpool.ByteBuffer { return &bytebufferpool.ByteBuffer{B: []byte(text)} }
	for name, c := range map[string]struct {
		res  Response
		want int
	}{
		"a head and a body":          {Response{HeadBuffer: buffer("head"), BodyBuffer: buffer("body!")}, 9},
		"a head of one byte":         {Response{HeadBuffer: buffer("h")}, 1},
		"a stream":                   {Response{HeadBuffer: buffer("head"), Source: &StreamSource{Buffer: buffer("body!")}}, 9},
		"a response of this sidecar": {Response{Response: protocol.Response{Reason: []byte("OK"), Body: []byte("text")}}, 6},
	} {
		res := &c.res
		if res.shard = newResponses().Shard; res.Size() != c.want {
			t.Errorf("%s: %d bytes, want %d", name, res.Size(), c.want)
		}
		want := protocol.Held(res.HeadBuffer) + protocol.Held(res.BodyBuffer)
		if res.Source != nil {
			want += protocol.Held(res.Source.Buffer)
		}
		if res.Charge(); res.Held != want {
			t.Errorf("%s: %d bytes are held, want %d", name, res.Held, want)
		}
	}
}

// TestRelease: a response that is released keeps nothing of itself for the next response but the memory of at most 100 fields. It closes a
// stream that nobody took. At most maxFreeResponses free responses are kept.
func TestRelease(t *testing.T) {
	p, socket := newResponses(), &resets{}
	res := p.New()
	if res.DeclaredLength != -1 {
		t.Errorf("a new response has the length %d", res.DeclaredLength)
	}
	res.HeadBuffer, res.BodyBuffer = p.Shard.Buffers.GetRoom(100), p.Shard.Buffers.GetRoom(100)
	res.Headers, res.Trailers = make([]protocol.Header, 101), make([]protocol.Header, 101)
	res.Status, res.Codec, res.GRPC, res.DeclaredLength = 200, protocol.CodecHTTP+1, true, 7
	res.Source = &StreamSource{Socket: socket}
	res.Charge()
	if res.Release(); socket.n != 1 || p.Shard.Uncounted != 0 {
		t.Errorf("the stream is reset %d times, %d bytes are held", socket.n, p.Shard.Uncounted)
	}
	again := p.New()
	if again != res || again.HeadBuffer != nil || again.BodyBuffer != nil || again.Source != nil || again.Codec != protocol.CodecHTTP || again.GRPC ||
		again.Status != 0 || again.DeclaredLength != -1 || cap(again.Headers) > 100 || cap(again.Trailers) > 100 {
		t.Errorf("the next response is %+v, with room for %d and %d fields", again, cap(again.Headers), cap(again.Trailers))
	}
	for _, free := range []int{maxFreeResponses - 1, maxFreeResponses} {
		p.free = make([]*Response, free)
		if (&Response{shard: p.Shard, pool: p}).Release(); len(p.free) != maxFreeResponses {
			t.Errorf("%d free responses become %d", free, len(p.free))
		}
	}
}

// TestReceive: the headers and trailers of an endpoint's response lose those that only a sidecar may set, and get a Date unless they have
// one.
func TestReceive(t *testing.T) {
	s := newScriptedRace(t, 1, func(*config.Service) {})
	now := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	s.shard.Process.WallClock = func() time.Time { return now }
	field := func(name, value string) protocol.Header {
		return protocol.Header{Name: []byte(name), Value: []byte(value)}
	}
	var all []*Response
	s.do(func() {
		for _, dated := range []bool{false, true, false} {
			res := s.race.responses.New()
			res.Headers = append(res.Headers, field("x-remora-load", "1"), field("a", "b"))
			res.Trailers = append(res.Trailers, field("x-remora-load", "1"), field("c", "d"))
			if dated {
				res.Headers = append(res.Headers, field("Date", "then"))
			}
			res.Receive(1)
			all = append(all, res)
			now = now.Add(time.Hour)
		}
	})
	for i, want := range []string{"Wed, 04 Mar 2026 05:06:07 GMT", "then", "Wed, 04 Mar 2026 05:06:07 GMT"} { // the loop's clock stands
		h := all[i].Headers
		if len(h) != 2 || string(h[0].Name) != "a" || !protocol.EqualFold(h[1].Name, "date") || string(h[1].Value) != want || h[1].Valid != (want != "then") {
			t.Errorf("headers %q, want the date %s", h, want)
		}
		if tr := all[i].Trailers; len(tr) != 1 || string(tr[0].Name) != "c" {
			t.Errorf("trailers %q", tr)
		}
	}
}

// TestVia: a response says by which version it came, if the configuration wants that.
func TestVia(t *testing.T) {
	for _, via := range []bool{true, false} {
		for minor, want := range map[int]string{0: "1.0 remora", 1: "1.1 remora"} {
			p := newResponses()
			p.Shard.Via, p.Shard.Process.WallClock = via, nil
			res := p.New()
			res.Headers = []protocol.Header{{Name: []byte("A"), Value: []byte("b")}, {Name: protocol.NameDate, Value: []byte("c")}}
			res.Receive(minor)
			last := res.Headers[len(res.Headers)-1]
			if got := string(protocol.Find(res.Headers, "via")); got != map[bool]string{true: want}[via] || len(res.Headers) < 2 || last.Valid != via {
				t.Errorf("via %t over 1.%d: %q", via, minor, got)
			}
		}
	}
}

// TestNoStream: what is said of a stream that is not there does nothing.
func TestNoStream(t *testing.T) {
	var none *Stream
	none.Connected(200)
	none.NoteCode(0, true)
	none.Close(true, 1, 1)
	if none.Call() || none.OnFirstByte() != nil {
		t.Error("no stream is a call, or awaits its first byte")
	}
}

// TestStreamPolicy: another endpoint may get a stream that none took, unless it may have been seen.
func TestStreamPolicy(t *testing.T) {
	for f, want := range map[*fault.Failure]fault.RetryClass{
		fault.NoEndpoint: fault.NoEndpoint.Retry, fault.Reset: fault.Reset.Retry, fault.Connect: fault.RetryFreeElsewhere,
		fault.Unsupported: fault.RetryFreeElsewhere, fault.NotAllowed: fault.RetryFreeElsewhere, fault.Draining: fault.Draining.Retry, fault.GoAway: fault.GoAway.Retry,
	} {
		if got := streamPolicy.classOf(f); got != want {
			t.Errorf("%s: class %d, want %d", f.Code, got, want)
		}
		if got := (&Policy{}).classOf(f); got != f.Retry {
			t.Errorf("%s of a request: class %d, want %d", f.Code, got, f.Retry)
		}
	}
}

// TestRetryOn: what the list of a route names.
func TestRetryOn(t *testing.T) {
	all := []string{"connect", "refused", "reset", "5xx", "429", "503", "unavailable", "unknown"}
	on := newRetryOn(all)
	if !on.connect || !on.refused || !on.reset || !on.any5xx || !slices.Equal(on.statuses, []int{429, 503}) {
		t.Errorf("%+v", on)
	}
	for code, want := range map[protocol.GRPCCode]bool{
		protocol.GRPCUnavailable: true, protocol.GRPCUnknown: true, protocol.GRPCOther: true, protocol.GRPCOK: false, protocol.GRPCInternal: false,
	} {
		if on.hasCode(code) != want {
			t.Errorf("%s: %t", code, !want)
		}
	}
	for _, c := range []struct {
		on   []string
		res  Response
		want bool
	}{
		{[]string{"5xx"}, Response{Response: protocol.Response{Status: 500}}, true},
		{[]string{"5xx"}, Response{Response: protocol.Response{Status: 499}}, false},
		{[]string{"429"}, Response{Response: protocol.Response{Status: 429}}, true},
		{[]string{"429"}, Response{Response: protocol.Response{Status: 500}}, false},
		{[]string{"internal"}, Response{GRPC: true, Code: protocol.GRPCInternal}, true},
		{[]string{"internal"}, Response{Code: protocol.GRPCInternal}, false},
		{[]string{"internal"}, Response{GRPC: true, Code: protocol.GRPCOther}, false},
	} {
		on := newRetryOn(c.on)
		if got := on.hasResponse(&c.res); got != c.want {
			t.Errorf("%q: status %d, code %s: %t", c.on, c.res.Status, c.res.Code, got)
		}
	}
	for _, list := range [][]string{{"reset"}, {"connect"}, nil} {
		p := NewPolicy(&config.Policy{Retry: config.Retry{Attempts: 3, On: list}}, 1)
		if want := map[bool]int{true: 3}[slices.Contains(list, "reset")]; p.Repeats() != want {
			t.Errorf("%q: %d repeats, want %d", list, p.Repeats(), want)
		}
	}
}

// TestFeeds: media types whose parts are useful at once.
func TestFeeds(t *testing.T) {
	for value, want := range map[string]bool{
		"text/event-stream": true, " Text/Event-Stream ; charset=utf-8": true, "application/x-ndjson": true, "text/event-streams": false, "text/html": false, "": false,
	} {
		res := Response{Response: protocol.Response{Headers: []protocol.Header{{Name: []byte("content-type"), Value: []byte(value)}}}}
		if got := res.IsFeed(); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}
