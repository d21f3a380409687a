package main

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
)

// observed is what became of a case at a proxy.
type observed struct {
	verdict  string // see verdict
	requests []corpus.Message
}

// say sends a case and waits for as many answers as Remora gives, and a little
// longer, or until nothing happens for quiet.
func (i *instance) say(c *corpus.Case, quiet time.Duration) (observed, error) {
	i.replica.Take()
	nc, err := net.Dial("tcp", i.addr)
	if err != nil {
		return observed{}, err
	}
	defer nc.Close()
	if _, err := nc.Write(c.Bytes()); err != nil {
		return observed{}, err
	}
	var heard []byte
	closed := false
	due := c.Answers()
	b := make([]byte, 64<<10)
	for !closed {
		wait := quiet
		if answers, _ := corpus.ParseAnswers(heard, due); len(due) > 0 && len(answers) == len(due) {
			wait = quiet / 4
		}
		_ = nc.SetReadDeadline(time.Now().Add(wait))
		n, err := nc.Read(b)
		heard = append(heard, b[:n]...)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			break
		}
		closed = err != nil
	}
	record := i.replica.Take()
	nc.Close()
	// What the end of this connection brings about belongs to no other case.
	if err := i.ready(); err != nil {
		return observed{}, err
	}
	return observed{verdict(&record, string(heard), closed), record.Requests}, nil
}

// verdict names what became of a case, coarsely enough to compare: how many
// requests were passed on, whether what is no request was, and whether the proxy
// refused what was left, closed without a word, or waited for more.
func verdict(r *corpus.Record, heard string, closed bool) string {
	var words []string
	switch n := len(r.Requests); {
	case n == 1:
		words = append(words, "passed on")
	case n > 1:
		words = append(words, fmt.Sprintf("passed on as %d", n))
	}
	switch {
	case r.Wrong != nil:
		words = append(words, "passed on malformed")
	case r.Begun > 0:
		words = append(words, "passed on in part")
	}
	switch {
	case refusal(heard):
		words = append(words, "refused")
	case len(words) > 0:
	case closed:
		words = append(words, "closed")
	default:
		words = append(words, "waited for")
	}
	return strings.Join(words, ", then ")
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] [2-5]`)

// refusal tells whether one of the answers in heard is not the replica's. Bodies
// hold nothing that looks like a status line; HTTP/0.9 has none.
func refusal(heard string) bool {
	for _, at := range statusLine.FindAllStringIndex(heard, -1) {
		head, _, _ := strings.Cut(heard[at[0]:], "\r\n\r\n")
		if !strings.Contains(strings.ToLower(head), strings.ToLower(corpus.ReplicaField)+":") {
			return true
		}
	}
	return strings.HasPrefix(heard, "<")
}

// expected is what has to become of a case at Remora, by the corpus; ok is false
// where it does not say: what is longer than limits.message is a stream here.
func expected(c *corpus.Case) (o observed, ok bool) {
	if c.Parts[len(c.Parts)-1].Code == "message-too-large" {
		return o, false
	}
	var r corpus.Record
	refused := false
	for _, part := range c.Parts {
		switch {
		case part.Verdict == corpus.Refused || part.Method == "CONNECT":
			refused = true
		case part.Verdict == corpus.Accepted:
			r.Requests = append(r.Requests, corpus.Message{Method: part.Method, Target: part.Target, Host: part.Host, Body: part.Body})
		}
	}
	heard := ""
	if refused {
		heard = "HTTP/1.1 400 \r\n\r\n"
	}
	return observed{verdict(&r, heard, false), r.Requests}, true
}

// differs is the difference between what Remora and p made of a case, nil if there
// is none.
func differs(p *proxy, c *corpus.Case, ours, theirs observed) *difference {
	d := &difference{proxy: p, c: c, ours: ours.verdict, verdict: theirs.verdict}
	if ours.verdict != theirs.verdict {
		return d
	}
	for i := range ours.requests {
		a, b := &ours.requests[i], &theirs.requests[i]
		switch {
		case a.Method != b.Method:
			d.verdict += " with another method"
		case a.Body != b.Body:
			d.verdict += " with another body"
		case a.Target != b.Target:
			d.verdict += " with another target"
		case a.Host != b.Host:
			d.verdict += " with another Host"
		default:
			continue
		}
		return d
	}
	return nil
}
