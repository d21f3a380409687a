package sidecar

import (
	"cmp"
	"log/slog"
	"os"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

// quiet returns the options of a sidecar in this process: with the engine that $ENGINE names, and without a log.
func quiet(t *testing.T, cfg *config.Config, successors string) Options {
	t.Helper()
	kind, err := engine.Find(cmp.Or(os.Getenv("ENGINE"), engine.Auto))
	if err != nil {
		t.Fatal(err)
	}
	return Options{Config: cfg, Engine: kind, Successors: successors, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar)}
}
