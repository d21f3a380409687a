package link

// Limits of version 1, whatever the settings say.
const (
	// MaxFrame is the longest frame, header included, in bytes.
	MaxFrame = 16 << 10
	// MinFrame is the smallest MaxFrame setting that a peer may announce.
	MinFrame = 4 << 10
	// MaxWindow is the most DATA that is ever unacknowledged in one direction.
	MaxWindow = 256 << 10
)

// Settings is what one side tells the other in its preface about what it can
// receive. The zero value of a field means the default.
type Settings struct {
	// MaxFrame is the longest frame in bytes, header included, that this side
	// takes: MinFrame to MaxFrame. Default: MaxFrame.
	MaxFrame uint32
	// Window is how many bytes of DATA this side lets the other send without
	// CREDIT: at least MaxFrame, at most MaxWindow. Default: 128 KiB.
	Window uint32
	// MaxStreams is how many requests the other side may have open. The Writer
	// does not count them: the caller does. Default: 4096.
	MaxStreams uint32
	// Features is a set of bits, of which unknown ones are ignored: see
	// FeatureStreams.
	Features uint64
}

// withDefaults fills in zero fields and forces the others into their range.
func (s Settings) withDefaults() Settings {
	if s.MaxFrame == 0 {
		s.MaxFrame = MaxFrame
	}
	s.MaxFrame = min(max(s.MaxFrame, MinFrame), MaxFrame)
	if s.Window == 0 {
		s.Window = 128 << 10
	}
	s.Window = min(max(s.Window, s.MaxFrame), MaxWindow)
	if s.MaxStreams == 0 {
		s.MaxStreams = 4096
	}
	return s
}
