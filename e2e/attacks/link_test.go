package attacks

import (
	"bytes"
	"context"
	"crypto/rand"
	encoding "encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// As much of the link protocol (protocol/link/README.md) as its abuse needs. The codec of
// protocol/link would not write what is wrong.
const (
	linkRequest  = 1
	linkResponse = 2
	linkData     = 3
	linkCredit   = 4
	linkCancel   = 5
	linkPing     = 8
	linkPong     = 9
	linkDefine   = 11
	linkMore     = 0x20

	linkWindow  = 262144 // what a sidecar takes before it gives CREDIT
	linkPayload = 16000  // fits a frame

	roleDialer, roleAcceptor = 1, 2
)

func linkPreface(role byte, window uint64) []byte { return linkPrefaceWith(role, window, 0) }

func linkPrefaceWith(role byte, window, features uint64) []byte {
	var settings []byte
	for _, v := range []uint64{16384, window, 4096, features} {
		settings = encoding.AppendUvarint(settings, v)
	}
	return slices.Concat([]byte("\x8dRML"), []byte{role, 1, 1, byte(len(settings))}, settings)
}

func linkFrame(kind byte, stream int, payload []byte) []byte {
	b := encoding.AppendUvarint([]byte{kind}, uint64(stream))
	return append(encoding.AppendUvarint(b, uint64(len(payload))), payload...)
}

// linkHead is the head of a POST, with its length in front of it.
func linkHead(path string) []byte {
	head := encoding.AppendUvarint([]byte{0, 0, 0}, 5_000_000) // the time that is left, in microseconds
	for _, text := range []string{"local", "POST", path, "local"} {
		head = append(encoding.AppendUvarint(head, uint64(2*len(text))), text...)
	}
	head = append(head, 0)
	return append(encoding.AppendUvarint(nil, uint64(len(head))), head...)
}

// linkFrames is a frame for each stream from 1 on.
func linkFrames(streams int, frame func(stream int) []byte) (all []byte) {
	for i := 1; i <= streams; i++ {
		all = append(all, frame(i)...)
	}
	return all
}

// linkHalves are messages without an end.
func linkHalves(count int) []byte {
	return linkFrames(count, func(i int) []byte {
		head := linkHead("/compute")
		first := append(encoding.AppendUvarint(nil, attackMessage), head...)
		return linkFrame(linkRequest|linkMore, i, append(first, make([]byte, linkPayload-len(head)-10)...))
	})
}

func noise() []byte {
	b := make([]byte, 4096)
	_, _ = rand.Read(b)
	return b
}

// onLink is an attack of a crowd of links. No series counts what stops it.
func onLink(name string, c crowd) attack {
	return onLinkMeeting(name, "", c)
}

var hello = linkPreface(roleDialer, linkWindow)

// What a peer does to a link listener.
var linkAttacks = []attack{
	onLink("garbage", crowd{size: 50, first: noise(), then: noise(), pause: 50 * time.Millisecond}),
	onLink("garbage for frames", crowd{size: 50, first: slices.Concat(hello, noise()), pause: 50 * time.Millisecond}),
	onLink("prefaces only", crowd{size: 300, first: hello, pause: 200 * time.Millisecond}),
	// A frame without an end.
	onLink("half frames", crowd{size: 300, first: append(slices.Clone(hello), linkFrame(linkRequest, 1, make([]byte, linkPayload))[:20]...),
		then: []byte("x"), pause: 200 * time.Millisecond}),
	// As many messages in reassembly as are allowed, none with its end.
	onLink("half messages", crowd{size: 4, first: slices.Concat(hello, linkHalves(4095)), pause: 50 * time.Millisecond}),
	{name: "link responses without CREDIT", run: withholdCredit},
	// More names than the table holds, and the longest ones.
	onLink("floods of DEFINE", crowd{size: 50, first: append(slices.Clone(hello), linkFrames(200, func(i int) []byte {
		return linkFrame(linkDefine, i, append(fmt.Append(nil, i), bytes.Repeat([]byte("x"), 60)...))
	})...), pause: 50 * time.Millisecond}),
	onLink("floods of PING", crowd{size: 10, first: hello, then: bytes.Repeat(linkFrame(linkPing, 7, nil), 20_000),
		pause: 10 * time.Millisecond, deaf: true}),
	// Requests that are cancelled at once, by a peer that reads nothing.
	onLink("rapid resets", crowd{size: 10, first: append(slices.Clone(hello), linkFrames(20_000, func(i int) []byte {
		return append(linkFrame(linkRequest, i, linkHead("/compute")), linkFrame(linkCancel, i, nil)...)
	})...), pause: 50 * time.Millisecond, deaf: true}),
	onLink("floods of CANCEL", crowd{size: 10, first: hello, then: bytes.Repeat(linkFrame(linkCancel, 7, nil), 20_000),
		pause: 10 * time.Millisecond, deaf: true}),
}

// withholdCredit asks for long responses on four links and gives no CREDIT for them.
// The links answer PING, so that the sidecar must not take them for dead.
func withholdCredit(ctx context.Context, m *attackMesh) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for pauseFor(ctx, 50*time.Millisecond) {
				withholdCreditOnce(ctx, m.link)
			}
		})
	}
	all.Wait()
}

// withholdCreditOnce is one of the links.
func withholdCreditOnce(ctx context.Context, addr string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	r := requester{nc: nc, credit: linkWindow}
	r.run()
}

// requester is a link that sends requests as far as it is given CREDIT.
type requester struct {
	nc       net.Conn
	received []byte
	credit   int
}

// run returns when the link ends.
func (r *requester) run() {
	if _, err := r.nc.Write(linkPreface(roleDialer, 16384)); err != nil {
		return
	}
	for i := 1; i < 500; i++ {
		if err := r.request(i, 60_000); err != nil {
			return
		}
	}
	for r.receive() == nil {
	}
}

func (r *requester) request(stream, size int) error {
	head := linkHead("/echo")
	first := append(encoding.AppendUvarint(nil, uint64(len(head)+size)), head...)
	if _, err := r.nc.Write(linkFrame(linkRequest|linkMore, stream, first)); err != nil {
		return err
	}
	for size > 0 {
		n := min(size, linkPayload)
		for r.credit < n {
			if err := r.receive(); err != nil {
				return err
			}
		}
		if _, err := r.nc.Write(linkFrame(linkData, stream, make([]byte, n))); err != nil {
			return err
		}
		r.credit, size = r.credit-n, size-n
	}
	return nil
}

// receive takes the CREDIT that arrives, and answers PING. The preface of the sidecar
// comes first.
func (r *requester) receive() error {
	b := make([]byte, 64<<10)
	n, err := r.nc.Read(b)
	if err != nil {
		return err
	}
	r.received = append(r.received, b[:n]...)
	if len(r.received) >= 8 && r.received[0] == 0x8d {
		r.received = r.received[min(8+int(r.received[7]), len(r.received)):]
	}
	for {
		kind, stream, payload, n := parseLinkFrame(r.received)
		if n == 0 {
			return nil
		}
		switch kind {
		case linkCredit:
			given, _ := encoding.Uvarint(payload)
			r.credit += int(given)
		case linkPing:
			if _, err := r.nc.Write(linkFrame(linkPong, stream, nil)); err != nil {
				return err
			}
		}
		r.received = r.received[n:]
	}
}

// parseLinkFrame returns the first frame of b and its length, which is 0 if b does not
// hold all of it.
func parseLinkFrame(b []byte) (kind byte, stream int, payload []byte, n int) {
	if len(b) == 0 {
		return 0, 0, nil, 0
	}
	id, k := encoding.Uvarint(b[1:])
	if k <= 0 {
		return 0, 0, nil, 0
	}
	length, l := encoding.Uvarint(b[1+k:])
	if start := 1 + k + l; l > 0 && len(b)-start >= int(length) {
		n = start + int(length)
		return b[0] & 0x1f, int(id), b[start:n], n
	}
	return 0, 0, nil, 0
}

// endpoint is an attack of an endpoint: clients send large bodies to it, and it answers
// each link of the sidecar with first, and then with then.
func endpoint(name, meets string, first, then []byte) attack {
	return attack{name: "dialled " + name, run: func(ctx context.Context, m *attackMesh) {
		_ = m.endpoint.SetDeadline(time.Time{})
		stop := context.AfterFunc(ctx, func() { _ = m.endpoint.SetDeadline(time.Now()) })
		defer stop()
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() {
			for {
				nc, err := m.endpoint.AcceptTCP()
				if err != nil {
					return
				}
				all.Go(func() { misuse(ctx, nc, first, then, 100*time.Millisecond, false) })
			}
		})
		clients := crowd{size: 60, first: postOf("/evil", 900_000, 900_000), pause: 100 * time.Millisecond}
		clients.run(ctx, m.http)
	}, meets: refusedSeries(meets)}
}

var reply = linkPreface(roleAcceptor, 16384)

// What an endpoint does to the sidecar that has dialled it.
var endpointAttacks = []attack{
	endpoint("silence", "upstream-connect", nil, nil),
	endpoint("garbage", "upstream-connect", noise(), noise()),
	endpoint("no credit", "deadline", reply, nil),
	endpoint("floods of PING", "deadline", reply, bytes.Repeat(linkFrame(linkPing, 7, nil), 5000)),
	endpoint("responses without end", "upstream-reset", reply, linkFrames(49, func(i int) []byte {
		head := append(encoding.AppendUvarint(nil, attackMessage), 5, 0, 0, 200, 1, 0)
		return linkFrame(linkResponse|linkMore, i, append(head, make([]byte, 8000)...))
	})),
}
