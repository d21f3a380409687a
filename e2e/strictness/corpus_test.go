package strictness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/internal/eventually"
)

const corpusDir = "../../protocol/http1/testdata"

// strictLimits are the limits of the corpus.
var strictLimits = fmt.Sprintf("loops: 1\nlimits: {header: %d, headers: %d, message: %d}\n",
	corpus.HeaderLimit, corpus.HeadersLimit, corpus.MessageLimit)

// strictSidecars are two ways to an application, through both sidecars and
// through one, by the addresses where they begin.
func strictSidecars(t *testing.T, app string) map[string]string {
	start := func(listen, upstream, endpoint string) (addr string) {
		addr = harness.FreeAddrs(t, 1)[0]
		harness.Start(t, strictLimits+fmt.Sprintf(`
listeners: [{name: in, address: %q, protocol: %s, service: out}]
services: {out: {discover: static, endpoints: [%q], protocol: %s, connect_timeout: 15s, timeout: 2m}}`,
			addr, listen, endpoint, upstream)).Ready()
		return addr
	}
	ingress := start("link", "http", app)
	return map[string]string{"both sidecars": start("http", "link", ingress), "one hop": start("http", "http", app)}
}

// strictClient is one connection of a client that knows which responses are due.
type strictClient struct {
	*net.TCPConn
	heard []byte
	due   []corpus.Answer
}

func dialStrict(addr string) (*strictClient, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(harness.Patience))
	return &strictClient{TCPConn: nc.(*net.TCPConn)}, nil
}

// hear reads until all due responses have arrived, or to the end.
func (c *strictClient) hear(toEnd bool) error {
	b := make([]byte, 16<<10)
	for {
		answers, err := corpus.ParseAnswers(c.heard, c.due)
		if !toEnd && (len(answers) >= len(c.due) || err != nil && err != io.ErrUnexpectedEOF) {
			break
		}
		n, err := c.Read(b)
		c.heard = append(c.heard, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%w, having received %q", err, c.heard)
		}
	}
	return corpus.CheckAnswers(c.heard, c.due)
}

// ended reports whether the sidecar has announced that no further response follows.
func (c *strictClient) ended() bool {
	answers, _ := corpus.ParseAnswers(c.heard, c.due)
	return len(answers) > 0 && answers[len(answers)-1].Close
}

// ask sends a GET for the target and waits for the response with the body.
func (c *strictClient) ask(target, body string) error {
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: next\r\n\r\n", target)
	c.due = append(c.due, corpus.Answer{Method: "GET", Status: 200, Body: body})
	if err := c.hear(false); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	return nil
}

// askAnew is ask on a connection of its own.
func askAnew(addr, target, body string) error {
	c, err := dialStrict(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ask(target, body)
}

// TestStrictRequests: exactly the requests that the corpus accepts reach the
// application's socket, each well-formed, and no other byte.
func TestStrictRequests(t *testing.T) {
	cases := differentialCases(t)
	replica, err := corpus.StartReplica(corpus.NumberedReply)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(replica.Close)
	for way, addr := range strictSidecars(t, replica.Addr()) {
		for i := range cases {
			c := &cases[i]
			replica.Take()
			var err error
			if refusedFor(c, "message-too-large") {
				err = tellLong(t, addr, c, replica)
			} else {
				err = tellCase(addr, c, replica)
			}
			if err != nil {
				t.Errorf("%s: %s: %s: %v\n%.300q", way, c.Where, c.Name, err, c.Bytes())
			}
		}
	}
}

// refusedFor reports whether the last part of a case is refused with the code.
func refusedFor(c *corpus.Case, code string) bool { return c.Parts[len(c.Parts)-1].Code == code }

func tellCase(addr string, c *corpus.Case, replica *corpus.Replica) error {
	client, err := dialStrict(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Write(c.Bytes()); err != nil {
		return err
	}
	client.due = c.Answers()
	waits := len(c.Of(corpus.Incomplete)) > 0
	if err := client.hear(!c.Open() && !waits); err != nil {
		return err
	}
	if waits {
		_ = client.CloseWrite()
		if err := client.hear(true); err != nil {
			return err
		}
	}
	forwarded := c.Forwarded()
	if body := corpus.Numbered(len(forwarded) + 1); c.Open() && !client.ended() {
		err = client.ask("/next", body)
	} else {
		err = askAnew(addr, "/next", body)
	}
	got := replica.Take()
	if err = errors.Join(err, got.Check(append(forwarded, next))); err != nil {
		return err
	}
	return checkFacts(c, got.Requests)
}

// next is the request behind a case.
var next = corpus.Message{Method: "GET", Target: "/next", Host: "next"}

// tellLong sends a request past limits.message. Such a request is passed on as it
// arrives, from its head on if the head has the length. The application gets all of it,
// or its beginning and the end of the connection.
func tellLong(t *testing.T, addr string, c *corpus.Case, replica *corpus.Replica) error {
	client, err := dialStrict(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	said := c.Bytes()
	if _, err := client.Write(said); err != nil {
		return err
	}
	var forwarded []corpus.Message
	whole, _, err := corpus.ParseRequest(said)
	switch {
	case err == nil:
		forwarded = append(forwarded, whole)
		client.due = []corpus.Answer{{Method: whole.Method, Status: 200, Body: corpus.Numbered(1)}}
		if err := client.hear(true); err != nil {
			return err
		}
	case bytes.Contains(said, []byte("Content-Length: ")):
		if err := tellBeginning(t, client, replica); err != nil {
			return err
		}
	default:
		_ = client.CloseWrite()
		_, _ = io.Copy(io.Discard, client)
	}
	err = askAnew(addr, "/next", corpus.Numbered(len(forwarded)+1))
	got := replica.Take()
	return errors.Join(err, got.Check(append(forwarded, next)))
}

// tellBeginning ends the connection of a client that has announced more than it has
// sent, once the head has arrived or was refused.
func tellBeginning(t *testing.T, client *strictClient, replica *corpus.Replica) error {
	b := make([]byte, 4096)
	eventually.Nil(t, "the head to arrive, or to be refused", func() error {
		_ = client.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err := client.Read(b)
		client.heard = append(client.heard, b[:n]...)
		if len(client.heard) == 0 && replica.Record().Begun == 0 {
			return err
		}
		return nil
	})
	client.Close()
	eventually.Nil(t, "the application's connection to end", func() error {
		if r := replica.Record(); r.Cut != r.Begun {
			return errors.New("it stays")
		}
		return nil
	})
	if r := replica.Take(); r.Wrong != nil || len(r.Requests) > 0 || r.Begun > 1 {
		return fmt.Errorf("the application got %+v", r)
	}
	return nil
}

// TestStrictResponses: the caller of an application gets the response that the corpus
// accepts, or a 502, and the next requests get their own.
func TestStrictResponses(t *testing.T) {
	cases, err := corpus.Responses(os.DirFS(corpusDir))
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan *corpus.Case, 1)
	replica, err := corpus.StartReplica(func(m *corpus.Message, _ int) ([]byte, bool) {
		if m.Target == "/case" {
			c := <-said
			said <- c
			return c.Bytes(), c.Closes || refusedFor(c, "message-too-large") || len(c.Of(corpus.Incomplete)) > 0
		}
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(m.Target), m.Target), false
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(replica.Close)
	for way, addr := range strictSidecars(t, replica.Addr()) {
		for i := range cases {
			c := &cases[i]
			said <- c
			if err := hearCase(addr, c); err != nil {
				t.Errorf("%s: %s: %s: %v\n%.300q", way, c.Where, c.Name, err, c.Bytes())
			}
			<-said
		}
	}
}

// hearCase requests a case, and then more.
func hearCase(addr string, c *corpus.Case) error {
	client, err := dialStrict(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Fprintf(client, "%s /case HTTP/1.1\r\nHost: h\r\n\r\n", c.Method)
	due := c.Answer()
	if len(c.Of(corpus.Incomplete)) > 0 { // the replica closes instead of hanging
		due.Status, due.Code = 502, "upstream-reset"
	}
	client.due = []corpus.Answer{due}
	err = client.hear(false)
	switch {
	case bytes.Contains(client.heard, []byte("smuggled")):
		return fmt.Errorf("the caller received the hidden response: %q", client.heard)
	case due.Code == "response-too-large" || due.Code == "upstream-reset" && bytes.HasPrefix(client.heard, []byte("HTTP/1.1 200 ")):
		// Passed on as it came, and maybe cut off with the connection.
	case err != nil:
		return err
	case !client.ended():
		if err := client.ask("/next", "/next"); err != nil {
			return err
		}
	}
	return errors.Join(askAnew(addr, "/anew", "/anew"), askAnew(addr, "/again", "/again"))
}
