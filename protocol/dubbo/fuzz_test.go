package dubbo

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

var allVectors = []string{fastjsonCall, fastjsonResponse, hessian2Call, hessian2Response, hessian2ResponseAttachments, heartbeatResponse}

// FuzzDecode decodes any bytes. A decoded frame must encode to the same bytes, and no
// prefix of it may be a frame.
func FuzzDecode(f *testing.F) {
	for _, wire := range allVectors {
		f.Add(unhexed(f, wire))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const max = 1 << 10
		frame, n, err := Decode(b, max)
		if err != nil || n == 0 {
			return
		}
		if len(frame.Body) > max || !bytes.Equal(AppendFrame(nil, &frame), b[:n]) {
			t.Errorf("%+v: encodes differently", frame)
		}
		if _, n, err := Decode(b[:n-1], max); n != 0 || err != nil {
			t.Errorf("without its last byte: %d, %v", n, err)
		}
		AppendHeartbeatAnswer(nil, &frame)
		ReadOnly(&frame)
	})
}

// FuzzInvocation parses any bytes as the body of a call.
func FuzzInvocation(f *testing.F) {
	for _, wire := range []string{fastjsonCall, hessian2Call} {
		frame := decoded(f, wire)
		f.Add(frame.Serialization, frame.Body)
	}
	for _, c := range hessianValues {
		f.Add(Hessian2, append([]byte("\x052.0.2\x01a\x00\x01b\x01I"), append(unhexed(f, c.wire), "H\x05group\x01gZ"...)...))
	}
	for _, text := range jsonTexts {
		f.Add(Fastjson, []byte("null\n\"a\"\nnull\n\"m\"\n\"I\"\n"+text+"\n{\"group\":\"g\",\"x\":"+text+"}\n"))
	}
	f.Fuzz(func(t *testing.T, serialization byte, body []byte) {
		var inv Invocation
		if err := inv.Parse(serialization, body); err != nil {
			return
		}
		if len(inv.Path) == 0 || len(inv.Method) == 0 || inv.Timeout < 0 {
			t.Errorf("got %s", show(&inv))
		}
		if _, ok := countTypes(inv.Types); !ok {
			t.Errorf("types %q", inv.Types)
		}
		for i := range body {
			if inv.Parse(serialization, body[:i]) == nil {
				t.Fatalf("the first %d bytes are also a call", i)
			}
		}
		checkSetTimeLeft(t, serialization, body)
	})
}

// FuzzReply converts any bytes as the body of a response. A JSON reply must be valid
// JSON within its limit.
func FuzzReply(f *testing.F) {
	for _, wire := range []string{fastjsonResponse, hessian2Response, hessian2ResponseAttachments} {
		frame := decoded(f, wire)
		f.Add(frame.Serialization, byte(frame.Status), frame.Body)
	}
	for _, c := range hessianValues {
		f.Add(Hessian2, byte(StatusOK), append([]byte{0x91}, unhexed(f, c.wire)...))
	}
	for _, text := range jsonTexts {
		f.Add(Fastjson, byte(StatusOK), []byte("1\n"+text+"\n"))
		f.Add(Fastjson, byte(StatusServiceError), []byte(text+"\n"))
	}
	f.Add(Fastjson, byte(StatusOK), []byte("1\n{{1:[2]}:3,null:{}}\n"))
	f.Add(Fastjson, byte(StatusOK), []byte("0\n{\"@type\":\"a.B\",\"message\":\"m\"}\n"))
	f.Add(Hessian2, byte(StatusOK), []byte("\x90C\x03a.B\x91\x0ddetailMessage\x60\x01m"))
	f.Fuzz(func(t *testing.T, serialization, status byte, body []byte) {
		const max = 1 << 12
		frame := Frame{Serialization: serialization, Status: Status(status), Body: body}
		got, reply, err := AppendReply(nil, &frame, false, max)
		if err == nil && (!utf8.Valid(got) || !json.Valid(got)) {
			t.Errorf("not JSON: %q", got)
		}
		if len(got) > max {
			t.Errorf("%d bytes", len(got))
		}
		if (reply.Status == 200) != (err == nil && reply.Code == "") {
			t.Errorf("got %+v, %v", reply, err)
		}
		if _, _, errBare := AppendReply(nil, &frame, true, 16*max); errBare != nil && err == nil {
			t.Errorf("JSON succeeds, but text fails: %v", errBare)
		}
	})
}

// FuzzCall parses any bytes as a form and as JSON. A parsed call can be encoded, and
// decodes to the same call.
func FuzzCall(f *testing.F) {
	f.Add(true, "/", vectorForm, "a=b")
	f.Add(true, "/", "interface=a&method=b&version=1&group=%67&parameterTypesString=ILjava/util/List;&parameter=1&parameter=[1,+{}]", "")
	f.Add(false, "/a.B/m?group=g", `{"types":["int","Ljava/lang/String;","char[]"],"args":[1,"x",[]]}`, "k=%20v,x=y")
	for _, text := range jsonTexts {
		f.Add(false, "/a.B/m", `{"args":[`+text+`,[`+text+`]]}`, "")
	}
	f.Fuzz(func(t *testing.T, asForm bool, path, body, attachments string) {
		headers := header("dubbo-attachments", attachments)
		req := jsonCall(path, body, headers)
		if asForm {
			req = form(body, headers)
		}
		var c Call
		if c.Parse(req) != nil {
			return
		}
		for _, serialization := range []byte{Fastjson, Hessian2} {
			b, err := c.AppendFrame(nil, serialization, 1)
			if err == ErrBadArgument && serialization == Hessian2 {
				continue // a number too large
			}
			if err != nil {
				t.Fatal(err)
			}
			checkCall(t, &c, b)
		}
	})
}

func checkCall(t *testing.T, c *Call, b []byte) {
	frame, n, err := Decode(b, len(b))
	if err != nil || n != len(b) {
		t.Fatalf("%d of %d bytes, %v", n, len(b), err)
	}
	var inv Invocation
	if err := inv.Parse(frame.Serialization, frame.Body); err != nil {
		if frame.Serialization == Fastjson && needsEscapes(c) {
			return
		}
		t.Fatalf("%v: %q", err, frame.Body)
	}
	version := c.Version
	if string(version) == noVersion {
		version = nil
	}
	for _, pair := range [][2][]byte{{inv.Path, c.Interface}, {inv.Version, version}, {inv.Method, c.Method}, {inv.Types, c.Types}, {inv.Group, c.Group}} {
		if string(appendText(nil, pair[0])) != string(pair[1]) {
			t.Fatalf("got %q, want %q", pair[0], pair[1])
		}
	}
}

// needsEscapes reports whether a name of the call needs escapes in fastjson. Callers may
// send such names, but Invocation refuses them.
func needsEscapes(c *Call) bool {
	names := [][]byte{c.Interface, c.Version, c.Group, c.Method, c.Types}
	for _, a := range c.attachments {
		names = append(names, a.name)
		if string(a.name) == "timeout" {
			names = append(names, a.value)
		}
	}
	return bytes.ContainsFunc(bytes.Join(names, nil), func(r rune) bool { return r < 0x20 || r == '"' || r == '\\' })
}

// FuzzJSON compares the reader with encoding/json: the same texts are valid, with the
// same compact form.
func FuzzJSON(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, ok := oneJSON(text)
		if valid := json.Valid(text); ok != valid && (ok || bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= maxDepth) {
			t.Fatalf("got %v, want %v", ok, valid)
		}
		if !ok {
			return
		}
		var want bytes.Buffer
		if err := json.Compact(&want, text); err != nil {
			t.Fatal(err)
		}
		if got := appendCompact(nil, value); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("got %s, want %s", got, want.Bytes())
		}
	})
}
