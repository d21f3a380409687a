package dubbo

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	hessian "github.com/apache/dubbo-go-hessian2"
	"github.com/apache/dubbo-go-hessian2/java_exception"
)

func TestResults(t *testing.T) {
	for _, c := range []struct {
		serialization byte
		body          string
		bare, json    string
	}{
		{Fastjson, "1\n96354\n", "96354", "96354"},
		{Fastjson, "1\r\n-1.5e3\r\n", "-1.5e3", "-1.5e3"},
		{Fastjson, "1\n\"\"\n", "", `""`},
		{Fastjson, "4\n\"a\\n\\u00e9\\ud83d\\ude00 é\"\n{}\n", "a\né😀 é", `"a\n\u00e9\ud83d\ude00 é"`},
		{Fastjson, "1\n[1, \"a b\"]\n", `[1,"a b"]`, `[1,"a b"]`},
		{Fastjson, "1\n{7: \"a\", true:[{null:{}}] , \"b\":1}\n", `{"7":"a","true":[{"null":{}}],"b":1}`, `{"7":"a","true":[{"null":{}}],"b":1}`},
		{Fastjson, "1\n{{\"a\":1}:2,[3 , \"c\"]:{}}\n", `{"{\"a\":1}":2,"[3,\"c\"]":{}}`, `{"{\"a\":1}":2,"[3,\"c\"]":{}}`},
		{Fastjson, "1\n{{{1:2}:3}:4}\n", `{"{\"{\\\"1\\\":2}\":3}":4}`, `{"{\"{\\\"1\\\":2}\":3}":4}`},
		{Fastjson, "1\ntrue\n", "true", "true"},
		{Fastjson, "1\nnull\n", "null", "null"},
		{Fastjson, "2\n", "null", "null"},
		{Fastjson, "5\n{\"dubbo\":\"2.0.2\"}\n", "null", "null"},
		{Hessian2, "\x91\xd5\x78\x62", "96354", "96354"},
		{Hessian2, "\x94\x03a\n\xc3\xa9HZ", "a\né", `"a\né"`},
		{Hessian2, "\x91\x02\xed\xa0\xbd\xed\xb8\x80", "😀", `"😀"`},
		{Hessian2, "\x91R\x00\x01a\x01b", "ab", `"ab"`},
		{Hessian2, "\x91\x00", "", `""`},
		{Hessian2, "\x91N", "null", "null"},
		{Hessian2, "\x92", "null", "null"},
		{Hessian2, "\x95HZ", "null", "null"},
		{Hessian2, "\x91\x7a\x01a\x5c", `["a",1.0]`, `["a",1.0]`},
	} {
		for bare, want := range map[bool]string{true: c.bare, false: c.json} {
			f := Frame{Serialization: c.serialization, Status: StatusOK, Body: []byte(c.body)}
			got, reply, err := AppendReply([]byte("before:"), &f, bare, len(want))
			if err != nil || string(got) != "before:"+want || reply.Status != 200 || reply.Code != "" {
				t.Errorf("%q, bare %v: got %q, %+v, %v, want %q", c.body, bare, got, reply, err, want)
			}
			if json := reply.ContentType == "application/json"; json == bare {
				t.Errorf("%q, bare %v: got %s", c.body, bare, reply.ContentType)
			}
			if len(want) == 0 {
				continue
			}
			if got, _, err := AppendReply([]byte("before:"), &f, bare, len(want)-1); err != ErrResponseTooLarge || string(got) != "before:" {
				t.Errorf("%q, one byte too long: got %q, %v", c.body, got, err)
			}
		}
	}
}

func TestResultsRefused(t *testing.T) {
	for _, c := range []struct {
		serialization byte
		body          string
		want          error
	}{
		{Fastjson, "", ErrBadResponse}, {Fastjson, "1", ErrBadResponse}, {Fastjson, "1\n", ErrBadResponse}, {Fastjson, "1\n9", ErrBadResponse},
		{Fastjson, "6\n9\n", ErrBadResponse}, {Fastjson, "/\n9\n", ErrBadResponse}, {Fastjson, "11\n9\n", ErrBadResponse}, {Fastjson, "\n9\n", ErrBadResponse},
		{Fastjson, "1\n9 9\n", ErrBadResponse}, {Fastjson, "1\n{\n", ErrBadResponse}, {Fastjson, "1\n1\r2\n", ErrBadResponse}, {Fastjson, "0\nx\n", ErrBadResponse},
		{Fastjson, "1\n{1 2}\n", ErrBadResponse}, {Fastjson, "1\n{1}\n", ErrBadResponse}, {Fastjson, "1\n{{:1}:2}\n", ErrBadResponse},
		{Fastjson, "1\n" + strings.Repeat("{", 100) + "1" + strings.Repeat(":1}", 100) + "\n", ErrResponseTooLarge}, // each key doubles the escapes
		{Hessian2, "", ErrBadResponse}, {Hessian2, "\x91", ErrBadResponse}, {Hessian2, "\x96\x90", ErrBadResponse}, {Hessian2, "\x8f\x90", ErrBadResponse},
		{Hessian2, "1\n9\n", ErrBadResponse}, {Hessian2, "\xe1\x90", ErrBadResponse}, {Hessian2, "\x91\x05abc", ErrBadResponse},
		{Hessian2, "\x91\x51\x90", ErrBadResponse}, {Hessian2, "\x90\x60", ErrBadResponse},
		{Hessian2, "\x90\x79", ErrBadResponse}, {Hessian2, "\x90C\x03a.B\x91\x0ddetailMessage\x60\x79", ErrBadResponse}, // lists that are cut off
		{Fastjson, "1\n\"a\xff\"\n", ErrBadResponse}, {Fastjson, "1\n[\"\xc0\x80\"]\n", ErrBadResponse}, {Fastjson, "1\n\"\xed\xa0\x80\"\n", ErrBadResponse},
		{Fastjson, "0\n{\"message\":\"\xff\"}\n", ErrBadResponse}, {Hessian2, "\x91\x01\xc0\x80", ErrBadResponse}, {Hessian2, "\x90\x01\xc1\xa1", ErrBadResponse},
		{3, "\x91\x90", ErrResponseSerialization},
	} {
		for _, bare := range []bool{true, false} {
			f := Frame{Serialization: c.serialization, Status: StatusOK, Body: []byte(c.body)}
			if got, _, err := AppendReply([]byte("before"), &f, bare, 1000); err != c.want || string(got) != "before" {
				t.Errorf("%q: got %q, %v, want %v", c.body, got, err, c.want)
			}
		}
	}
}

// libraryException returns the body of a response with a Java exception.
func libraryException(t *testing.T, err error) string {
	t.Helper()
	codec := hessian.NewHessianCodec(nil)
	b, err := codec.Write(hessian.Service{}, hessian.DubboHeader{SerialID: Hessian2, Type: hessian.PackageResponse, ResponseStatus: 20},
		hessian.NewResponse(nil, err, nil))
	if err != nil {
		t.Fatal(err)
	}
	return string(b[HeaderSize:])
}

func TestExceptions(t *testing.T) {
	deep := java_exception.NewThrowable("no \"such\" thing\nat all")
	deep.Cause = java_exception.NewThrowable("cause")
	for _, c := range []struct {
		serialization byte
		body          string
		bare, json    string
	}{
		{Fastjson, `0` + "\n" + `{"@type":"java.lang.RuntimeException","cause":{"message":"no"},"message":"a \"b\"","stackTrace":[]}` + "\n",
			`java.lang.RuntimeException: a "b"`, `{"error":"dubbo-exception","class":"java.lang.RuntimeException","message":"a \"b\""}`},
		{Fastjson, "3\n{\"message\":null}\n{}\n", `dubbo-exception`, `{"error":"dubbo-exception","message":""}`},
		{Fastjson, "0\n\"text\"\n", "text", `{"error":"dubbo-exception","message":"text"}`},
		{Hessian2, "\x90C\x03a.B\x93\x05cause\x0ddetailMessage\x01x\x60\x51\x90\x02hi\x78", "a.B: hi", `{"error":"dubbo-exception","class":"a.B","message":"hi"}`},
		{Hessian2, "\x93C\x03a.B\x91\x0ddetailMessage\x60NHZ", "a.B", `{"error":"dubbo-exception","class":"a.B","message":""}`},
		{Hessian2, "\x90C\x03a.B\x92\x0ddetailMessage\x0ddetailMessage\x60\x79\x02no\x02hi", "a.B: hi", `{"error":"dubbo-exception","class":"a.B","message":"hi"}`},
		{Hessian2, "\x90R\x00\x01h\x01i", "hi", `{"error":"dubbo-exception","message":"hi"}`},
		{Hessian2, "\x90\x90", "dubbo-exception", `{"error":"dubbo-exception","message":""}`},
		{Hessian2, libraryException(t, deep), "java.lang.Throwable: no \"such\" thing\nat all",
			`{"error":"dubbo-exception","class":"java.lang.Throwable","message":"no \"such\" thing\nat all"}`},
		{Hessian2, libraryException(t, errors.New("plain")), "java.lang.Throwable: plain",
			`{"error":"dubbo-exception","class":"java.lang.Throwable","message":"plain"}`},
	} {
		for bare, want := range map[bool]string{true: c.bare, false: c.json} {
			f := Frame{Serialization: c.serialization, Status: StatusOK, Body: []byte(c.body)}
			got, reply, err := AppendReply([]byte("before:"), &f, bare, len(want))
			if err != nil || string(got) != "before:"+want || reply.Status != 500 || reply.Code != CodeException {
				t.Errorf("%q: got %s, %+v, %v, want %s", c.body, got, reply, err, want)
			}
			checkTooLong(t, &f, bare, len(want)-1)
			if !bare && !json.Valid(got[len("before:"):]) {
				t.Errorf("not JSON: %s", got)
			}
		}
	}
}

// checkTooLong checks that a reply has more than max bytes, and takes little more memory than that.
func checkTooLong(t *testing.T, f *Frame, bare bool, max int) {
	t.Helper()
	if got, reply, err := AppendReply([]byte("before:"), f, bare, max); err != ErrResponseTooLarge || string(got) != "before:" || reply != (Reply{}) {
		t.Errorf("more than %d bytes: got %q, %+v, %v", max, got, reply, err)
	}
}

// TestLongReplies: text of control characters, each of which is six in JSON, takes no more memory than the limit allows.
func TestLongReplies(t *testing.T) {
	const n, max = 1 << 20, 1 << 20
	chunks := strings.Repeat("R\xff\xff"+strings.Repeat("\x01", 0xffff), n/0xffff) + "\x00"
	quotes := "[" + strings.Repeat(`"",`, n/3) + "0]"
	for name, f := range map[string]Frame{
		"hessian2 result":    {Serialization: Hessian2, Status: StatusOK, Body: []byte("\x91" + chunks)},
		"hessian2 key":       {Serialization: Hessian2, Status: StatusOK, Body: []byte("\x91H" + chunks + "NZ")},
		"hessian2 exception": {Serialization: Hessian2, Status: StatusOK, Body: []byte("\x90" + chunks)},
		"hessian2 message":   {Serialization: Hessian2, Status: StatusServiceError, Body: []byte(chunks)},
		"fastjson exception": {Serialization: Fastjson, Status: StatusOK, Body: []byte("0\n" + quotes + "\n")},
		"fastjson class":     {Serialization: Fastjson, Status: StatusOK, Body: []byte("0\n{\"@type\":" + quotes + "}\n")},
		"fastjson message":   {Serialization: Fastjson, Status: StatusServiceError, Body: []byte(quotes + "\n")},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		checkTooLong(t, &f, false, max)
		runtime.ReadMemStats(&after)
		// A text is decoded to n bytes, and written to max bytes. A slice that grows by a quarter each time takes five times its length.
		if used := after.TotalAlloc - before.TotalAlloc; used > 12*max {
			t.Errorf("%s: %d bytes", name, used)
		}
	}
}

func TestStatusReplies(t *testing.T) {
	for _, c := range []struct {
		f          Frame
		bare, json string
	}{
		{Frame{Serialization: Fastjson, Status: 70, Body: []byte("\"no such \\\"method\\\"\"\n")},
			`no such "method"`, `{"error":"dubbo-service-error","message":"no such \"method\""}`},
		{Frame{Serialization: Hessian2, Status: 100, Body: []byte("\x04full")}, "full", `{"error":"dubbo-pool-exhausted","message":"full"}`},
		{Frame{Serialization: Hessian2, Status: 80, Body: []byte("\x05full")}, "dubbo-server-error", `{"error":"dubbo-server-error","message":""}`},
		{Frame{Serialization: Hessian2, Status: 80, Body: []byte("\x01\xc0\x80")}, "dubbo-server-error", `{"error":"dubbo-server-error","message":""}`},
		{Frame{Serialization: Fastjson, Status: 80, Body: []byte("\"\xff\"\n")}, "dubbo-server-error", `{"error":"dubbo-server-error","message":""}`},
		{Frame{Serialization: Hessian2, Status: 31}, "dubbo-server-timeout", `{"error":"dubbo-server-timeout","message":""}`},
		{Frame{Serialization: Fastjson, Status: 40}, "dubbo-bad-request", `{"error":"dubbo-bad-request","message":""}`},
		{Frame{Serialization: 9, Status: 60, Body: []byte("\x04full")}, "dubbo-service-not-found", `{"error":"dubbo-service-not-found","message":""}`},
	} {
		for bare, want := range map[bool]string{true: c.bare, false: c.json} {
			checkTooLong(t, &c.f, bare, len(want)-1)
			got, reply, err := AppendReply(nil, &c.f, bare, len(want))
			if err != nil || string(got) != want || reply.Status != c.f.Status.HTTP() || reply.Code != c.f.Status.Code() {
				t.Errorf("%+v: got %s, %+v, %v, want %s", c.f, got, reply, err, want)
			}
		}
	}
}
