package attacks

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
)

// crowdSize is the largest number of links that p, under limits.connections or with the file
// descriptors of this machine, lets in without shutting others out. The short form is enough to
// take too much memory if each link takes as much as its peer likes.
func crowdSize(p *harness.Process) int {
	size := p.Metric(`remora_overload_limit{resource="connections"}`) * 9 / 10
	if testing.Short() {
		return min(size, 8_000)
	}
	return size
}

const (
	crowdConnections = 1 << 14 // the default
	crowdBuffered    = 8 << 20 // the smallest limits.buffered that docs/operations.md sizes a container for
)

// fullTable defines as many texts, and as many bytes of text, as a link may have.
var fullTable = linkFrames(128, func(i int) []byte {
	return linkFrame(linkDefine, i-1, bytes.Repeat([]byte{byte('a' + i%26)}, 64))
})

// onCrowd is an attack of a crowd of links that send first and then nothing.
func onCrowd(name string, size int, first []byte) attack {
	c := crowd{size: size, first: first, pause: 5 * time.Second, ramp: 2 * time.Second}
	return attack{
		name:  name,
		run:   func(ctx context.Context, m *attackMesh) { c.run(ctx, m.link) },
		meets: `remora_link_bytes_total{direction="received"}`, by: size * len(first),
	}
}

// TestLinkCrowds attacks as TestAttacks does, with as many links as the default limits
// let in, beside the smallest limits.buffered. Each link holds little.
func TestLinkCrowds(t *testing.T) {
	m := newAttackMesh(t, attackLimits{message: attackMessage, buffered: crowdBuffered, connections: crowdConnections}, nil)
	before := m.levels()
	size := crowdSize(m.provider)
	for _, a := range []attack{
		onCrowd("bare prefaces", size, hello),
		onCrowd("full tables", size, slices.Concat(hello, fullTable)),
	} {
		t.Run(a.name, func(t *testing.T) { m.attack(t, &a, m.provider, before) })
	}
}
