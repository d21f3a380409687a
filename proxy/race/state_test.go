package race

import (
	"testing"

	"github.com/remora-proxy/remora/internal/statetest"
)

// TestRaceTransitions: a race that is over launches no attempt.
func TestRaceTransitions(t *testing.T) {
	statetest.Check(t, (*raceState).become, map[raceState][]raceState{
		raceIdle: {raceOn},
		raceOn:   {raceOver},
		raceOver: {raceIdle},
	})
}

// TestAttemptTransitions: an attempt that began ends once, so that it gives back its slot
// once. Only one that was sent may linger.
func TestAttemptTransitions(t *testing.T) {
	statetest.Check(t, (*attemptState).become, map[attemptState][]attemptState{
		attemptIdle:      {attemptLaunched},
		attemptLaunched:  {attemptIdle, attemptQueued, attemptAsking, attemptSent},
		attemptQueued:    {attemptIdle, attemptAsking, attemptSent},
		attemptAsking:    {attemptIdle, attemptSent},
		attemptSent:      {attemptIdle, attemptLingering},
		attemptLingering: {attemptIdle},
	})
}

// TestStreamTransitions: a stream that is over stays over. One that is open is not tried elsewhere.
func TestStreamTransitions(t *testing.T) {
	statetest.Check(t, (*streamState).become, map[streamState][]streamState{
		streamSeeking:    {streamConnecting, streamOver},
		streamConnecting: {streamSeeking, streamOpen, streamOver},
		streamOpen:       {streamOver},
		streamOver:       {},
	})
}
