package exchange_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

const (
	interimOK   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	interimGET  = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	interimPOST = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
)

// hint is an interim response with a number.
func hint(n int) string { return fmt.Sprintf("HTTP/1.1 103 Early Hints\r\nLink: <%d>\r\n\r\n", n) }

// said is what an application sends some time after its request, in milliseconds.
type said struct {
	after int
	text  string
}

// closes makes an application close its connection.
const closes = ""

var interimCases = []struct {
	name, service, request string
	executions             [][]said // the first attempt's, the second one's, ...
	want                   string   // statuses and links
}{
	{name: "a hint", request: interimGET, executions: [][]said{{{0, hint(1)}, {5, interimOK}}}, want: "103 <1> 200"},
	{name: "with the response", request: interimGET, executions: [][]said{{{0, hint(1) + hint(2) + interimOK}}}, want: "103 <1> 103 <2> 200"},
	{name: "to HEAD", request: "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
		executions: [][]said{{{0, hint(1) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"}}}, want: "103 <1> 200"},
	{name: "to HTTP/1.0", request: "GET / HTTP/1.0\r\nHost: a\r\n\r\n", executions: [][]said{{{0, hint(1)}, {5, interimOK}}}, want: "200"},
	{name: "headers of a connection, and of sidecars", request: interimGET,
		executions: [][]said{{{0, "HTTP/1.1 103 x\r\nConnection: x-a\r\nX-A: <3>\r\nKeep-Alive: 5\r\nX-Remora-Error: <4>\r\nLink: <1>\r\n\r\n" + interimOK}}},
		want:       "103 <1> 200"},
	{name: "without a name", request: interimGET, executions: [][]said{{{0, "HTTP/1.1 199 x\r\n\r\n" + interimOK}}}, want: "199 200"},
	{name: "100 that nobody waits for", request: interimPOST, executions: [][]said{{{0, "HTTP/1.1 100 Continue\r\n\r\n" + interimOK}}}, want: "100 200"},
	{name: "101 that nobody asked for", request: interimGET, executions: [][]said{{{0, hint(1) + "HTTP/1.1 101 x\r\n\r\n"}}}, want: "103 <1> 502"},
	{name: "as many as may be", request: interimGET,
		executions: [][]said{{{0, strings.Repeat(hint(1), http1.MaxInterim) + interimOK}}},
		want:       strings.Repeat("103 <1> ", http1.MaxInterim) + "200"},
	{name: "more than are passed on", request: interimGET, executions: [][]said{{{0, strings.Repeat(hint(1), 100*http1.MaxInterim) + interimOK}}},
		want: strings.Repeat("103 <1> ", http1.MaxInterim) + "200"},
	{name: "more than are passed on, in pieces", request: interimGET,
		executions: [][]said{{{0, strings.Repeat(hint(1), http1.MaxInterim)}, {5, hint(2) + hint(3)[:20]}, {10, hint(3)[20:] + interimOK}}},
		want:       strings.Repeat("103 <1> ", http1.MaxInterim) + "200"},
	{name: "as large as a head", request: interimGET,
		executions: [][]said{{{0, padded(1, 500) + padded(2, 500) + interimOK}}}, want: "103 <1> 103 <2> 200"},
	{name: "a byte larger", request: interimGET,
		executions: [][]said{{{0, padded(1, 500) + padded(2, 501) + interimOK}}}, want: "103 <1> 200"},
	{name: "larger together", request: interimGET,
		executions: [][]said{{{0, padded(1, 400) + padded(2, 800) + padded(3, 400) + interimOK}}}, want: "103 <1> 103 <3> 200"},
	{name: "then the deadline", service: "timeout: 50ms", request: interimGET,
		executions: [][]said{{{0, hint(1)}, {20, hint(2)}, {40, hint(3)}, {80, hint(4)}, {100, interimOK}}}, want: "103 <1> 103 <2> 103 <3> 504"},
	{name: "then the end, and a retry", request: interimGET,
		executions: [][]said{{{0, hint(1)}, {5, closes}}, {{0, hint(2)}, {5, interimOK}}}, want: "103 <1> 103 <2> 200"},
	{name: "then the end, and no retry", request: interimPOST,
		executions: [][]said{{{0, hint(1)}, {5, closes}}, {{0, interimOK}}}, want: "103 <1> 502"},
	{name: "of a try that takes too long", service: "retry: {per_try_timeout: 50ms}", request: interimGET,
		executions: [][]said{{{0, hint(1)}, {30, hint(2)}, {70, hint(3)}, {90, interimOK}}, {{0, hint(4)}, {40, interimOK}}},
		want:       "103 <1> 103 <2> 103 <4> 200"},
	{name: "then a hedge", service: "hedge: {mode: on, delay: 20ms, budget: 1}", request: interimGET,
		executions: [][]said{{{0, hint(1)}, {40, hint(2)}, {80, hint(3) + interimOK}}, {{0, hint(4)}, {30, interimOK}}}, want: "103 <1> 103 <2> 200"},
	{name: "of a hedge first", service: "hedge: {mode: on, delay: 20ms, budget: 1}", request: interimGET,
		executions: [][]said{{{30, hint(1)}, {60, interimOK}}, {{0, hint(2)}, {80, interimOK}}}, want: "103 <2> 200"},
}

// padded is a hint whose headers have n bytes, and 12 of names and the link.
func padded(link, n int) string {
	return fmt.Sprintf("HTTP/1.1 103 x\r\nLink: <%d>\r\nX-Pad: %s\r\n\r\n", link, strings.Repeat("p", n))
}

// TestInterim: which interim responses a caller gets, with retries and hedges.
func TestInterim(t *testing.T) {
	for _, c := range interimCases {
		t.Run(c.name, func(t *testing.T) {
			service := proxytest.Fields("connect_timeout: 15s, lb: {policy: weighted_round_robin, slow_start: 0s}", c.service)
			if !strings.Contains(service, "timeout: 50ms") {
				service = proxytest.Fields("timeout: 5s", service)
			}
			options := proxytest.MeshOptions{Apps: 3, Service: service, Limits: "limits: {header: 1KiB}"}
			proxytest.EachTopology(t, options, func(t *testing.T, m *proxytest.Mesh) {
				executed := 0
				for i := range m.Apps {
					var latest **proxytest.Peer
					latest = m.Apps[i].RespondWithFunc(func() string {
						script, to := c.executions[executed], *latest
						executed++
						for _, s := range script {
							m.W.At(m.W.Now()+time.Duration(s.after)*time.Millisecond, func() {
								m.Apps[i].Loop.Do(func() {
									if s.text == closes {
										to.Conn.Drain()
									} else {
										to.Conn.Write([]byte(s.text))
									}
								})
							})
						}
						return ""
					})
				}
				p := m.DialAndSend(proxytest.Egress, c.request)
				m.W.Run(time.Second)
				if got := statusesAndLinks(p); got != c.want {
					t.Errorf("got %s, want %s\n%s", got, c.want, p.Heard)
				}
			})
		})
	}
}

func statusesAndLinks(p *proxytest.Peer) string {
	found := statusOrLink.FindAllString(string(p.Heard), -1)
	return strings.ReplaceAll(strings.Join(found, " "), "HTTP/1.1 ", "")
}

var statusOrLink = regexp.MustCompile(`HTTP/1.1 [1-5][0-9][0-9]|<[0-9]>`)

// TestInterimCollapsed: the caller whose request was sent gets the interim responses, and no other.
func TestInterimCollapsed(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Match: "collapse: true"})
	var latest **proxytest.Peer
	latest = m.Apps[0].RespondWithFunc(func() string {
		m.W.At(m.W.Now()+10*time.Millisecond, func() { m.Apps[0].Loop.Do(func() { (*latest).Conn.Write([]byte(interimOK)) }) })
		return hint(1)
	})
	first := m.DialAndSend(proxytest.Egress, interimGET)
	m.W.Run(5 * time.Millisecond)
	second := m.DialAndSend(proxytest.Egress, interimGET)
	m.W.Run(time.Second)
	if a, b := statusesAndLinks(first), statusesAndLinks(second); a != "103 <1> 200" || b != "200" {
		t.Errorf("got %q and %q", a, b)
	}
}
