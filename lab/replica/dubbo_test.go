package replica

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// dubboCall is a two-way call in fastjson with one argument.
func dubboCall(id int, method, arg string) []byte {
	body := fmt.Sprintf("\"2.0.2\"\n\"some.Service\"\nnull\n%q\n\"Ljava/lang/Object;\"\n%s\n{}\n", method, arg)
	b := []byte{0xda, 0xbb, 0xc6, 0}
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// oneWay makes a call one-way.
func oneWay(call []byte) []byte {
	call[2] &^= 0x40
	return call
}

// dubboAnswer reads a response.
func dubboAnswer(t *testing.T, c io.Reader) (status byte, id int, body string) {
	t.Helper()
	head := must.Read(t, c, 16)
	b := must.Read(t, c, int(binary.BigEndian.Uint32(head[12:])))
	return head[3], int(binary.BigEndian.Uint64(head[4:])), string(b)
}

func dialDubbo(t *testing.T, r *Replica) net.Conn {
	c, _ := dial(t, r)
	return c
}

func TestDubboResponses(t *testing.T) {
	r := start(t, Options{Protocol: Dubbo, Mode: Fast}, nil)
	// hash("abc") in hessian2.
	hessian, err := hex.DecodeString("dabbc20000000000000000010000001d" + "05322e302e32" + "0170" + "05302e302e30" + "0468617368" + "0153" + "03616263" + "485a")
	if err != nil {
		t.Fatal(err)
	}
	hessian[15] = byte(len(hessian) - 16)
	unknown := dubboCall(1, "echo", "1")
	unknown[2] = 0xc0 | 21
	for _, tt := range []struct {
		name   string
		call   []byte
		status byte
		body   string
	}{
		{"hash", dubboCall(1, "hash", `"abc"`), 20, "1\n96354\n"},
		{"hash of a number", dubboCall(1, "hash", "7"), 20, "1\n7\n"},
		{"echo", dubboCall(1, "echo", `{"a":[1,null]}`), 20, "1\n{\"a\":[1,null]}\n"},
		{"null", dubboCall(1, "echo", "null"), 20, "2\n"},
		{"hessian2", hessian, 20, "\x91\xd5\x78\x62"},
		{"unknown serialization", unknown, 40, "\x30\x1cdubbo: unknown serialization"},
		{"one-way, then echo", append(oneWay(dubboCall(9, "echo", "1")), dubboCall(1, "echo", "2")...), 20, "1\n2\n"},
		{"heartbeat", []byte("\xda\xbb\xe6\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x05null\n"), 20, "null\n"},
		{"one-way heartbeat, then echo", append([]byte("\xda\xbb\xa6\x00\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x05null\n"), dubboCall(1, "echo", "2")...), 20, "1\n2\n"},
	} {
		for _, perByte := range []bool{false, true} {
			c := dialDubbo(t, r)
			chunks := []string{string(tt.call)}
			if perByte {
				chunks = strings.Split(string(tt.call), "")
			}
			for _, s := range chunks {
				io.WriteString(c, s)
			}
			if status, id, body := dubboAnswer(t, c); status != tt.status || id != 1 || body != tt.body {
				t.Errorf("%s: status %d, id %d, %q; want %d, %q", tt.name, status, id, body, tt.status, tt.body)
			}
		}
	}
}

func TestMalformedDubbo(t *testing.T) {
	r := start(t, Options{Protocol: Dubbo, Mode: Fast}, nil)
	c := dialDubbo(t, r)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestDubboPool(t *testing.T) {
	clock := newFakeClock()
	r := start(t, Options{Protocol: Dubbo, Mode: Stall, Workers: 3}, clock)
	c, other := dialDubbo(t, r), dialDubbo(t, r)
	for id := range 2 {
		c.Write(dubboCall(id, "echo", fmt.Sprint(id)))
	}
	c.Write(oneWay(dubboCall(2, "echo", "2"))) // takes a worker like any other
	clock.awaitAsleep(t, 3)
	other.Write(dubboCall(7, "echo", "7"))
	if status, id, body := dubboAnswer(t, other); status != 100 || id != 7 || !strings.Contains(body, "EXHAUSTED") {
		t.Errorf("status %d, id %d, %q", status, id, body)
	}
	if s := r.Stats(); s.InFlight != 3 || s.Refused != 1 || s.Served != 0 {
		t.Errorf("stats %+v", s)
	}
	clock.set(clock.now().Add(50*time.Millisecond - 1))
	clock.awaitAsleep(t, 3)
	clock.set(clock.now().Add(1))
	got := map[int]string{}
	for range 2 {
		status, id, body := dubboAnswer(t, c)
		if status != 20 {
			t.Errorf("status %d", status)
		}
		got[id] = body
	}
	if len(got) != 2 || got[0] != "1\n0\n" || got[1] != "1\n1\n" {
		t.Errorf("responses %v", got)
	}
}

// TestDubboWorkerIsFree checks that a client with a response is never refused its next call.
func TestDubboWorkerIsFree(t *testing.T) {
	const workers, calls = 50, 5000
	r := start(t, Options{Protocol: Dubbo, Mode: Stall, Workers: workers, Median: time.Millisecond}, nil)
	c := dialDubbo(t, r)
	next := 0
	send := func() {
		c.Write(dubboCall(next, "echo", fmt.Sprint(next)))
		next++
	}
	for range workers {
		send()
	}
	for range calls {
		if status, id, body := dubboAnswer(t, c); status != 20 || body != fmt.Sprintf("1\n%d\n", id) {
			t.Fatalf("call %d of %d: status %d, %q", id, next, status, body)
		}
		send()
	}
}
