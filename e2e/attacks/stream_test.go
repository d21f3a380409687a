package attacks

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/protocol/link"
)

// attackStreams is limits.streams of the attacked sidecars.
const attackStreams = 256

// aStream is the head of a request whose body is far longer than limits.message, but not than the
// application takes.
var aStream = postHead("/compute", 16<<20, "")

// overLink is what a peer sends first on a connection that carries a stream.
func overLink(kind link.StreamKind, first []byte) []byte {
	return append(link.AppendStream(nil, &link.Stream{Kind: kind, TimeLeft: time.Minute}), first...)
}

// drips is a crowd that sends bodies a byte at a time.
func drips(size int, first []byte) crowd {
	return crowd{size: size, first: slices.Concat(first, []byte("x")), then: []byte("x"), pause: 500 * time.Millisecond}
}

// What clients do with streams to an HTTP listener.
var streamAttacks = []attack{
	onHTTP("drips up, past the limit of streams", refusedSeries("too-many-streams"), drips(3*attackStreams, aStream)),
	onHTTP("deaf readers of streams", "", crowd{size: 8, first: postOf("/echo", 16<<20, 16<<20), pause: 500 * time.Millisecond, deaf: true}),
}

// TestSlowStreams is TestAttacks with streams that move more slowly than timeouts.min_rate. A sidecar averages a rate over 10 s,
// so each attack has sidecars of its own, and the attacks wait at the same time.
func TestSlowStreams(t *testing.T) {
	consumer := func(m *attackMesh) *harness.Process { return m.consumer }
	provider := func(m *attackMesh) *harness.Process { return m.provider }
	tooSlow := refusedSeries("body-too-slow")
	for _, c := range []struct {
		attack
		target func(*attackMesh) *harness.Process
	}{
		{onHTTP("drips up", tooSlow, drips(attackStreams/2, aStream)), consumer},
		{attack{name: "slow readers", run: readSlowly, meets: tooSlow}, consumer},
		{onLinkMeeting("drips up", tooSlow, drips(attackStreams/2, overLink(link.StreamHTTP, aStream))), provider},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newAttackMesh(t, usualLimits, nil)
			m.attack(t, &c.attack, c.target(m), m.levels())
		})
	}
}

// readSlowly asks for long responses and reads less of them than timeouts.min_rate.
func readSlowly(ctx context.Context, m *attackMesh) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for pauseFor(ctx, 100*time.Millisecond) {
				d := net.Dialer{Control: smallBuffer}
				nc, err := d.DialContext(ctx, "tcp", m.http)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { nc.Close() })
				go func() { _, _ = nc.Write(postOf("/echo", 16<<20, 16<<20)) }()
				for err == nil && pauseFor(ctx, 3*time.Second) {
					_, err = nc.Read(make([]byte, 2500))
				}
				stop()
				nc.Close()
			}
		})
	}
	all.Wait()
}

// What a peer does with streams to a link listener.
var linkStreamAttacks = []attack{
	onLinkMeeting("opaque streams to a service of requests", refusedSeries("no-route"),
		crowd{size: 3 * attackStreams, first: overLink(link.StreamOpaque, []byte("GET /compute HTTP/1.1\r\nHost: a\r\n\r\n")),
			pause: 200 * time.Millisecond}),
	onLinkMeeting("drips up, past the limit of streams", refusedSeries("too-many-streams"),
		drips(3*attackStreams, overLink(link.StreamHTTP, aStream))),
	onLinkMeeting("streams without a head", refusedSeries("too-many-streams"),
		drips(3*attackStreams, overLink(link.StreamHTTP, []byte(unfinishedHead)))),
}

func onLinkMeeting(name, meets string, c crowd) attack {
	return attack{name: "link " + name, run: func(ctx context.Context, m *attackMesh) { c.run(ctx, m.link) }, meets: meets}
}
