package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// History is what was recorded. Read adds to it.
type History struct {
	Changes  []Change // those of one recorder, in the order of their revisions
	Ticks    []Tick
	Views    []View // those of one sidecar, in the order of their times
	Requests []Request
	Outages  []Outage
	Owners   []Owner
}

// Change is a change of a key in the registry: a put, a deletion, or the end of a lease, which is a deletion. Keys that the recorder
// has found at its start are changes at the revisions of their last puts.
type Change struct {
	Revision int64  `json:"revision"`
	Key      string `json:"key"`
	Service  string `json:"service"`
	Address  string `json:"address"` // of a deletion: that of the deleted value
	Deleted  bool   `json:"deleted,omitempty"`

	// Previous is the revision at which the key was put before. 0 means that there was no such key, Unknown that the registry does
	// not say it.
	Previous int64 `json:"previous,omitempty"`

	// Listed means that the recorder found the change in a list, at its start or because its revisions had been compacted: the
	// change was made after revision Since, and Revision of a deletion is that of the list.
	Listed bool  `json:"listed,omitempty"`
	Since  int64 `json:"since,omitempty"`

	Heard time.Time `json:"heard"` // by the recorder
}

// Unknown is a Previous that the registry does not say.
const Unknown = -1

// Tick is a revision that the recorder made itself.
type Tick struct {
	Revision int64     `json:"revision"`
	Sent     time.Time `json:"sent"`  // not after the revision was made
	Acked    time.Time `json:"acked"` // not before
}

// View is a view of a service that a sidecar had.
type View struct {
	Sidecar   string    `json:"sidecar"`
	Run       int       `json:"run"` // grows with each start of the sidecar
	Service   string    `json:"service"`
	Revision  int64     `json:"revision,omitempty"` // of the registry; 0 means that the sidecar does not say
	Cached    bool      `json:"cached,omitempty"`   // from the disk of the sidecar
	Endpoints []string  `json:"endpoints"`
	First     time.Time `json:"first"` // when the sidecar first told of it
	Asked     time.Time `json:"asked"` // when it was asked the last time that it told of the view
	Told      time.Time `json:"told"`  // when it told of the view last: it had the view between Asked and Told
}

// Request is a request that a sidecar sent to an endpoint.
type Request struct {
	Sidecar  string    `json:"sidecar"`
	Service  string    `json:"service"`
	Endpoint string    `json:"endpoint,omitempty"` // "" means that the service had none
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"` // the endpoint was picked in between
}

// Outage is a time in which a sidecar could not reach the registry, or did not run.
type Outage struct {
	Sidecar string    `json:"sidecar,omitempty"` // "" means all
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
}

// Owner is a time in which a sidecar lived that had registered a key.
type Owner struct {
	Sidecar string    `json:"sidecar"`
	Key     string    `json:"key"`
	From    time.Time `json:"from"` // it had registered the key by then
	Until   time.Time `json:"until"`
}

// line is one line of a history: one of the fields is set.
type line struct {
	Change  *Change  `json:"change,omitempty"`
	Tick    *Tick    `json:"tick,omitempty"`
	View    *View    `json:"view,omitempty"`
	Request *Request `json:"request,omitempty"`
	Outage  *Outage  `json:"outage,omitempty"`
	Owner   *Owner   `json:"owner,omitempty"`
}

// Marshal returns the line of a *Change, *Tick, *View, *Request, *Outage or *Owner. It panics for anything else.
func Marshal(part any) []byte {
	var l line
	switch p := part.(type) {
	case *Change:
		l.Change = p
	case *Tick:
		l.Tick = p
	case *View:
		l.View = p
	case *Request:
		l.Request = p
	case *Outage:
		l.Outage = p
	case *Owner:
		l.Owner = p
	default:
		panic(fmt.Sprintf("history: %T is no part of a history", part))
	}
	text, err := json.Marshal(&l)
	if err != nil {
		panic(err) // they are plain structs
	}
	return append(text, '\n')
}

// Read adds the lines of a file. A last line without its end is left out: its writer was killed.
func (h *History) Read(r io.Reader) error {
	return eachLine(r, func(text []byte) error {
		var l line
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return err
		}
		return h.add(&l)
	})
}

func (h *History) add(l *line) error {
	before := h.parts()
	add(&h.Changes, l.Change)
	add(&h.Ticks, l.Tick)
	add(&h.Views, l.View)
	add(&h.Requests, l.Request)
	add(&h.Outages, l.Outage)
	add(&h.Owners, l.Owner)
	if n := h.parts() - before; n != 1 {
		return fmt.Errorf("%d parts of a history", n)
	}
	return nil
}

func (h *History) parts() int {
	return len(h.Changes) + len(h.Ticks) + len(h.Views) + len(h.Requests) + len(h.Outages) + len(h.Owners)
}

func add[T any](to *[]T, part *T) {
	if part != nil {
		*to = append(*to, *part)
	}
}

// eachLine calls take with each line, and names the line of an error.
func eachLine(r io.Reader, take func(text []byte) error) error {
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := take(text); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// ReadAccessLog adds the requests of a sidecar's access log, which is in the format json, to services of the registry. A request
// may have gone to other endpoints before: a line names the last. Streams are left out.
func (h *History) ReadAccessLog(sidecar string, services []string, r io.Reader) error {
	found := make(map[string]bool, len(services))
	for _, s := range services {
		found[s] = true
	}
	return eachLine(r, func(text []byte) error {
		var l struct {
			Time     time.Time `json:"time"`
			Service  string    `json:"service"`
			Endpoint string    `json:"endpoint"`
			Error    string    `json:"error"`
			Stream   string    `json:"stream"`
			Duration float64   `json:"duration_ms"`
		}
		if err := json.Unmarshal(text, &l); err != nil {
			return err
		}
		if !found[l.Service] || l.Stream != "" || l.Endpoint == "" && l.Error != noEndpoint {
			return nil
		}
		ended := l.Time.Add(time.Duration(l.Duration * float64(time.Millisecond)))
		h.Requests = append(h.Requests, Request{Sidecar: sidecar, Service: l.Service, Endpoint: l.Endpoint, Began: l.Time, Ended: ended})
		return nil
	})
}

// noEndpoint is the code of a request whose service had no endpoint: see docs/errors.md.
const noEndpoint = "no-endpoint"

// Summary returns on one line how much was recorded.
func (h *History) Summary() string {
	return fmt.Sprintf("%d changes, %d ticks, %d views, %d requests, %d outages, %d owners",
		len(h.Changes), len(h.Ticks), len(h.Views), len(h.Requests), len(h.Outages), len(h.Owners))
}
