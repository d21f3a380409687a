package sidecar

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// gate is a log whose writes block until it is opened.
type gate struct {
	open chan struct{}
	buf  bytes.Buffer
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	return g.buf.Write(b)
}

// TestSlowLogReader: while the log's reader is slow, records are dropped and counted, and
// no writer waits.
func TestSlowLogReader(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	log, _, flush := NewLog(&config.Log{Level: config.LevelInfo, Format: config.FormatText}, g)
	const extra = 100
	for i := range logBacklog + extra {
		log.With("part", "x").Warn("something", "number", i)
	}
	close(g.open)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	flush(ctx)
	log.Info("after")
	flush(ctx)
	out := g.buf.String()
	if n := strings.Count(out, "msg=something part=x"); n < logBacklog || n > logBacklog+1 {
		t.Errorf("%d records written, want the backlog of %d, or one more if the first was written at once", n, logBacklog)
	}
	if !strings.Contains(out, "log records dropped") {
		t.Error("the log does not say that records were dropped")
	}
	if !strings.Contains(out, "msg=after") {
		t.Error("the log has no record after the backlog")
	}
}
