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

// FuzzDownstreamDubbo sends any bytes to a Dubbo listener. Each complete call that expects
// a response, and each heartbeat, must get one. The provider must get only well-formed
// calls, and nothing may be left in use.
func FuzzDownstreamDubbo(f *testing.F) {
	call := proxytest.CallFrame(1, dubbo.Hessian2, proxytest.HessianCall(proxytest.DemoService, "1.0", "g", "m", "x"))
	json := proxytest.CallFrame(2, dubbo.Fastjson, proxytest.FastjsonCall(proxytest.DemoService, "", "", "m", "x"))
	oneWay := bytes.Clone(call)
	oneWay[2] &^= 0x40
	beat := dubbo.AppendHeartbeat(nil, dubbo.Hessian2, 3)
	response := bytes.Clone(call)
	response[2] &^= 0x80
	for _, s := range [][]byte{call, json, oneWay, beat, response, call[:9], call[:40], dubbo.AppendReadOnly(nil, dubbo.Fastjson),
		bytes.Join([][]byte{call, json, oneWay, beat, response, call}, nil), proxytest.CallFrame(4, 21, []byte("x")), []byte("GET / HTTP/1.1\r\n\r\n"),
		proxytest.CallFrame(5, dubbo.Hessian2, make([]byte, 2000)), append(bytes.Clone(beat), 0xda, 0xbc)} {
		f.Add(s, uint64(0))
		f.Add(s, uint64(1))
	}
	f.Fuzz(func(t *testing.T, sent []byte, seed uint64) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, Apps: 1, OneHop: seed%2 == 1, Limits: "limits: {message: 1KiB}"})
		m.W.Options.Cut = 0.7
		m.Apps[0].Respond = func(f *dubbo.Frame) *dubbo.Frame {
			return &dubbo.Frame{Serialization: f.Serialization, Status: dubbo.StatusOK, Body: []byte("ok")}
		}
		p := &proxytest.Peer{Says: sent}
		m.Clients.Do(func() { m.Clients.Dial(proxytest.EgressDubbo, time.Second, p) })
		m.W.RunUntil(func() bool { return p.Ended }, 45*time.Second)
		due := map[int64]int{}
		calls, _ := framesIn(sent)
		for _, f := range calls {
			if f.Request && f.TwoWay && (!f.Event || len(f.Body) <= 1024) {
				due[f.ID]++
			}
		}
		received, whole := framesIn(p.Heard)
		for _, f := range received {
			if due[f.ID]--; due[f.ID] < 0 && !p.Ended { // an incomplete call may be refused as well
				t.Errorf("one response too many: %+v", f)
			}
		}
		if !whole {
			t.Errorf("the sidecar's responses are malformed: %x", p.Heard)
		}
		for id, n := range due {
			if n > 0 && !p.Ended {
				t.Errorf("call %d has no response", id)
			}
		}
		m.Settled()
	})
}

// FuzzUpstreamDubbo lets a provider send any bytes, in which IDIDIDID stands for the id of
// the call. Each caller must get exactly one response.
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
	f.Fuzz(func(t *testing.T, sent []byte, seed uint64) {
		m := proxytest.NewDubboMesh(t, proxytest.DubboOptions{Seed: seed, Apps: 1, OneHop: seed%4 >= 2, Limits: "limits: {message: 1KiB}",
			Service: "timeout: 1s, idempotent: true, retry: {attempts: 2, on: [connect, refused, reset, 5xx]}", Provider: "timeout: 1s"})
		m.W.Options.Cut = 0.7
		m.Apps[0].Stop()
		m.W.Net.Listen(m.Apps[0].Addr, m.W.Loop("10.0.1.1-raw"), func() loop.Receiver {
			p := &proxytest.Peer{ClosesAfterReply: seed%2 == 1}
			done := 0
			p.Reply = func(received []byte) (out []byte) {
				frames, _ := framesIn(received)
				for _, f := range frames[done:] {
					if !f.Request || f.Event {
						continue
					}
					id := binary.BigEndian.AppendUint64(nil, uint64(f.ID))
					out = append(out, bytes.ReplaceAll(sent, []byte("IDIDIDID"), id)...)
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
		m.RunUntil("all responses", func() bool { return len(c.Responses) == 3 })
		m.Settled()
	})
}
