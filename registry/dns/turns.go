package dns

import (
	"context"
	"time"
)

const (
	maxBegun   = 64                     // lookups of a process that begin within turnTime: a start with a thousand names must not flood a name server
	turnTime   = 250 * time.Millisecond // after that, a lookup that still runs keeps no other one from beginning
	maxLookups = 1024                   // in flight in a process: each may have a socket
)

// Turns paces the beginning of lookups, and bounds those that are in flight. It may serve several Watchers. A nil Turns does neither.
type Turns struct {
	begun    chan struct{} // has an element for each lookup that has just begun
	inFlight chan struct{} // has an element for each lookup that runs
}

// NewTurns returns Turns for a process.
func NewTurns() *Turns { return newTurns(maxBegun, maxLookups) }

func newTurns(begun, inFlight int) *Turns {
	return &Turns{make(chan struct{}, begun), make(chan struct{}, inFlight)}
}

// begin waits until a lookup may begin. Its error is that of ctx. Without an error the caller must call end after the lookup.
func (t *Turns) begin(ctx context.Context) (end func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	if err := enter(ctx, t.begun); err != nil {
		return nil, err
	}
	if err := enter(ctx, t.inFlight); err != nil {
		<-t.begun
		return nil, err
	}
	turn := time.AfterFunc(turnTime, func() { <-t.begun })
	return func() {
		if turn.Stop() {
			<-t.begun
		}
		<-t.inFlight
	}, nil
}

func enter(ctx context.Context, room chan<- struct{}) error {
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
