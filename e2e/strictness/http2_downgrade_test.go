package strictness

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/internal/corpus"
)

// downgrade is a request over HTTP/2 that an HTTP/1.1 application could misread.
type downgrade struct {
	name     string
	fields   []string // names and values by turns
	data     []string // a DATA frame each, the last one with the end; none: the head has it
	trailers []string
	want     corpus.Message // what the application gets; without a Method it gets nothing
	lacks    string         // a name of a field that it must not get
}

// passes is a GET that reaches the application, with some more fields.
func passes(name, target string, more ...string) downgrade {
	return downgrade{name: name, fields: h2.RequestFields("GET", target, more...),
		want: corpus.Message{Method: "GET", Target: target, Host: "a"}}
}

// refuses is a GET that must not, with some more fields.
func refuses(name string, more ...string) downgrade {
	return downgrade{name: name, fields: h2.RequestFields("GET", "/smuggled", more...)}
}

// refusesHead is a request without the usual fields.
func refusesHead(name string, fields ...string) downgrade {
	return downgrade{name: name, fields: fields}
}

// refusesBody is a POST with a body that does not fit its fields.
func refusesBody(name string, data []string, more ...string) downgrade {
	return downgrade{name: name, fields: h2.RequestFields("POST", "/smuggled", more...), data: data}
}

// passesBody is a POST whose body reaches the application.
func passesBody(name string, data []string, more ...string) downgrade {
	return downgrade{name: name, fields: h2.RequestFields("POST", "/", more...), data: data,
		want: corpus.Message{Method: "POST", Target: "/", Host: "a", Body: strings.Join(data, "")}}
}

// inner is a request that must stay a body.
const inner = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

func downgrades() (all []downgrade) {
	for _, bad := range []string{"\r", "\n", "\r\nb: c", "\r\n\r\n" + inner, "\x00", "\x01", "\x7f", "\x0b"} {
		all = append(all,
			refuses(fmt.Sprintf("%q in a value", bad), "x", "1"+bad+"2"),
			refuses(fmt.Sprintf("%q in a name", bad), "x"+bad+"y", "1"),
			refuses(fmt.Sprintf("%q at the end of a name", bad), "x"+bad, "1"),
			refusesHead(fmt.Sprintf("%q in the method", bad), h2.RequestFields("GET"+bad, "/smuggled")...),
			refusesHead(fmt.Sprintf("%q in the path", bad), h2.RequestFields("GET", "/smuggled"+bad)...),
			refusesHead(fmt.Sprintf("%q in the authority", bad), ":method", "GET", ":scheme", "http", ":path", "/smuggled", ":authority", "a"+bad),
			refusesHead(fmt.Sprintf("%q in the host", bad), ":method", "GET", ":scheme", "http", ":path", "/smuggled", "host", "a"+bad),
			refusesHead(fmt.Sprintf("%q in the scheme", bad), ":method", "GET", ":scheme", "http"+bad, ":path", "/smuggled", ":authority", "a"),
			refuses(fmt.Sprintf("%q in a cookie", bad), "cookie", "a=1", "cookie", "b"+bad),
			downgrade{name: fmt.Sprintf("%q in a trailer", bad), fields: h2.RequestFields("POST", "/smuggled"), data: []string{"x"}, trailers: []string{"t", "1" + bad}})
	}
	for _, bad := range []string{"", " ", "a b", "a:", ":", "a:b", "A", "content-Length", "a\"b", "(x)", "é", "transfer-encoding ", " transfer-encoding", "transfer-encoding:"} {
		all = append(all, refuses(fmt.Sprintf("the name %q", bad), bad, "chunked"))
	}
	for _, bad := range []string{" 1", "1 ", "\t1", "1\t"} {
		all = append(all, refuses(fmt.Sprintf("the value %q", bad), "x", bad))
	}
	for _, bad := range []string{"", "smuggled", "/a b", "/a#b", "*", "?a", "http://a/smuggled", "//\x80", "/é", " /", "/ HTTP/1.1\r\nx: y"} {
		all = append(all, refusesHead(fmt.Sprintf("the path %q", bad), h2.RequestFields("GET", bad)...))
	}
	for _, bad := range []string{"", "GE T", "GET /smuggled HTTP/1.1", "G:", "\x80"} {
		all = append(all, refusesHead(fmt.Sprintf("the method %q", bad), h2.RequestFields(bad, "/smuggled")...))
	}
	for _, bad := range []string{"", "a b", "u@a", "a/b", "a?b", "a#b", "a:b", "a:99999", "[::1", "a\\b", "a,b c", "é"} {
		all = append(all,
			refusesHead(fmt.Sprintf("the authority %q", bad), ":method", "GET", ":scheme", "http", ":path", "/smuggled", ":authority", bad),
			refusesHead(fmt.Sprintf("the host %q", bad), ":method", "GET", ":scheme", "http", ":path", "/smuggled", "host", bad))
	}
	for _, f := range [][2]string{
		{"connection", "close"}, {"connection", "x"}, {"keep-alive", "1"}, {"proxy-connection", "close"}, {"transfer-encoding", "chunked"},
		{"transfer-encoding", "identity"}, {"upgrade", "websocket"}, {"upgrade", "h2c"}, {"te", "gzip"}, {"te", "trailers, gzip"}, {"te", ""},
	} {
		all = append(all, refuses(fmt.Sprintf("%s: %s", f[0], f[1]), f[0], f[1]),
			refusesBody(fmt.Sprintf("%s: %s with a body", f[0], f[1]), []string{"0\r\n\r\n" + inner}, f[0], f[1]))
	}
	for _, bad := range []string{"", "+5", "-5", "5,5", "5, 5", "0x5", "5 ", " 5", "05 ", "five", "99999999999999999999", "18446744073709551621", "5\x00"} {
		all = append(all, refusesBody(fmt.Sprintf("the length %q", bad), []string{"12345"}, "content-length", bad))
	}
	return append(all, moreDowngrades...)
}

var moreDowngrades = []downgrade{
	refusesHead("no method", ":scheme", "http", ":path", "/smuggled", ":authority", "a"),
	refusesHead("no scheme", ":method", "GET", ":path", "/smuggled", ":authority", "a"),
	refusesHead("no path", ":method", "GET", ":scheme", "http", ":authority", "a"),
	refusesHead("no authority", ":method", "GET", ":scheme", "http", ":path", "/smuggled"),
	refusesHead("two methods", h2.RequestFields("GET", "/smuggled", ":method", "POST")...),
	refusesHead("two paths", ":method", "GET", ":scheme", "http", ":path", "/", ":path", "/smuggled", ":authority", "a"),
	refusesHead("two authorities", ":method", "GET", ":scheme", "http", ":path", "/smuggled", ":authority", "a", ":authority", "b"),
	refusesHead("a pseudo-header field behind others", ":method", "GET", ":scheme", "http", "x", "y", ":path", "/smuggled", ":authority", "a"),
	refusesHead("an unknown pseudo-header field", ":method", "GET", ":scheme", "http", ":path", "/smuggled", ":authority", "a", ":x", "y"),
	refusesHead("a pseudo-header field of responses", ":method", "GET", ":scheme", "http", ":path", "/smuggled", ":authority", "a", ":status", "200"),
	refusesHead("CONNECT with a path", h2.RequestFields("CONNECT", "/smuggled")...),
	refusesHead("CONNECT", ":method", "CONNECT", ":authority", "a:80"),
	refusesHead("CONNECT of a protocol", h2.RequestFields("CONNECT", "/smuggled", ":protocol", "websocket")...),
	refuses("another host", "host", "b"),
	refuses("a host and another", "host", "a", "host", "b"),
	refuses("a length without a body", "content-length", "5"),
	refusesBody("less than the length", []string{"1234"}, "content-length", "5"),
	refusesBody("more than the length", []string{"12345" + inner}, "content-length", "5"),
	refusesBody("more than the length, in a frame of its own", []string{"12345", inner}, "content-length", "5"),
	refusesBody("a body where the length is 0", []string{inner}, "content-length", "0"),
	refusesBody("two lengths", []string{"12345"}, "content-length", "5", "content-length", "6"),
	refusesBody("a length and a coding", []string{"0\r\n\r\n" + inner}, "content-length", "5", "transfer-encoding", "chunked"),
	{name: "trailers short of the length", fields: h2.RequestFields("POST", "/smuggled", "content-length", "5"), data: []string{"1234"}, trailers: []string{"t", "1"}},
	{name: "a pseudo-header field in trailers", fields: h2.RequestFields("POST", "/smuggled"), data: []string{"x"}, trailers: []string{":path", "/"}},
	{name: "a coding in trailers", fields: h2.RequestFields("POST", "/smuggled"), data: []string{"x"}, trailers: []string{"transfer-encoding", "chunked"}},
	{name: "a connection's field in trailers", fields: h2.RequestFields("POST", "/smuggled"), data: []string{"x"}, trailers: []string{"connection", "close"}},

	passes("nothing special", "/"),
	passes("all of a path", "/a;b=c/%20?d=e&f=/?:@[]{}|\\^`\"<>"),
	passes("the same host", "/", "host", "a"),
	passes("a colon in a value", "/", "x", "a: b: c"),
	passes("bytes beyond ASCII in a value", "/", "x", "\xff\x80"),
	{name: "te: trailers", fields: h2.RequestFields("GET", "/", "te", "trailers"), want: corpus.Message{Method: "GET", Target: "/", Host: "a"}, lacks: "TE"},
	{name: "host alone", fields: []string{":method", "GET", ":scheme", "http", ":path", "/", "host", "a"}, want: corpus.Message{Method: "GET", Target: "/", Host: "a"}},
	{name: "OPTIONS of all", fields: h2.RequestFields("OPTIONS", "*"), want: corpus.Message{Method: "OPTIONS", Target: "*", Host: "a"}},
	{name: "a body of GET", fields: h2.RequestFields("GET", "/"), data: []string{inner}, want: corpus.Message{Method: "GET", Target: "/", Host: "a", Body: inner}},
	{name: "an empty body of GET", fields: h2.RequestFields("GET", "/"), data: []string{""}, want: corpus.Message{Method: "GET", Target: "/", Host: "a"}},
	passesBody("a request in a body", []string{inner}),
	passesBody("a request in a body with its length", []string{inner}, "content-length", fmt.Sprint(len(inner))),
	passesBody("the end of a chunked body", []string{"0\r\n\r\n", inner}),
	passesBody("a body in frames", []string{"a", "", "b", "c", ""}),
	passesBody("names that look like a coding", []string{inner}, "transfer_encoding", "chunked", "x-transfer-encoding", "chunked"),
	{name: "trailers", fields: h2.RequestFields("POST", "/"), data: []string{inner}, trailers: []string{"t", "1"},
		want: corpus.Message{Method: "POST", Target: "/", Host: "a", Body: inner}},
}

// TestHTTP2Downgrade: of requests over HTTP/2, exactly those that are well-formed reach an
// application of HTTP/1.1, and each as one request. The others are refused, and the sidecar
// goes on.
func TestHTTP2Downgrade(t *testing.T) {
	replica, err := corpus.StartReplica(corpus.NumberedReply)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(replica.Close)
	for way, addr := range strictSidecars(t, replica.Addr()) {
		for _, c := range downgrades() {
			if err := c.try(addr, replica); err != nil {
				t.Errorf("%s: %s: %v", way, c.name, err)
			}
		}
	}
}

// send returns the bytes of the request.
func (c *downgrade) send(id uint32) []byte {
	flags := http2.Flags(0)
	if len(c.data) == 0 {
		flags = h2.EndStream
	}
	b := h2.Heads(id, flags, h2.Block(c.fields...))
	for i, data := range c.data {
		flags = 0
		if i == len(c.data)-1 && c.trailers == nil {
			flags = h2.EndStream
		}
		b = append(b, h2.Data(id, flags, []byte(data))...)
	}
	if c.trailers != nil {
		b = append(b, h2.Heads(id, h2.EndStream, h2.Block(c.trailers...))...)
	}
	return b
}

// try sends a good request behind the case, on the same connection.
func (c *downgrade) try(addr string, replica *corpus.Replica) error {
	replica.Take()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	p := h2.NewPeer(nc)
	heard := make(chan struct{})
	go func() { defer close(heard); p.Listen() }()
	defer func() { nc.Close(); <-heard }()
	p.Send(h2.Hello(), h2.SettingsAck(), c.send(1))
	if err := c.check(p); err != nil {
		return err
	}
	p.Send(h2.Get(3, "/next"))
	var forwarded []corpus.Message
	if c.want.Method != "" {
		forwarded = append(forwarded, c.want)
	}
	nextErr := p.UntilAnswer(3, corpus.Numbered(len(forwarded)+1))
	got := replica.Take()
	if err := errors.Join(nextErr, got.Check(append(forwarded, corpus.Message{Method: "GET", Target: "/next", Host: "a"}))); err != nil {
		return err
	}
	if c.lacks != "" && got.Requests[0].Find(c.lacks) != "" {
		return fmt.Errorf("the application got %s", c.lacks)
	}
	return nil
}

// check waits for the response to the case.
func (c *downgrade) check(p *h2.Peer) error {
	if c.want.Method != "" {
		return p.UntilAnswer(1, corpus.Numbered(1))
	}
	var bad error
	err := p.Until("a refusal", func(h *h2.Heard) bool {
		s := h.Streams[1]
		if s == nil || !s.Ended && !s.Reset {
			return false
		}
		if status := s.Field(":status"); !s.Reset && status[0] != '4' && status != "501" {
			bad = fmt.Errorf("not refused: %s", h)
		}
		return true
	})
	return errors.Join(err, bad)
}
