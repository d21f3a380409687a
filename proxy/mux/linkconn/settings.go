package linkconn

import (
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Settings returns what this sidecar announces on its links. Frames and window are the largest: each frame of DATA costs a
// read, and each grant of credit a wake-up of both ends.
func Settings(of *shard.Process) link.Settings {
	s := link.Settings{MaxFrame: link.MaxFrame, MaxStreams: mux.MaxStreams, Window: link.MaxWindow, Features: link.FeatureProbes | link.FeatureCloses}
	if of.Streams {
		s.Features |= link.FeatureStreams
	}
	return s
}

// addedHeaders and addedBytes are the most that a sidecar adds to a message.
const addedHeaders = 6

const addedBytes = 384
