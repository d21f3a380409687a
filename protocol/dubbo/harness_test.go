package dubbo

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// show returns the fields of inv as text.
func show(inv *Invocation) string {
	s := fmt.Sprintf("dubbo %q path %q version %q method %q types %q group %q timeout %v",
		inv.DubboVersion, inv.Path, inv.Version, inv.Method, inv.Types, inv.Group, inv.Timeout)
	if inv.TraceParent != nil {
		s += fmt.Sprintf(" trace %q", inv.TraceParent)
	}
	return s
}

// form returns the request for a form.
func form(body string, headers ...protocol.Header) *protocol.Request {
	return &protocol.Request{
		Method: []byte("POST"), Path: []byte("/"), Body: []byte(body),
		Headers: append(headers, header("Content-Type", "application/x-www-form-urlencoded")),
	}
}

// jsonCall returns the request for JSON posted to a path.
func jsonCall(path, body string, headers ...protocol.Header) *protocol.Request {
	return &protocol.Request{Method: []byte("POST"), Path: []byte(path), Body: []byte(body), Headers: headers}
}

func header(name, value string) protocol.Header {
	return protocol.Header{Name: []byte(name), Value: []byte(value)}
}

func parsed(t testing.TB, req *protocol.Request) *Call {
	t.Helper()
	var c Call
	if err := c.Parse(req); err != nil {
		t.Fatalf("%s: %v", req.Body, err)
	}
	return &c
}

func parsedForm(t testing.TB, body string) *Call {
	t.Helper()
	return parsed(t, form(body))
}

// frameOf returns the call as a frame.
func frameOf(t testing.TB, c *Call, serialization byte) Frame {
	t.Helper()
	b, err := c.AppendFrame(nil, serialization, 7)
	if err != nil {
		t.Fatal(err)
	}
	f, n, err := Decode(b, len(b))
	if err != nil || n != len(b) || f.ID != 7 || !f.Request || !f.TwoWay || f.Serialization != serialization {
		t.Fatalf("%d of %d bytes, %+v, %v", n, len(b), f, err)
	}
	return f
}
