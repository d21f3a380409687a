package affinity

import (
	"bytes"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/racetest"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
)

func keys(h config.Hash) *Keys { return New(&config.LB{Policy: config.LBConsistentHash, Hash: h}) }

func request(target string, headers ...string) *protocol.Request {
	req := &protocol.Request{Path: []byte(target)}
	for i := 0; i < len(headers); i += 2 {
		req.Headers = append(req.Headers, protocol.Header{Name: []byte(headers[i]), Value: []byte(headers[i+1])})
	}
	return req
}

// keyed are requests with a key, and the text that it is made of.
var keyed = []struct {
	name string
	from config.Hash
	req  *protocol.Request
	text string // "" means no key
}{
	{"header", config.Hash{Header: "X-Key"}, request("/", "a", "b", "x-KEY", "v", "x-key", "w"), "v"},
	{"no header", config.Hash{Header: "x-key"}, request("/", "x-keys", "v"), ""},
	{"empty header", config.Hash{Header: "x-key"}, request("/", "x-key", ""), ""},
	{"path", config.Hash{Path: true}, request("/a/b?x=y"), "/a/b"},
	{"query", config.Hash{Query: "user"}, request("/?users=a&user=b%20c&user=d"), "b%20c"},
	{"no query", config.Hash{Query: "user"}, request("/user=b"), ""},
	{"cookie", config.Hash{Cookie: "sid"}, request("/", "accept", "sid=x", "Cookie", "xsid=a; SID=b;sid=c=d ; sid=e"), "c=d"},
	{"second line of cookies", config.Hash{Cookie: "sid"}, request("/", "cookie", "a=b", "cookie", "sid=v"), "v"},
	{"empty cookie", config.Hash{Cookie: "sid"}, request("/", "cookie", "sid=; sid=b"), ""},
	{"no cookie", config.Hash{Cookie: "sid"}, request("/", "cookie", "sid; a=sid=b"), ""},
	{"no cookies", config.Hash{Cookie: "sid"}, request("/"), ""},
}

func TestKeys(t *testing.T) {
	for _, c := range keyed {
		if got := keys(c.from).Of(c.req, "192.0.2.1:1"); got != sum([]byte(c.text)) {
			t.Errorf("%s: got the key %x, not that of %q", c.name, got, c.text)
		}
	}
	// A value of the past: other processes may run other releases.
	if got := sum([]byte("v")); got != 0xa293d43641f17ec1 {
		t.Errorf("the key of v is %#x", got)
	}
	if got := keys(config.Hash{Path: true}).Of(request("?x"), ""); got != 0 {
		t.Errorf("no text has the key %#x", got)
	}
	if New(&config.LB{Policy: config.LBLeastPending}) != nil {
		t.Error("a policy without keys has some")
	}
}

// TestSourceKeys checks that a client has one key on all its connections.
func TestSourceKeys(t *testing.T) {
	k := keys(config.Hash{Source: true})
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"[2001:db8::1]:1", "[2001:db8::2]:1", true},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		{loop.UnixPeer, loop.UnixPeer, true},
	} {
		a, b := k.Of(request("/"), c.a), k.OfPeer(c.b)
		if a == 0 || b == 0 || (a == b) != c.same {
			t.Errorf("%s and %s have the keys %x and %x", c.a, c.b, a, b)
		}
	}
	if keys(config.Hash{Source: true}).OfPeer("") != 0 {
		t.Error("nobody has a key")
	}
	if keys(config.Hash{Path: true}).OfPeer("192.0.2.1:1") != 0 {
		t.Error("a stream of bytes has a path")
	}
}

// TestSession checks that a new session keeps its key when its cookie comes back.
func TestSession(t *testing.T) {
	k := keys(config.Hash{Cookie: "sid", TTL: 90 * time.Minute})
	for _, c := range []struct {
		secure bool
		want   string
	}{
		{false, "sid=2n9c; Path=/; Max-Age=5400; HttpOnly; SameSite=Lax"},
		{true, "sid=2n9c; Path=/; Max-Age=5400; HttpOnly; SameSite=Lax; Secure"},
	} {
		cookie, key := k.Session(nil, 123456, c.secure)
		if string(cookie) != c.want {
			t.Errorf("got %q, want %q", cookie, c.want)
		}
		pair, _, _ := bytes.Cut(cookie, []byte(";"))
		if got := k.Of(request("/", "cookie", string(pair)), ""); got != key {
			t.Errorf("the session has the key %x, its cookie %x", key, got)
		}
	}
	if cookie, key := keys(config.Hash{Cookie: "sid"}).Session(nil, 5, false); cookie != nil || key != 5 {
		t.Errorf("without a ttl: cookie %q, key %d", cookie, key)
	}
}

func TestAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	memory := make([]byte, 0, 256)
	for _, c := range keyed {
		k := keys(c.from)
		if n := testing.AllocsPerRun(100, func() { k.Of(c.req, "192.0.2.1:1") }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
	source, session := keys(config.Hash{Source: true}), keys(config.Hash{Cookie: "sid", TTL: time.Hour})
	if n := testing.AllocsPerRun(100, func() {
		source.OfPeer("[2001:db8::1]:1")
		session.Session(memory, 1<<63, true)
	}); n != 0 {
		t.Errorf("source and session: %v allocations", n)
	}
}
