package admin

// Phase is where a sidecar is in its life. Phases only go forward.
type Phase uint32

// The phases.
const (
	Starting Phase = iota // listeners are not all open yet
	Serving               // the only one in which the sidecar may be ready
	Draining              // finishing what is in flight
	Drained               // nothing left; waiting for the signal to end
)

var phaseNames = [...]string{"starting", "serving", "draining", "drained"}

// String returns the phase's name in lower case.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// Enter moves to phase p; going back does nothing.
func (s *Server) Enter(p Phase) {
	for {
		old := s.phase.Load()
		if old >= uint32(p) || s.phase.CompareAndSwap(old, uint32(p)) {
			return
		}
	}
}

// Phase is the phase entered last.
func (s *Server) Phase() Phase { return Phase(s.phase.Load()) }
