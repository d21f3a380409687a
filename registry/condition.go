package registry

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"
)

// Codes of failures of a source. They are stable. The last known endpoints stay meanwhile.
const (
	CodeUnreachable = "unreachable" // no connection, or no response in time: is the server up, and may this host reach it
	CodeDenied      = "denied"      // the server refuses the account or the certificate of this sidecar, or the file may not be read: check the permissions
	CodeMissing     = "missing"     // the file is not there: check the path, and the program that writes the file
	CodeInvalid     = "invalid"     // the file, or a response, can't be understood: the log says why
	CodeFailed      = "failed"      // the server responds with an error of its own: see its log
	CodeUnresolved  = "unresolved"  // a host name has no address in DNS, or no name server responds
)

// CodeOf returns the code of an error of the system, or other if it is none.
func CodeOf(err error, other string) string {
	var network net.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return CodeMissing
	case errors.Is(err, fs.ErrPermission):
		return CodeDenied
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ECONNREFUSED),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return CodeUnreachable
	}
	return other
}

// Condition is how a source of endpoints does now.
type Condition struct {
	Up    bool      // the source responds, and its responses are valid
	Since time.Time // when Up changed last, or when the source was first asked
	Code  string    // of the last failure; "" if the source is up, or has not responded yet
	Err   error     // the last failure; nil if Code is ""

	Services int // that are found here
	Kept     int // endpoints that stay in use although the source does not have them now, or does not respond
	Doubted  int // of Services, those that have endpoints which the source does not have: see Doubts
}

// Join returns the condition of a source that consists of parts, such as namespaces. It is up if all parts are. Without
// parts it is up.
func Join(parts ...Condition) Condition {
	all := Condition{Up: true}
	for _, p := range parts {
		switch {
		case p.Up && all.Up && p.Since.After(all.Since):
			all.Since = p.Since // the latest return
		case !p.Up && (all.Up || p.Since.Before(all.Since)):
			all.Up, all.Since = false, p.Since // the earliest loss
		}
		if all.Err == nil {
			all.Code, all.Err = p.Code, p.Err
		}
		all.Services, all.Kept, all.Doubted = all.Services+p.Services, all.Kept+p.Kept, all.Doubted+p.Doubted
	}
	return all
}

// Contact follows whether a source responds. Its methods may be called from any goroutine.
type Contact struct {
	mu   sync.Mutex
	now  Condition
	told map[string]bool // codes of the failures since the source was up
}

// NewContact returns the Contact of a source that has not responded yet.
func NewContact() *Contact {
	return &Contact{now: Condition{Since: time.Now()}, told: make(map[string]bool)}
}

// Succeed notes a valid response. It returns the condition before.
func (c *Contact) Succeed() (before Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before = c.now; !before.Up {
		c.now = Condition{Up: true, Since: time.Now()}
		clear(c.told)
	}
	return before
}

// Fail notes a failure. isNews reports whether it is the first one with its code since the source was up. Texts are not
// compared: they have numbers of ports, and a source that fails is asked again for days.
func (c *Contact) Fail(code string, err error) (isNews bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Up {
		c.now = Condition{Since: time.Now()}
	}
	isNews = !c.told[code]
	c.told[code] = true
	c.now.Code, c.now.Err = code, err
	return isNews
}

// Condition returns how the source does, without its services.
func (c *Contact) Condition() Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Doubts counts the endpoints of a source that stay in use although the source does not have them. The zero value has
// none.
type Doubts struct {
	mu                  sync.Mutex
	services, endpoints int
}

// Add adds these doubts to a condition.
func (d *Doubts) Add(to *Condition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to.Doubted += d.services
	to.Kept += d.endpoints
}

// Doubt is what one watch adds to Doubts. Its methods may be called from any goroutine. Without Doubts they do nothing.
type Doubt struct {
	of        *Doubts
	endpoints int  // guarded by of.mu, as is ended
	ended     bool // the watch has ended
}

// NewDoubt returns a Doubt that adds nothing yet. The caller must End it.
func NewDoubt(of *Doubts) *Doubt { return &Doubt{of: of} }

// Set makes the watch add so many endpoints. 0 means that it doubts nothing. After End it does nothing.
func (d *Doubt) Set(endpoints int) { d.set(endpoints, false) }

// End removes what the watch has added.
func (d *Doubt) End() { d.set(0, true) }

func (d *Doubt) set(endpoints int, last bool) {
	if d.of == nil {
		return
	}
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	if d.ended {
		return
	}
	d.of.services += min(endpoints, 1) - min(d.endpoints, 1)
	d.of.endpoints += endpoints - d.endpoints
	d.endpoints, d.ended = endpoints, last
}
