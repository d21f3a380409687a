package mesh

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
)

// Types of the link's frames, and where the length of a preface's settings is
// (protocol/link/README.md).
const (
	frameRequest  = 1
	frameResponse = 2
	frameCancel   = 5

	settingsLength = 7
)

// breakage breaks an invariant outside the product: between two sidecars, or in a count.
type breakage struct {
	name string
	make func() tampering
	want string // part of the violation that must be found
}

var faults = []breakage{
	{"a CANCEL is lost", func() tampering {
		return onLinks(func(*link) linkTap {
			return linkTap{out: func(f frame) frame {
				if f.kind == frameCancel {
					return frame{}
				}
				return f
			}}
		})
	}, "after it was over"},

	{"a pending count is not released", func() tampering {
		return tampering{begin: func(m *mesh) {
			m.consumers[0].proc.Workers()[0].Open("compute", func(*race.Stream, race.Target, *fault.Failure) {})
		}}
	}, "counts 1 attempts at"},

	{"a hedge goes to an endpoint that was tried", func() tampering {
		return tampering{loop: func(_ int, l loop.Loop) loop.Loop {
			return &detour{Loop: l, from: providerHost(1) + ":15006", to: providerHost(0) + ":15006"}
		}}
	}, "which had been tried"},

	{"two responses are swapped", func() tampering {
		return onLinks(func(l *link) linkTap { return linkTap{out: l.note, in: l.swap} })
	}, "got the response to"},

	{"more is sent than the budget allows", func() tampering {
		return tampering{begin: func(m *mesh) {
			service := *m.consumers[0].cfg.Services["compute"]
			service.Hedge.Budget /= 100
			m.consumers[0].cfg.Services["compute"] = &service
		}}
	}, "over "},
}

// TestFaultsAreCaught checks that the invariants catch each fault, in a mesh that has no
// violations without it.
func TestFaultsAreCaught(t *testing.T) {
	spec := NewSpec()
	spec.Seed, spec.Load, spec.Duration = 3, 3000, 3*time.Second
	spec.StallEvery, spec.StallFor = 300*time.Millisecond, 40*time.Millisecond
	spec.Consumer["idempotent"] = "true"
	spec.Consumer["hedge"] = "{mode: on, delay: 3ms, budget: 0.2}"
	spec.Provider["max_concurrency"] = "4"
	if r := Run(spec); len(r.Violations) > 0 || r.HedgesWon == 0 {
		t.Fatalf("without a fault: %d hedges won, violations %q", r.HedgesWon, r.Violations)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			found := run(spec, f.make()).Violations
			for _, wrong := range found {
				if strings.Contains(wrong, f.want) && strings.HasPrefix(wrong, "seed 3, ") {
					return
				}
			}
			t.Errorf("not caught: violations %q", found)
		})
	}
}

// TestLongTurnIsCaught checks the bound of a turn directly, since no fault from outside
// makes a turn long.
func TestLongTurnIsCaught(t *testing.T) {
	m := newMesh(NewSpec(), tampering{})
	m.journal.turn(m.consumers[0].loops[0], 10, callbackFloor+10*callbacksPerReady)
	if len(m.journal.violations) != 0 {
		t.Errorf("violations %q", m.journal.violations)
	}
	m.journal.turn(m.consumers[0].loops[0], 10, callbackFloor+10*callbacksPerReady+1)
	if len(m.journal.violations) != 1 {
		t.Errorf("violations %q", m.journal.violations)
	}
}

// detour is a loop that dials the address to in place of from.
type detour struct {
	loop.Loop
	from, to string
}

func (d *detour) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	if addr == d.from {
		addr = d.to
	}
	d.Loop.Dial(addr, timeout, r)
}

// frame is a frame of a link, or with kind 0 the preface.
type frame struct {
	kind    byte // type and flags
	id      uint64
	payload []byte
}

// linkTap changes the frames of a link in each direction. A nil function changes nothing,
// and the zero frame drops one.
type linkTap struct{ out, in func(f frame) frame }

// onLinks taps the links of all consumers.
func onLinks(tap func(l *link) linkTap) tampering {
	return tampering{loop: func(_ int, l loop.Loop) loop.Loop { return &tappedLoop{Loop: l, tap: tap} }}
}

type tappedLoop struct {
	loop.Loop
	tap func(l *link) linkTap
}

func (t *tappedLoop) Dial(addr string, timeout time.Duration, r loop.Receiver) {
	l := &link{Receiver: r, swapped: map[uint64]uint64{}}
	l.tap = t.tap(l)
	t.Loop.Dial(addr, timeout, l)
}

// link is both ends' view of a connection to a provider.
type link struct {
	loop.Receiver
	loop.Conn
	tap     linkTap
	out, in splitter

	waiting []uint64 // streams without a response
	swapped map[uint64]uint64
}

func (l *link) OnOpen(c loop.Conn) {
	l.Conn = c
	l.Receiver.OnOpen(l)
}

func (l *link) OnData(b []byte) {
	if b = l.in.pass(b, l.tap.in); len(b) > 0 {
		l.Receiver.OnData(b)
	}
}

func (l *link) Write(b []byte) { l.Conn.Write(l.out.pass(b, l.tap.out)) }

func (l *link) WriteParts(parts [][]byte) { l.Write(bytes.Join(parts, nil)) }

// note records the requests in flight.
func (l *link) note(f frame) frame {
	if f.kind&0x1f == frameRequest {
		l.waiting = append(l.waiting, f.id)
	}
	return f
}

// swap exchanges the responses of a request and of the next one.
func (l *link) swap(f frame) frame {
	if f.kind != frameResponse {
		return f
	}
	if other, ok := l.swapped[f.id]; ok {
		f.id = other
		return f
	}
	for i, id := range l.waiting {
		if id == f.id && i+1 < len(l.waiting) {
			next := l.waiting[i+1]
			l.swapped[next] = id
			l.waiting = l.waiting[i+2:]
			f.id = next
			break
		}
	}
	return f
}

// splitter cuts one direction of a link into frames.
type splitter struct {
	begun bool
	held  []byte
}

func (s *splitter) pass(b []byte, change func(f frame) frame) (out []byte) {
	if change == nil {
		return b
	}
	s.held = append(s.held, b...)
	for {
		f, n := s.next()
		if n == 0 {
			return out
		}
		whole := s.held[:n:n]
		s.held = s.held[n:]
		if f.kind == 0 {
			out = append(out, whole...)
			continue
		}
		if f = change(f); f.kind != 0 {
			out = append(out, f.kind)
			out = binary.AppendUvarint(out, f.id)
			out = binary.AppendUvarint(out, uint64(len(f.payload)))
			out = append(out, f.payload...)
		}
	}
}

// next returns the frame at the start of held, and its length in bytes, which is 0 if the
// frame is incomplete.
func (s *splitter) next() (f frame, n int) {
	if !s.begun {
		if len(s.held) <= settingsLength || len(s.held) <= settingsLength+int(s.held[settingsLength]) {
			return f, 0
		}
		s.begun = true
		return f, settingsLength + 1 + int(s.held[settingsLength])
	}
	if len(s.held) < 3 {
		return f, 0
	}
	id, k := binary.Uvarint(s.held[1:])
	if k <= 0 {
		return f, 0
	}
	length, j := binary.Uvarint(s.held[1+k:])
	if n = 1 + k + j + int(length); j <= 0 || len(s.held) < n {
		return f, 0
	}
	return frame{kind: s.held[0], id: id, payload: s.held[1+k+j : n : n]}, n
}
