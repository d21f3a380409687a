package proxytest

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// Apps sets what several applications do, and counts what they get.
type Apps []*App

// Slow makes each application take d for a request.
func (all Apps) Slow(d time.Duration) {
	for _, a := range all {
		a.Delay = func() time.Duration { return d }
	}
}

// SetLognormalDelays gives applications lognormal service times with a median of 1 ms.
func (all Apps) SetLognormalDelays(seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	for _, a := range all {
		a.Delay = func() time.Duration {
			return time.Duration(math.Exp(rnd.NormFloat64()/2) * float64(time.Millisecond))
		}
	}
}

// CountExecutions counts how often applications get a request, by its nonce.
func (all Apps) CountExecutions() map[string]int {
	n := make(map[string]int)
	for _, a := range all {
		a.OnRequest = func(req *protocol.Request) { n[string(protocol.Find(req.Headers, "x-nonce"))]++ }
	}
	return n
}

// CollectHeader collects the values of a header that applications get, one for each
// request.
func (all Apps) CollectHeader(name string) *[]string {
	values := new([]string)
	for _, a := range all {
		a.OnRequest = func(req *protocol.Request) {
			var lines []string
			for _, h := range req.Headers {
				if protocol.EqualFold(h.Name, name) {
					lines = append(lines, string(h.Value))
				}
			}
			*values = append(*values, strings.Join(lines, " and "))
		}
	}
	return values
}

// CrashOnPoison makes each application crash, or call crash, when it reads a request for
// /poison. It returns the number of crashes.
func (all Apps) CrashOnPoison(crash func(a *App)) (killed *int) {
	if crash == nil {
		crash = func(a *App) { a.m.W.At(a.m.W.Now(), func() { a.m.W.Faults.Crash(a.Loop) }) }
	}
	killed = new(int)
	for _, a := range all {
		a.OnRequest = func(req *protocol.Request) {
			if string(req.Path) == "/poison" {
				*killed++
				crash(a)
			}
		}
	}
	return killed
}

// Freeze delays all responses between at and at + d. There must be at least one application.
func (all Apps) Freeze(at, d time.Duration) {
	all[0].m.W.At(at, func() {
		for _, a := range all {
			a.FrozenUntil = max(a.FrozenUntil, at+d)
		}
	})
}
