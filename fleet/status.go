package fleet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// Status is what a sidecar says of itself.
type Status struct {
	Node     string    `json:"node"`
	Version  string    `json:"version"`
	Revision int64     `json:"revision"` // that the sidecar runs
	Since    time.Time `json:"since"`
	Refused  *Refusal  `json:"refused,omitempty"` // the revision that the sidecar should run; nil if it does

	Change   time.Time          `json:"change"`             // of the head, since which the counts of Services are
	Services map[string]Service `json:"services,omitempty"` // at most MaxServices, those with the most requests
}

// MaxServices bounds the services of a Status.
const MaxServices = 16

// Service is what one service of a sidecar did.
type Service struct {
	Requests uint64  `json:"requests"`
	Failed   uint64  `json:"failed"` // of Requests, those with a 5xx or an error of the sidecar
	Hedges   uint64  `json:"hedges"`
	Missed   uint64  `json:"missed"`            // of Hedges, those that reached no application
	Won      uint64  `json:"won"`               // of Hedges
	Latency  Latency `json:"latency,omitempty"` // only during a roll-out with a guard
}

// Add adds the counts of o to s.
func (s *Service) Add(o *Service) {
	s.Requests += o.Requests
	s.Failed += o.Failed
	s.Hedges += o.Hedges
	s.Missed += o.Missed
	s.Won += o.Won
}

// Since returns the counts of s since those of before. No count of before is above that of s.
func (s Service) Since(before Service) Service {
	s.Requests -= before.Requests
	s.Failed -= before.Failed
	s.Hedges -= before.Hedges
	s.Missed -= before.Missed
	s.Won -= before.Won
	s.Latency = slices.Clone(s.Latency)
	for i, n := range before.Latency {
		s.Latency[i] -= n
	}
	return s
}

// Refusal says why a sidecar does not run a revision.
type Refusal struct {
	Revision int64  `json:"revision"`
	Code     string `json:"code"`             // as of a refused reload
	File     string `json:"file,omitempty"`   // that the position is in: the revision, or the sidecar's file
	Line     int    `json:"line,omitempty"`   // from 1; 0 means no position
	Column   int    `json:"column,omitempty"` // from 1
	Path     string `json:"path,omitempty"`   // of the key
	Text     string `json:"text"`
	More     int    `json:"more,omitempty"` // errors besides this one
}

// maxRefusal bounds the text of a refusal, in bytes.
const maxRefusal = 1024

// String returns the refusal on one line, as the error of a file is printed.
func (r *Refusal) String() string {
	e := config.Error{File: r.File, Line: r.Line, Column: r.Column, Path: r.Path, Text: r.Text}
	if r.More > 0 {
		return fmt.Sprintf("%v (and %d more)", e.Error(), r.More)
	}
	return e.Error()
}

// RefusalOf returns the refusal of a revision for an error. Of config.Errors it has the first one.
func RefusalOf(revision int64, code string, err error) *Refusal {
	r := &Refusal{Revision: revision, Code: code, Text: err.Error()}
	var all config.Errors
	if errors.As(err, &all) && len(all) > 0 {
		first := all[0]
		for _, e := range all {
			if e.File == NameOf(revision) { // rather than one in the file of the sidecar
				first = e
				break
			}
		}
		r.File, r.Line, r.Column, r.Path, r.Text, r.More = first.File, first.Line, first.Column, first.Path, first.Text, len(all)-1
	}
	r.Text = r.Text[:min(len(r.Text), maxRefusal)]
	return r
}
