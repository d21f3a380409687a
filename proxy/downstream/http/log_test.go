package http_test

import (
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestLogOfRefusals: the log has an example of each kind of input that is refused. The example says as much as has come of the head.
func TestLogOfRefusals(t *testing.T) {
	for says, want := range map[string]string{
		"PUT /p?q=1 HTTP/1.1\r\nHost: compute\r\na b\r\n\r\n":                                  "code=space-before-colon method=PUT path=/p",
		"PUT /p?q=1 HTTP/1.1\r\nHost: compute\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n":     "code=bad-chunk-size method=PUT host=compute path=/p",
		"CONNECT other:80 HTTP/1.1\r\nHost: other:80\r\n\r\n":                                  "code=no-route method=CONNECT host=other:80",
		"PUT /p HTTP/1.1\r\nHost: other\r\nContent-Length: 100000\r\n\r\n":                     "code=no-route method=PUT host=other path=/p",
		"GET / HTTP/1.1\r\nHost: compute\r\n\r\nPUT /p HTTP/1.1\r\nHost: compute\r\nx: ":       "code=header-timeout method=PUT path=/p",
		"PUT /p HTTP/1.1\r\nHost: compute\r\nContent-Length: 100\r\n\r\n" + "some of the body": "code=body-timeout method=PUT host=compute path=/p",
	} {
		m, streams, _ := proxytest.NewStreamMesh(t, proxytest.MeshOptions{Apps: 1, Match: "match: {host: compute}", Limits: proxytest.SmallMessages})
		m.RunUntilClosed(m.DialAndSend(proxytest.Egress, says))
		log := m.Consumer.LogText.String()
		lines := ""
		for l := range strings.Lines(log) {
			if strings.Contains(l, `msg="request refused" listener=egress`) {
				lines += l
			}
		}
		for _, part := range strings.Fields(want) {
			if !strings.Contains(lines, " "+part+" ") || strings.Count(lines, "\n") != 1 {
				t.Errorf("%q: logged without %s: %s", says, part, log)
			}
		}
		proxytest.CheckStreamsSettled(m, streams)
	}
}

// TestLogOfPipelined: the access log has the length of each request by itself, whatever came with it in one read.
func TestLogOfPipelined(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1, OneHop: true, Limits: proxytest.LogAll})
	m.W.Options.Cut = 0
	says := []string{
		get("/"), get("/longer"),
		"POST / HTTP/1.1\r\nHost: compute\r\nContent-Length: 3\r\n\r\nabc",
		"GET / HTTP/1.1\r\nHost: compute\r\nConnection: close\r\n\r\n",
	}
	m.RunUntilClosed(m.DialAndSend(proxytest.Egress, strings.Join(says, "")))
	m.W.Run(time.Second)
	lines := m.Consumer.AccessLines()
	if len(lines) != len(says) {
		t.Fatalf("%d lines, want %d", len(lines), len(says))
	}
	for i, l := range lines {
		if l.BytesIn != len(says[i]) {
			t.Errorf("%q has %d bytes, logged %d", says[i], len(says[i]), l.BytesIn)
		}
	}
	m.Settled()
}
