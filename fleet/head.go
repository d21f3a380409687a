package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// Head says which sidecar runs which revision. Revisions count from 1; revision 0 is the file of each sidecar alone.
type Head struct {
	Newest    int64   `json:"newest"`              // the last revision that was set
	Stable    int64   `json:"stable"`              // the revision of all sidecars that no roll-out reaches
	Past      []int64 `json:"past,omitempty"`      // revisions that were stable before, the latest last; at most maxPast
	Candidate int64   `json:"candidate,omitempty"` // the revision that is rolled out; 0 means no roll-out
	To        Target  `json:"to,omitzero"`         // the sidecars that run Candidate
	Guard     *Guard  `json:"guard,omitempty"`     // of the roll-out; nil means none
	Change    Change  `json:"change"`              // the last one
}

// Change says how the head came to be.
type Change struct {
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"`
	What string    `json:"what"`
	Why  string    `json:"why,omitempty"` // of a guard
}

// maxPast bounds the revisions that rollback finds without their numbers.
const maxPast = 16

// Revision is an overlay. It never changes.
type Revision struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	Text   string    `json:"text"` // YAML, at most MaxText bytes
}

// Same reports whether r and o have the same number and text.
func (r *Revision) Same(o *Revision) bool { return r.Number == o.Number && r.Text == o.Text }

// NameOf returns the name of a revision in errors.
func NameOf(revision int64) string { return "revision " + strconv.FormatInt(revision, 10) }

// Overlay returns the revision as an overlay; nil for revision 0.
func (r *Revision) Overlay() *config.Overlay {
	if r.Number == 0 {
		return nil
	}
	return &config.Overlay{Name: NameOf(r.Number), Text: []byte(r.Text)}
}

// MaxText bounds an overlay, in bytes. etcd refuses requests above 1.5 MiB.
const MaxText = 256 << 10

// Errors of changes.
var (
	ErrUnderWay  = errors.New("a roll-out is under way: finish it with rollout --to 100%, or take it back with rollback")
	ErrNoRollout = errors.New("no roll-out is under way")
	ErrNoPast    = errors.New("there is no revision before; rollback 0 leaves only the files")
)

// RevisionOf returns the revision that a sidecar runs.
func (h *Head) RevisionOf(node string, labels map[string]string) int64 {
	if h.Candidate != 0 && h.To.Selects(node, labels) {
		return h.Candidate
	}
	return h.Stable
}

// Set adds a revision and rolls it out.
func (h Head) Set(to Target, guard *Guard, change Change) (Head, error) {
	if h.Candidate != 0 {
		return h, fmt.Errorf("revision %d: %w", h.Candidate, ErrUnderWay)
	}
	h.Newest++
	h.Candidate = h.Newest
	return h.Rollout(to, guard, change)
}

// Rollout changes which sidecars run the candidate. A roll-out to all sidecars makes the candidate stable. A nil guard
// leaves the guard as it is.
func (h Head) Rollout(to Target, guard *Guard, change Change) (Head, error) {
	if h.Candidate == 0 {
		return h, ErrNoRollout
	}
	if guard != nil {
		h.Guard = guard
	}
	if to.Percent >= h.To.Percent && h.To.Percent > 0 {
		to.Cut = max(to.Cut, h.To.Cut) // also if fewer sidecars are known now
	}
	h.To = to
	change.What = fmt.Sprintf("revision %d to %s", h.Candidate, to)
	if to.All() {
		h.stabilize(h.Candidate)
	}
	h.Change = change
	return h, nil
}

// Rollback takes the roll-out back; without one it returns to the revision that was stable before.
func (h Head) Rollback(change Change) (Head, error) {
	switch {
	case h.Candidate != 0:
		change.What = fmt.Sprintf("roll-out of revision %d taken back", h.Candidate)
		h.endRollout()
	case len(h.Past) == 0:
		return h, ErrNoPast
	default:
		last := len(h.Past) - 1
		change.What = fmt.Sprintf("revision %d back to %d", h.Stable, h.Past[last])
		h.Stable, h.Past = h.Past[last], slices.Clone(h.Past[:last])
	}
	h.Change = change
	return h, nil
}

// RollbackTo makes all sidecars run a revision that was set before, or 0.
func (h Head) RollbackTo(revision int64, change Change) (Head, error) {
	if revision < 0 || revision > h.Newest {
		return h, fmt.Errorf("there is no revision %d; the newest is %d", revision, h.Newest)
	}
	change.What = fmt.Sprintf("back to revision %d", revision)
	h.stabilize(revision)
	h.Change = change
	return h, nil
}

// stabilize ends the roll-out, and makes a revision the stable one.
func (h *Head) stabilize(revision int64) {
	h.endRollout()
	if revision == h.Stable {
		return
	}
	h.Past = append(slices.Clone(h.Past), h.Stable)
	h.Past = h.Past[max(0, len(h.Past)-maxPast):]
	h.Stable = revision
}

func (h *Head) endRollout() { h.Candidate, h.To, h.Guard = 0, Target{}, nil }
