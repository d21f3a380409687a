package dubbo_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// framesIn decodes b: the frames that are complete, and whether more may follow.
func framesIn(b []byte) (frames []dubbo.Frame, more bool) {
	for {
		f, n, err := dubbo.Decode(b, math.MaxInt32)
		if n == 0 {
			return frames, err == nil
		}
		frames, b = append(frames, f), b[n:]
	}
}

// FuzzDownstreamDubbo says anything to a Dubbo listener: each complete call that
// wants an answer gets one, and so does each heartbeat; the provider gets only
// what is well-formed, and nothing is left behind.
func FuzzDownstreamDubbo(f *testing.F) {
	call := proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "1.0", "g", "m", "x"))
	json := proxytest.CallFrame(2, dubbo.Fastjson, proxytest.FastjsonCall(proxytest.DemoService, "", "", "m", "x"))
	oneWay := bytes.Clone(call)
	oneWay[2] &^= 0x40
	beat := dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 3)
	answer := bytes.Clone(call)
	answer[2] &^= 0x80
	for _, s := range [][]byte{call, json, oneWay, beat, answer, call[:9], call[:40], dubbo.AppendReadOnly(nil, dubbo.Fastjson),
		bytes.Join([][]byte{call, json, oneWay, beat, answer, call}, nil), proxytest.CallFrame(4, 21, []byte("x")), []byte("GET / HTTP/1.1\r\n\r\n"),
		proxytest.CallFrame(5, dubbo.Hessian2, make([]byte, 2000)), append(bytes.Clone(beat), 0xda, 0xbc)} {
		f.Add(s, uint64(0))
		f.Add(s, uint64(1))
	}
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, Apps: 1, Direct: seed%2 == 1, Limits: "limits: {message: 1KiB}"})
		m.W.Options.Cut = 0.7
		m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: []byte("ok")}
		}
		p := &proxytest.Peer{Says: said}
		m.Clients.Do(func() { m.Clients.Dial(proxytest.EgressDubbo, time.Second, p) })
		m.W.RunUntil(func() bool { return p.Ended }, 45*time.Second)
		due := map[int64]int{}
		asked, _ := framesIn(said)
		for _, f := range asked {
			if f.Request && f.TwoWay && (!f.Event || len(f.Body) <= 1024) {
				due[f.ID]++
			}
		}
		heard, whole := framesIn(p.Heard)
		for _, f := range heard {
			if due[f.ID]--; due[f.ID] < 0 && !p.Ended { // one that does not end is refused
				t.Errorf("an answer too many: %+v", f)
			}
		}
		if !whole {
			t.Errorf("the sidecar's answers are malformed: %x", p.Heard)
		}
		for id, n := range due {
			if n > 0 && !p.Ended {
				t.Errorf("call %d is not answered", id)
			}
		}
		m.Settled()
	})
}

// FuzzUpstreamDubbo has a provider say anything, under the ids of the calls it
// got (IDIDIDID): each caller gets exactly one answer.
func FuzzUpstreamDubbo(f *testing.F) {
	id := int64(binary.BigEndian.Uint64([]byte("IDIDIDID")))
	value := dubbo.AppendFrame(nil, &dubbo.Frame{Serialization: dubbo.Fastjson, Status: dubbo.StatusOK, ID: id, Body: []byte("1\n\"x\"\n")})
	hessian := dubbo.AppendFrame(nil, &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: id, Body: []byte("\x94\x01xHZ")})
	full := dubbo.AppendFailure(nil, dubbo.Hessian2, id, dubbo.StatusPoolExhausted, "a", "b")
	long := dubbo.AppendFrame(nil, &dubbo.Frame{Serialization: dubbo.Hessian2, Status: dubbo.StatusOK, ID: id, Body: make([]byte, 2000)})
	beat := dubbo.AppendHeartbeat(nil, dubbo.Hessian2, id)
	down := dubbo.AppendReadOnly(nil, dubbo.Hessian2)
	for _, s := range [][]byte{value, hessian, full, long, beat, down, value[:20], []byte("junk"),
		append(bytes.Clone(value), hessian...), bytes.Join([][]byte{beat, down, long, value, value}, nil)} {
		for seed := range uint64(4) {
			f.Add(s, seed)
		}
	}
	f.Fuzz(func(t *testing.T, said []byte, seed uint64) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, Apps: 1, Direct: seed%4 >= 2, Limits: "limits: {message: 1KiB}",
			Service: ", timeout: 1s, idempotent: true, retry: {attempts: 2, on: [connect, refused, reset, 5xx]}", Provider: ", timeout: 1s"})
		m.W.Options.Cut = 0.7
		m.Apps[0].Stop()
		m.W.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-raw"), func() loop.Stream {
			p := &proxytest.Peer{ClosesAfterReply: seed%2 == 1}
			done := 0
			p.Reply = func(heard []byte) (out []byte) {
				frames, _ := framesIn(heard)
				for _, f := range frames[done:] {
					if !f.Request || f.Event {
						continue
					}
					id := binary.BigEndian.AppendUint64(nil, uint64(f.ID))
					out = append(out, bytes.ReplaceAll(said, []byte("IDIDIDID"), id)...)
				}
				done = len(frames)
				return out
			}
			return p
		})
		var all []*proxytest.Call
		for range 3 {
			k := m.FormCall("m", "x")
			m.Do(k)
			all = append(all, k)
		}
		c := m.DialDubbo(proxytest.EgressDubbo)
		for range 3 {
			c.CallHessian("m", "x")
		}
		m.Finish(all...)
		m.RunUntil("all answers", func() bool { return len(c.Responses) == 3 })
		m.Settled()
	})
}
