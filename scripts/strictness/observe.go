package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
)

// observed is what became of a case at a proxy.
type observed struct {
	verdict  string // see verdict
	requests []corpus.Message
}

// say sends a case and waits until nothing happens for quiet.
func (p *proxy) say(c *corpus.Case, quiet time.Duration) (observed, error) {
	p.replica.Take()
	nc, err := net.Dial("tcp", p.addr)
	if err != nil {
		return observed{}, err
	}
	defer nc.Close()
	if _, err := nc.Write(c.Bytes()); err != nil {
		return observed{}, err
	}
	var heard []byte
	closed := false
	b := make([]byte, 64<<10)
	for !closed {
		_ = nc.SetReadDeadline(time.Now().Add(quiet))
		n, err := nc.Read(b)
		heard = append(heard, b[:n]...)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			break
		}
		closed = err != nil
	}
	record := p.replica.Record()
	return observed{verdict(&record, string(heard), closed), slices.Clone(record.Requests)}, nil
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

// refusal tells whether one of the answers in heard is not the replica's, nor an
// interim response. Bodies hold no line that looks like a status line.
func refusal(heard string) bool {
	for _, answer := range strings.Split(heard, "HTTP/1.1 ")[1:] {
		head, _, _ := strings.Cut(answer, "\r\n\r\n")
		if !strings.HasPrefix(head, "1") && !strings.Contains(strings.ToLower(head), strings.ToLower(corpus.ReplicaField)+":") {
			return true
		}
	}
	return strings.HasPrefix(heard, "HTTP/1.0 ") || strings.HasPrefix(heard, "<")
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
