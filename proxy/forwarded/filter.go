package forwarded

import (
	"bytes"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
)

// Verdict is what happens to a header.
type Verdict uint8

// The verdicts.
const (
	Keep   Verdict = iota // it is sent on
	Remove                // it is left out
	Reject                // the request is refused
)

// filter has the names that are removed, in any case, and with _ in place of -: CGI and its
// successors make one variable of X-Real-IP and X_Real_IP, and would take the client's.
type filter struct {
	names       []string // in lower case
	lengths     uint64   // bit n is set if a name has n bytes
	underscores Verdict  // of other names with an underscore
}

// rewritten are names that the sidecar sets: only spellings with _ reach the filter.
var rewritten = []string{"x-forwarded-for", "x-forwarded-proto"}

const maxLength = 63 // longer names share its bit

func newFilter(underscores string, strip []string) *filter {
	f := &filter{}
	switch underscores {
	case config.UnderscoresDrop:
		f.underscores = Remove
	case config.UnderscoresReject:
		f.underscores = Reject
	}
	for _, list := range [][]string{rewritten, strip} {
		for _, name := range list {
			f.names = append(f.names, string(bytes.ToLower([]byte(name))))
			f.lengths |= 1 << min(len(name), maxLength)
		}
	}
	return f
}

func (f *filter) judge(name []byte) Verdict {
	if f.underscores != Keep && bytes.IndexByte(name, '_') >= 0 {
		return f.underscores
	}
	if isAlias(name, protocol.HeaderPrefix) {
		return Remove
	}
	if f.lengths>>min(len(name), maxLength)&1 == 0 {
		return Keep
	}
	for _, n := range f.names {
		if len(n) == len(name) && isAlias(name, n) {
			return Remove
		}
	}
	return Keep
}

// isAlias reports whether name begins with lower, in any case, and with _ in place of any -.
func isAlias(name []byte, lower string) bool {
	if len(name) < len(lower) {
		return false
	}
	for i := range len(lower) {
		switch c := name[i]; {
		case c == lower[i]:
		case 'A' <= c && c <= 'Z' && c|0x20 == lower[i]:
		case c == '_' && lower[i] == '-':
		default:
			return false
		}
	}
	return true
}
