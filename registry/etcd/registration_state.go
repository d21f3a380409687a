package etcd

import "github.com/remora-proxy/remora/registry"

// goal is the state that a handle's owner wants.
type goal uint8

const (
	up      goal = iota // registered
	yielded             // unchanged: the lease is kept alive, and the key belongs to another process
	down                // withdrawn, for now
	closed              // withdrawn, forever
)

// unreached is the state from the choice of a goal until it is reached. A yielded registration keeps its state.
var unreached = [...]registry.State{up: registry.Pending, down: registry.Withdrawn, closed: registry.Pending}

// stateEdges are the changes of a registration's state.
//
//	pending    ──▶ registered  the key is put
//	           ──▶ withdrawn   Withdraw
//	           ──▶ closed      the lease is revoked, or Close gives up
//	           ──▶ failed      the registration is invalid
//	registered ──▶ pending     it broke, its value changes, or it closes
//	           ──▶ withdrawn   Withdraw
//	withdrawn  ──▶ pending     Restore, or it closes
var stateEdges = [registry.Failed + 1][registry.Failed + 1]bool{
	registry.Pending:    {registry.Registered: true, registry.Withdrawn: true, registry.Closed: true, registry.Failed: true},
	registry.Registered: {registry.Pending: true, registry.Withdrawn: true},
	registry.Withdrawn:  {registry.Pending: true},
}

// become changes the state. To stay in it is no change.
func (h *handle) become(next registry.State) {
	if next != h.state && !stateEdges[h.state][next] {
		panic("registry/etcd: a registration can't go from " + h.state.String() + " to " + next.String())
	}
	h.state = next
}
