package peers

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// hertzCases are beside socketCases. They need more of the application.
var hertzCases = []struct {
	name string
	run  func(s *harness.PlainSocket)
}{
	{"HEAD", func(s *harness.PlainSocket) {
		for range 2 {
			s.Say("HEAD /size/12345 HTTP/1.1\nHost: c\n\n")
			r, err := http.ReadResponse(s.In, &http.Request{Method: "HEAD"})
			if err != nil || r.StatusCode != 200 || r.ContentLength != 12345 {
				s.T.Fatalf("%+v, %v", r, err)
			}
		}
		s.Say("GET /size/1 HTTP/1.1\nHost: c\n\n")
		s.Response(200, "x")
	}},
	{"no body", func(s *harness.PlainSocket) {
		for _, status := range []int{204, 304, 204} {
			s.Say(fmt.Sprintf("GET /status/%d HTTP/1.1\nHost: c\n\n", status))
			if r := s.Response(status, ""); r.ContentLength > 0 || len(r.TransferEncoding) > 0 {
				s.T.Errorf("%d: length %d, %v", status, r.ContentLength, r.TransferEncoding)
			}
		}
		s.Say("GET /status/404 HTTP/1.1\nHost: c\n\n")
		s.Response(404, "status 404")
	}},
	{"empty headers", func(s *harness.PlainSocket) {
		s.Say("GET /size/1 HTTP/1.1\nHost: c\nX-Nonce:\n\n")
		r := s.Response(200, "x")
		for _, name := range []string{"X-Empty", "X-Nonce"} {
			if values := r.Header[name]; len(values) != 1 || values[0] != "" {
				s.T.Errorf("%s: %q", name, values)
			}
		}
	}},
	{"Connection: close of the client", func(s *harness.PlainSocket) {
		s.Say("POST /echo HTTP/1.1\nHost: c\nConnection: close\nContent-Length: 1\n\nx")
		s.Response(200, "x")
		s.Ends()
	}},
	{"Connection: close of the server", func(s *harness.PlainSocket) {
		for range 3 { // the client's connection stays
			s.Say("POST /echo?close HTTP/1.1\nHost: c\nContent-Length: 1\n\nx")
			s.Response(200, "x")
		}
	}},
	{"a body up to the end of the connection", func(s *harness.PlainSocket) {
		body := randomBody(100_000)
		for range 3 {
			s.Say("POST /echo?end HTTP/1.1\nHost: c\nContent-Length: 100000\n\n", []byte(body)...)
			s.Response(200, body)
		}
	}},
	{"large bodies", func(s *harness.PlainSocket) {
		for _, how := range []string{"", "?chunked", "?trailers"} {
			body := randomBody(7 << 20)
			s := harness.DialPlain(s.T, s.RemoteAddr().String())
			s.Say(fmt.Sprintf("POST /echo%s HTTP/1.1\nHost: c\nContent-Length: %d\n\n", how, len(body)), []byte(body)...)
			s.Response(200, body)
		}
	}},
	{"announced trailers", func(s *harness.PlainSocket) {
		s.Say("POST /request HTTP/1.1\nHost: c\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n4\nabcd\n0\nX-Sum: 17\nX-Other: o\n\n")
		if got := s.Request(); got.Body != 4 || len(got.Trailers) != 1 || got.Trailers.Get("X-Sum") != "17" {
			s.T.Errorf("%+v", got)
		}
	}},
	{"events", func(s *harness.PlainSocket) {
		s.Say("GET /events HTTP/1.1\nHost: c\n\n")
		var want strings.Builder
		for i := range 10 {
			fmt.Fprintf(&want, "id: %d\nevent: tick\ndata: event\n\n", i)
		}
		s.Response(200, want.String())
	}},
}

// hertzLacks are the socketCases that Hertz does not pass: it refuses an empty Host, which a request
// of HTTP/1.0 without one gets, and drops trailers that Trailer does not announce.
var hertzLacks = map[string]bool{"HTTP/1.0": true, "trailers up": true}

// TestHertz: sockets talk to Hertz as they do to net/http.
func TestHertz(t *testing.T) {
	needCloudwego(t)
	for _, flags := range [][]string{nil, {"-stream"}} {
		app := startCloudwego(t, "hertz", flags...)
		for way, start := range cloudwegoWays {
			_, addr := start(t, "http", "http", app.addr)
			t.Run(fmt.Sprint(way, flags), func(t *testing.T) {
				for _, c := range slices.Concat(socketCases, hertzCases) {
					t.Run(c.name, func(t *testing.T) {
						if !hertzLacks[c.name] {
							c.run(harness.DialPlain(t, addr))
						}
					})
				}
			})
		}
	}
}

// TestHertzDiffers: what Hertz does otherwise than net/http, and what becomes of it by a sidecar; see
// docs/testing.md.
func TestHertzDiffers(t *testing.T) {
	needCloudwego(t)
	app := startCloudwego(t, "hertz")
	_, addr := hedgingSidecar(t, "http", "http", app.addr)
	for _, c := range []struct {
		name, text      string
		direct, sidecar string // of the response
	}{
		{"chunks for HTTP/1.0", "POST /echo?chunked HTTP/1.0\nHost: c\nContent-Length: 1\n\nx", "200 [chunked] x", "200 [] x"},
		{"HTTP/1.0 without Host", "GET /size/1 HTTP/1.0\n\n", "200 [] x", "400 [] missing required Host header"},
		{"absolute-form", "GET http://c.example/request HTTP/1.1\nHost: c\n\n",
			`200 [] {"Body":0,"Host":"c.example","Target":"http://c.example/request","Trailers":{}}`,
			`200 [] {"Body":0,"Host":"c.example","Target":"/request","Trailers":{}}`},
		{"unannounced trailers", "POST /request HTTP/1.1\nHost: c\nTransfer-Encoding: chunked\n\n1\nx\n0\nX-Sum: 1\n\n",
			`200 [] {"Body":1,"Host":"c","Target":"/request","Trailers":{}}`, `200 [] {"Body":1,"Host":"c","Target":"/request","Trailers":{}}`},
	} {
		for to, want := range map[string]string{app.addr: c.direct, addr: c.sidecar} {
			s := harness.DialPlain(t, to)
			s.Say(c.text)
			r, err := http.ReadResponse(s.In, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if got := fmt.Sprintf("%d %v %s", r.StatusCode, r.TransferEncoding, body); got != want || err != nil {
				t.Errorf("%s: %s, %v, want %s", c.name, got, err, want)
			}
		}
	}
}

// TestHertzStreams: pieces pass Hertz and sidecars both ways as they come.
func TestHertzStreams(t *testing.T) {
	needCloudwego(t)
	for way, start := range cloudwegoWays {
		t.Run(way, func(t *testing.T) {
			app := startCloudwego(t, "hertz", "-stream")
			_, addr := start(t, "http", "http", app.addr)
			s := harness.DialPlain(t, addr)
			s.Say("POST /pieces HTTP/1.1\nHost: c\nTransfer-Encoding: chunked\n\n")
			var r *http.Response
			for i := range 20 {
				piece := randomBody(1 + i*5000)
				if i == 0 {
					piece = randomBody(messageLimit + 1) // less would wait for the end of the body
				}
				sent := make(chan error, 1) // it comes back before all of it is sent
				go func() {
					_, err := fmt.Fprintf(s, "%x\r\n%s\r\n", len(piece), piece)
					sent <- err
				}()
				if i == 0 {
					var err error
					if r, err = http.ReadResponse(s.In, nil); err != nil || r.StatusCode != 200 {
						t.Fatalf("%+v, %v", r, err)
					}
				}
				got := make([]byte, len(piece))
				if _, err := io.ReadFull(r.Body, got); err != nil || string(got) != piece {
					t.Fatalf("piece %d: %v", i, err)
				}
				if err := harness.Receive(t, "the piece to be sent", sent); err != nil {
					t.Fatal(err)
				}
			}
			s.Say("0\n\n")
			if rest, err := io.ReadAll(r.Body); len(rest) > 0 || err != nil {
				t.Errorf("%d bytes behind the last piece, %v", len(rest), err)
			}
		})
	}
}

// echoHertz sends a request with a body of its own, and expects it back. Hertz counts it by the id.
func echoHertz(client *http.Client, addr, method, id string) error {
	text := randomBody(100)
	req, err := http.NewRequest(method, "http://"+addr+"/echo", strings.NewReader(text))
	if err != nil {
		return err
	}
	req.GetBody = nil // or net/http may send it again
	req.Header["X-Once"] = []string{id}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(got) != text {
		return fmt.Errorf("%s %s: %s %s, %d bytes, %v", method, id, resp.Status, resp.Header.Get("x-remora-error"), len(got), err)
	}
	return nil
}

// TestHertzRefusesBodies: a response to a body that is too long for Hertz, which closes the
// connection then, or that no handler reads, is no response to another request.
func TestHertzRefusesBodies(t *testing.T) {
	needCloudwego(t)
	for way, start := range cloudwegoWays {
		for _, c := range []struct {
			path  string
			flags []string
			want  []int
		}{
			{"/echo", nil, []int{413, 502}}, // unread bytes may reset the connection before the 413 has been read
			{"/unread", []string{"-stream"}, []int{200, 502}},
		} {
			t.Run(way+c.path, func(t *testing.T) {
				app := startCloudwego(t, "hertz", c.flags...)
				_, addr := start(t, "http", "http", app.addr)
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				for range 20 {
					resp, err := client.Post("http://"+addr+c.path, "", strings.NewReader(strings.Repeat("x", 9<<20)))
					if err == nil {
						resp.Body.Close()
					}
					if err != nil || !slices.Contains(c.want, resp.StatusCode) {
						t.Errorf("a long body: %+v, %v", resp, err)
					}
					if err := echoHertz(client, addr, "POST", ""); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// loadHertz sends GETs with bodies, which may be hedged, and POSTs, which may not.
func loadHertz(t *testing.T, addr string) *cloudwegoLoad {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}, Timeout: harness.Patience}
	t.Cleanup(client.CloseIdleConnections)
	return callAgain(t, func() error { return echoHertz(client, addr, "GET", "") },
		func(id string) error { return echoHertz(client, addr, "POST", id) })
}

// leaveHertz begins to read an endless response, and closes the connection.
func leaveHertz(t *testing.T, addr string) {
	s := harness.DialPlain(t, addr)
	s.Say("GET /events?endless=1 HTTP/1.1\nHost: c\n\n")
	if _, err := http.ReadResponse(s.In, nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestHertzClosesIdle: no request gets a connection that Hertz has closed.
func TestHertzClosesIdle(t *testing.T) {
	needCloudwego(t)
	app := startCloudwego(t, "hertz", "-age", "200ms")
	p, addr := hedgingSidecar(t, "http", "http", app.addr)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range 20 {
		if err := echoHertz(client, addr, "POST", fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
		eventually.Nil(t, "Hertz to close the connection", func() error {
			if n := p.Metric(fmt.Sprintf("remora_endpoint_connections{endpoint=%q}", app.addr)); n > 0 {
				return fmt.Errorf("%d connections", n)
			}
			return nil
		})
	}
	checkDid(t, []*cloudwegoServer{app}, "", 20)
}
