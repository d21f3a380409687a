package harness

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// mixing says which sidecars of the tests run an earlier release, and which ones Binary. scripts/versions.sh sets its
// variables.
type mixing struct {
	release string // the program of the earlier release; "" means that all sidecars run Binary
	by      string // what decides, one of the mixes
}

// The mixes.
const (
	byProviders = "providers" // sidecars that accept links run the release, all others Binary
	byConsumers = "consumers" // the other way round
	byTurns     = "turns"     // the first process with a file runs the release, its successor Binary, the next the release
)

// readMixing reads the environment.
func readMixing() (m mixing, err error) {
	m = mixing{release: os.Getenv("REMORA_EARLIER"), by: os.Getenv("REMORA_MIX")}
	if m.release == "" {
		return m, nil
	}
	if _, err := os.Stat(m.release); err != nil {
		return m, err
	}
	if mixes := []string{byProviders, byConsumers, byTurns}; !slices.Contains(mixes, m.by) {
		return m, fmt.Errorf("REMORA_MIX is %q, not one of %q", m.by, mixes)
	}
	return m, nil
}

// program returns the program that p runs next.
func (m *mixing) program(p *Process) string {
	if m.release == "" {
		return Binary
	}
	isEarlier := p.starts%2 == 0
	if m.by != byTurns {
		isEarlier = p.acceptsLinks() == (m.by == byProviders)
	}
	if isEarlier {
		return m.release
	}
	return Binary
}

// NeedsBinary skips a test of what the earlier release does not do, if a sidecar may run that release.
func NeedsBinary(t *testing.T) {
	if mix.release != "" {
		t.Skip("the earlier release does not do this")
	}
}

// acceptsLinks reports whether a listener of p is for the links of other sidecars. A file that is wrong has no listeners.
func (p *Process) acceptsLinks() bool {
	cfg, err := config.Load(p.File)
	return err == nil && slices.ContainsFunc(cfg.Listeners, func(l config.Listener) bool { return l.Protocol == config.ProtocolLink })
}

// Command returns "remora run" with the configuration of p.
func (p *Process) Command(flags ...string) *exec.Cmd {
	return exec.Command(mix.program(p), append([]string{"run", "-c", p.File}, flags...)...)
}
