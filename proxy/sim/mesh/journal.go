package mesh

import (
	"fmt"
	"strconv"
	"time"
)

// journal records every request, as callers and applications see it.
type journal struct {
	mesh       *mesh
	calls      []call // by nonce
	open       int    // of these, calls that have not ended
	peak       int    // largest value of open
	extra      int    // attempts at applications beyond a request's first
	allowance  float64
	violations []string
	hidden     int // violations beyond those
}

// call is one request.
type call struct {
	sent, over time.Duration
	consumer   int
	life       int // of the consumer's sidecar
	size       int
	unsafe     bool // not idempotent
	batch      bool
	same       int // its path, if it may share a response; else 0
	fate       fate
	status     int
	visits     []visit
}

// fate is how a request ended for its caller.
type fate uint8

const (
	undecided fate = iota
	answered
	closed    // the connection was closed without a response
	abandoned // by the caller
)

// visit is one arrival at an application.
type visit struct {
	provider, attempt int
}

// maxViolations is the number of violations that are reported.
const maxViolations = 10

// wrong records a violation of an invariant.
func (l *journal) wrong(format string, args ...any) {
	if len(l.violations) == maxViolations {
		l.hidden++
		return
	}
	at := fmt.Sprintf("seed %d, at %v: ", l.mesh.spec.Seed, l.mesh.w.Now())
	l.violations = append(l.violations, at+fmt.Sprintf(format, args...))
}

// begin opens a request of a consumer and returns its nonce.
func (l *journal) begin(consumer int, c call) int {
	c.sent, c.consumer, c.life = l.mesh.w.Now(), consumer, l.mesh.consumers[consumer].lives
	l.calls = append(l.calls, c)
	l.open++
	l.peak = max(l.peak, l.open)
	return len(l.calls) - 1
}

// target is the method and the path of a request.
func (l *journal) target(nonce int) (method, path string) {
	switch c := &l.calls[nonce]; {
	case c.same > 0:
		return "GET", "/compute/" + strconv.Itoa(c.same)
	case l.mesh.spec.Same > 0: // no other request is the same
		return "POST", "/compute?" + strconv.Itoa(nonce)
	}
	return "POST", "/compute"
}

// mayShare reports whether a request may get the response to another.
func (l *journal) mayShare(nonce, to int) bool {
	return nonce == to || l.known(to) && l.calls[to].same > 0 && l.calls[nonce].same == l.calls[to].same
}

func (l *journal) known(nonce int) bool { return nonce >= 0 && nonce < len(l.calls) }

// ended records the end of a request for its caller.
func (l *journal) ended(nonce int, how fate, status int) {
	c := &l.calls[nonce]
	if c.fate != undecided {
		l.wrong("request %d ended twice", nonce)
		return
	}
	l.open--
	c.fate, c.status, c.over = how, status, l.mesh.w.Now()
	consumer := l.mesh.consumers[c.consumer]
	switch {
	case how == answered && !mayAnswer(status):
		l.wrong("request %d was answered %d", nonce, status)
	case how == closed && !consumer.down && consumer.lives == c.life:
		l.wrong("request %d got no answer: its connection was closed", nonce)
	// What was sent while the sidecar was paused, it read when that was over.
	case how == answered && c.over > max(c.sent, consumer.paused)+consumer.timeout()+grace && c.over > l.mesh.troubled:
		l.wrong("request %d was answered %v after it was sent, past its deadline", nonce, c.over-c.sent)
	}
}

// mayAnswer reports whether a well-formed request may get a response with status.
func mayAnswer(status int) bool {
	switch status {
	case 200, 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// grace is the time until an application must know that a request has ended, and until a
// caller must know that its deadline has passed.
const grace = 10 * time.Millisecond

// arrived records that an application got the request.
func (l *journal) arrived(nonce, provider, attempt int, size int64) {
	c, now := &l.calls[nonce], l.mesh.w.Now()
	if size != int64(c.size) {
		l.wrong("request %d arrived with a body of %d bytes instead of %d", nonce, size, c.size)
	}
	if c.fate != undecided && now > c.over+grace && now > l.mesh.troubled {
		l.wrong("request %d was handed to the application of provider %d, %v after it was over", nonce, provider+1, now-c.over)
	}
	for _, v := range c.visits {
		switch {
		case v.provider != provider:
			continue
		case v.attempt == attempt && !c.unsafe:
			return // sent again because a pooled connection was stale
		case v.attempt == attempt:
			l.wrong("request %d, which is not idempotent, was sent twice to provider %d", nonce, provider+1)
		case l.untried(c, max(attempt, v.attempt)) && l.mesh.providers[provider].stats().Retries == 0: // they count as attempts, too
			l.wrong("attempts %d and %d of request %d went to provider %d, which had been tried, and others had not",
				v.attempt, attempt, nonce, provider+1)
		}
	}
	c.visits = append(c.visits, visit{provider, attempt})
	if len(c.visits) > 1 {
		l.extra++
		if c.unsafe {
			l.wrong("request %d, which is not idempotent, reached two applications", nonce)
		}
	}
}

// untried reports whether an attempt surely had an endpoint that the request had not tried.
// Attempts are counted from 0, also those that don't arrive.
func (l *journal) untried(c *call, attempt int) bool {
	consumer := l.mesh.consumers[c.consumer]
	return consumer.endpointsAt < c.sent && attempt < consumer.endpoints
}
