package dns

import "context"

// Turns bounds the lookups that are in flight at a time. It may serve several Watchers. A nil Turns has no bound.
type Turns chan struct{}

// NewTurns returns Turns for a process.
func NewTurns() Turns { return make(Turns, maxTurns) }

// begin waits for a turn. Its error is that of ctx. Without an error the caller must end the turn.
func (t Turns) begin(ctx context.Context) error {
	if t == nil {
		return nil
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t Turns) end() {
	if t != nil {
		<-t
	}
}
