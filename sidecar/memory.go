package sidecar

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/sidecar/program"
)

// memoryBase is the memory of the process in addition to that of messages, which
// limitMemory computes.
const memoryBase = 128 << 20

// limitMemory sets the soft memory limit of the process. Messages may take a quarter
// more than limits.buffered, and the garbage collector may need twice that. Near the
// limit it runs sooner than at twice the live heap, so that a short peak of buffered
// messages does not double the memory.
func limitMemory(cfg *config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryBase + 5*cfg.Limits.Buffered/2)
	}
}

// releaseStart gives back the memory that only the start needs. It collects the garbage of the start, which would stay resident
// until the first collection under load.
func (s *Sidecar) releaseStart() {
	debug.FreeOSMemory()
	s.releasePages()
	s.background.Go(func() { releaseAgain(s.ended, func() bool { return s.released(program.ReleaseConstants()) }) })
}

// releasePages gives back the pages of the program that only a start or a reload uses.
func (s *Sidecar) releasePages() { s.released(program.ReleasePages()) }

// released logs why pages of the program were not given back. It reports whether they were.
func (s *Sidecar) released(err error) bool {
	if err != nil {
		s.log.Warn("pages of the program that are not used any more stay resident", "error", err)
	}
	return err == nil
}

// Constants that only the first requests, a handshake or a scrape used are given back after firstRelease, and then in
// intervals that double up to lastRelease. A look takes 0.1 ms of CPU. Constants that come back take up to 0.5 ms.
const (
	firstRelease = time.Second
	lastRelease  = 10 * time.Second
)

// releaseAgain calls release in these intervals until ctx ends or release reports false.
func releaseAgain(ctx context.Context, release func() bool) {
	for wait := firstRelease; ; wait = min(2*wait, lastRelease) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			if !release() {
				return
			}
		}
	}
}
