package dubbo

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
)

// benchForm is a typical call of a consumer, with an argument of half the maximum
// length.
var benchForm = "interface=" + vectorInterface + "&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter=" +
	strings.Repeat("abcdefghijklmnopqrstuvwxyz012345", 16)

// benchRequest returns the call with typical headers.
func benchRequest() *protocol.Request {
	req := form(benchForm, header("Accept", "*/*"), header("User-Agent", "AHC/2.1"))
	req.Headers[2], req.Headers[0] = req.Headers[0], req.Headers[2]
	return req
}

func BenchmarkFormToFastjson(b *testing.B) { benchmarkForm(b, Fastjson) }
func BenchmarkFormToHessian2(b *testing.B) { benchmarkForm(b, Hessian2) }

func benchmarkForm(b *testing.B, serialization byte) {
	var c Call
	req := benchRequest()
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Parse(req); err != nil {
			b.Fatal(err)
		}
		if _, err := c.AppendFrame(dst, serialization, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplyFastjson(b *testing.B) { benchmarkReply(b, fastjsonResponse) }
func BenchmarkReplyHessian2(b *testing.B) { benchmarkReply(b, hessian2ResponseAttachments) }

func benchmarkReply(b *testing.B, wire string) {
	bytes := unhexed(b, wire)
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		f, _, err := Decode(bytes, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := AppendReply(dst, &f, true, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInvocationFastjson(b *testing.B) { benchmarkInvocation(b, Fastjson) }
func BenchmarkInvocationHessian2(b *testing.B) { benchmarkInvocation(b, Hessian2) }

func benchmarkInvocation(b *testing.B, serialization byte) {
	var inv Invocation
	f := frameOf(b, parsedForm(b, benchForm), serialization)
	b.ReportAllocs()
	for b.Loop() {
		if err := inv.Parse(f.Serialization, f.Body); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAllocations checks that no step allocates for a forwarded message, and for a call
// that came as a form.
func TestAllocations(t *testing.T) {
	dst := make([]byte, 0, 16<<10)
	var c Call
	for _, text := range []string{"", "abc", "%22a+b%22%0A%F0%9F%98%80", strings.Repeat("x", 4000), strings.Repeat("%C3%A9", 1000)} {
		req := form(vectorForm + text)
		for _, serialization := range []byte{Fastjson, Hessian2} {
			checkNoAllocations(t, "form call", func() {
				if err := c.Parse(req); err != nil {
					t.Fatal(err)
				}
				if _, err := c.AppendFrame(dst, serialization, 1); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	typed := form("interface=a&method=b&parameterTypesString=IJDZLjava/util/List;&parameter=1&parameter=2&parameter=1.5&parameter=true&parameter=[1,{\"a\":\"b\"}]")
	for _, serialization := range []byte{Fastjson, Hessian2} {
		checkNoAllocations(t, "typed form call", func() {
			if err := c.Parse(typed); err != nil {
				t.Fatal(err)
			}
			if _, err := c.AppendFrame(dst, serialization, 1); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, wire := range []string{
		fastjsonResponse, hessian2Response, hessian2ResponseAttachments, "dabb0614000000000000000100000008310a22615c6e220a",
	} {
		b := unhexed(t, wire)
		for _, bare := range []bool{true, false} {
			checkNoAllocations(t, "response", func() {
				f, _, err := Decode(b, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := AppendReply(dst, &f, bare, 1<<20); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	var inv Invocation
	objects := append([]byte("\x052.0.2\x01a\x00\x01b\x05La/B;C\x03a.B\x91\x01f\x60\x7a\x60\x90\x60\x91"), "H\x05group\x01gZ"...)
	checkNoAllocations(t, "invocation with objects", func() {
		if err := inv.Parse(Hessian2, objects); err != nil || string(inv.Group) != "g" {
			t.Fatal(err)
		}
	})
	for _, wire := range []string{fastjsonCall, hessian2Call} {
		b := unhexed(t, wire)
		checkNoAllocations(t, "invocation", func() {
			f, _, err := Decode(b, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if err := inv.Parse(f.Serialization, f.Body); err != nil {
				t.Fatal(err)
			}
			AppendFrame(dst, &f)
		})
	}
	beat := Frame{Request: true, TwoWay: true, Event: true, Serialization: Hessian2, Body: []byte("N")}
	checkNoAllocations(t, "heartbeats and failures", func() {
		AppendHeartbeat(dst, Hessian2, 1)
		AppendHeartbeatAnswer(dst, &beat)
		AppendFailure(dst, Fastjson, 1, StatusServerError, "no-endpoint", "the service has no endpoint")
		AppendFailure(dst, Hessian2, 1, StatusServerError, "no-endpoint", "the service has no endpoint")
	})
}

func checkNoAllocations(t *testing.T, what string, f func()) {
	t.Helper()
	f()
	if n := testing.AllocsPerRun(100, f); n != 0 && !racetest.Enabled { // the detector allocates
		t.Errorf("%s: %v allocations", what, n)
	}
}
