package link

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// model runs a link with random messages, sizes and splits. It knows the expected
// result: each message arrives unchanged, or its sender withdrew it.
type model struct {
	t    *testing.T
	rnd  *rand.Rand
	d, a *side
	own  owners

	next      uint64
	sent      map[uint64]string // requests by id, as shown
	withdrawn map[uint64]bool   // requests cancelled before any part was sent
	cancelled map[uint64]bool   // requests with a CANCEL
	acked     map[uint64]bool
	answered  map[uint64]string // responses by id, as shown
	dropped   map[uint64]bool   // dropped responses

	wire [2][]byte // in flight: to the acceptor, to the dialer
}

func newModel(t *testing.T, seed uint64) *model {
	rnd := rand.New(rand.NewPCG(seed, 2))
	s := Settings{MaxFrame: MinFrame + rnd.Uint32N(MaxFrame-MinFrame+1), Window: rnd.Uint32N(MaxWindow + 1)}
	m := &model{
		t: t, rnd: rnd, sent: map[uint64]string{}, withdrawn: map[uint64]bool{}, cancelled: map[uint64]bool{},
		acked: map[uint64]bool{}, answered: map[uint64]string{}, dropped: map[uint64]bool{},
	}
	m.d, m.a = newSide(Dialer, s, ReaderLimits{}), newSide(Acceptor, s, ReaderLimits{})
	m.a.h.cancelled = func(id uint64) {
		if m.answered[id] != "" && !m.dropped[id] && rnd.IntN(2) == 0 {
			m.a.w.Drop(id)
			m.dropped[id] = true
		}
		m.a.w.CancelAck(id, CancelDropped)
	}
	m.d.h.acked = func(id uint64) {
		if m.acked[id] || !m.cancelled[id] {
			t.Errorf("CANCEL_ACK of %d: cancelled %t, acked before %t", id, m.cancelled[id], m.acked[id])
		}
		m.acked[id] = true
	}
	return m
}

// noise is the text from which names, values and bodies are cut.
var noise = func() []byte {
	rnd := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = 'a' + byte(rnd.IntN(26))
	}
	return b
}()

func (m *model) bytes(most int) []byte {
	at := m.rnd.IntN(len(noise) - most)
	return bytes.Clone(noise[at : at+m.rnd.IntN(most+1)])
}

// body returns a body that is mostly short, sometimes about as long as a frame, and
// rarely long.
func (m *model) body() []byte {
	switch m.rnd.IntN(10) {
	case 0:
		return m.bytes(300 << 10)
	case 1, 2:
		return m.bytes(20 << 10)
	}
	return m.bytes(300)
}

func (m *model) headers() (hs []protocol.Header) {
	names := []string{"content-type", "accept", "x-a", "traceparent", "cookie", "user-agent"}
	for range m.rnd.IntN(8) {
		hs = append(hs, headers(names[m.rnd.IntN(len(names))], fmt.Sprint("value ", m.rnd.IntN(9)))...)
	}
	if m.rnd.IntN(4) == 0 {
		hs = append(hs, typical(m.rnd.Int()).Headers...)
	}
	if m.rnd.IntN(40) == 0 {
		hs = append(hs, protocol.Header{Name: []byte("x-long"), Value: m.bytes(40 << 10)})
	}
	return hs
}

func (m *model) request() {
	m.next++
	req := &protocol.Request{
		Service: fmt.Append(nil, "service-", m.rnd.IntN(3)), Method: []byte("POST"),
		Path: append([]byte("/"), m.bytes(40)...), Authority: []byte("host"),
		Headers: m.headers(), Trailers: m.headers(), Body: m.body(),
		Attempt: uint8(m.rnd.IntN(3)), Hedge: m.rnd.IntN(2) == 0, Idempotent: m.rnd.IntN(2) == 0, OneWay: m.rnd.IntN(2) == 0,
		Timed: m.rnd.IntN(2) == 0,
	}
	switch m.rnd.IntN(4) {
	case 0:
		req.Batch = true
	case 1:
		req.Alone = true
	case 2:
		req.Tied = req.Hedge
	}
	if m.rnd.IntN(2) == 0 {
		req.Hold = time.Duration(m.rnd.IntN(1000)) * time.Microsecond
	}
	ttl := time.Duration(m.rnd.IntN(1000)) * time.Microsecond
	m.sent[m.next] = showRequest(req, ttl)
	m.d.w.Request(m.next, req, ttl, m.own.next())
}

// respond sends the response to a random request that has arrived.
func (m *model) respond() {
	for id := range m.a.h.requests {
		if m.answered[id] == "" {
			resp := &protocol.Response{Status: 200 + m.rnd.IntN(300), RPC: uint8(m.rnd.IntN(3)), Headers: m.headers(), Trailers: m.headers(),
				Body: m.body(), DeclaredLength: -1, Batch: m.rnd.IntN(2) == 0}
			m.answered[id] = showResponse(resp, protocol.CodecHTTP)
			m.a.w.Response(id, resp, protocol.CodecHTTP, m.own.next())
			return
		}
	}
}

func (m *model) cancel() {
	if m.next == 0 {
		return
	}
	id := 1 + m.rnd.Uint64N(m.next)
	if m.cancelled[id] || m.withdrawn[id] || m.d.h.responses[id] != nil {
		return
	}
	if m.d.w.Cancel(id) {
		m.cancelled[id] = true
		m.d.r.Forget(id)
	} else {
		m.withdrawn[id] = true
	}
}

func (m *model) dropResponse() {
	for id := range m.answered {
		if !m.dropped[id] && m.d.h.responses[id] == nil && m.cancelled[id] {
			m.a.w.Drop(id)
			m.dropped[id] = true
			return
		}
	}
}

// move delivers a random part of the bytes in flight.
func (m *model) move() {
	for i, e := range []*side{m.a, m.d} {
		n := m.rnd.IntN(len(m.wire[i]) + 1)
		if m.rnd.IntN(3) == 0 {
			n = min(n, 5)
		}
		feed(m.t, e, m.wire[i][:n])
		m.wire[i] = m.wire[i][n:]
		if m.rnd.IntN(2) == 0 {
			e.w.Credit(e.r.TakeConsumed())
		}
	}
}

func (m *model) flush() {
	budget := m.rnd.IntN(40 << 10)
	m.wire[0] = m.d.w.Append(m.wire[0], budget)
	m.wire[1] = m.a.w.Append(m.wire[1], budget)
}

func (m *model) run(steps int) {
	for range steps {
		switch m.rnd.IntN(12) {
		case 0, 1, 2:
			m.request()
		case 3, 4:
			m.respond()
		case 5:
			m.cancel()
		case 6:
			m.dropResponse()
		case 7, 8:
			m.flush()
		default:
			m.move()
		}
	}
	for m.d.w.Ready() || m.a.w.Ready() || len(m.wire[0])+len(m.wire[1]) > 0 {
		m.flush()
		for i, e := range []*side{m.a, m.d} {
			feed(m.t, e, m.wire[i])
			m.wire[i] = nil
			e.w.Credit(e.r.TakeConsumed())
		}
	}
}

func (m *model) check() {
	for id, want := range m.sent {
		got := m.a.h.requests[id]
		switch {
		case got == nil && !m.withdrawn[id] && !m.cancelled[id]:
			m.t.Errorf("request %d was lost", id)
		case got != nil && m.withdrawn[id]:
			m.t.Errorf("request %d was withdrawn and arrived", id)
		case got != nil && showRequest(got, m.a.h.ttls[id]) != want:
			m.t.Errorf("request %d\n got %s\nwant %s", id, showRequest(got, m.a.h.ttls[id]), want)
		}
		if m.cancelled[id] != m.acked[id] {
			m.t.Errorf("request %d: cancelled %t, acked %t", id, m.cancelled[id], m.acked[id])
		}
	}
	for id, want := range m.answered {
		got := m.d.h.responses[id]
		switch {
		case got == nil && !m.dropped[id] && !m.cancelled[id]:
			m.t.Errorf("response %d was lost", id)
		case got != nil && showResponse(got, m.d.h.codecs[id]) != want:
			m.t.Errorf("response %d\n got %s\nwant %s", id, showResponse(got, m.d.h.codecs[id]), want)
		}
	}
	for _, e := range []*side{m.d, m.a} {
		if e.w.Queued() != 0 || len(e.w.data.all) != 0 || e.w.data.sending.n+e.w.data.batch.n != 0 || e.w.data.held != 0 {
			m.t.Errorf("a Writer still holds %d bytes, %d messages", e.w.Queued(), len(e.w.data.all))
		}
		if e.r.Buffered() != 0 || len(e.r.assembly.messages) != 0 {
			m.t.Errorf("a Reader still holds %d bytes, %d messages", e.r.Buffered(), len(e.r.assembly.messages))
		}
	}
	if m.own.given != m.own.released {
		m.t.Errorf("%d of %d owners were released", m.own.released, m.own.given)
	}
}

func TestRandomMessages(t *testing.T) {
	total := [3]int{}
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			m := newModel(t, seed)
			m.run(400)
			m.check()
			total[0] += len(m.a.h.requests)
			total[1] += len(m.withdrawn)
			total[2] += len(m.cancelled)
		})
	}
	if slices.Min(total[:]) < 100 {
		t.Errorf("arrived, withdrawn, cancelled: %v: too few to test anything", total)
	}
}

// Close releases every owner once, even with messages in flight.
func TestCloseOwners(t *testing.T) {
	for seed := range uint64(20) {
		m := newModel(t, seed)
		for range 200 {
			m.request()
			m.respond()
			m.flush()
			m.move()
		}
		for range 2 {
			m.d.w.Close()
			m.a.w.Close()
		}
		m.d.w.Request(m.next+1, typical(1), 0, m.own.next()) // after Close
		if m.own.given != m.own.released || m.d.w.Queued() != 0 || m.d.w.Ready() {
			t.Fatalf("seed %d: %d of %d released, %d queued", seed, m.own.released, m.own.given, m.d.w.Queued())
		}
		m.a.r.Close()
		if m.a.r.Buffered() != 0 || m.a.r.Feed([]byte("anything")) != nil {
			t.Fatal("a closed Reader still takes input")
		}
	}
}
