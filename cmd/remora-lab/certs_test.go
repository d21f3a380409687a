package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCerts: the command lists what it has written, and writes it once.
func TestCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	out, err := execute(context.Background(), "certs", dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range strings.Fields(out) {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
		names = append(names, filepath.Base(path))
	}
	if got := strings.Join(names, " "); got != "ca.pem ca-key.pem consumer.pem consumer-key.pem provider.pem provider-key.pem" {
		t.Errorf("files: %s", got)
	}
	if out, err := execute(context.Background(), "certs", dir); err == nil || !strings.Contains(err.Error(), "nothing is replaced") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = execute(context.Background(), "certs", filepath.Join(dir, "more"), "--leaf", "a=localhost", "--leaf", "b=10.0.0.1,b.test", "--days", "1")
	if err != nil || strings.Count(out, "\n") != 6 {
		t.Errorf("%v: %s", err, out)
	}
}
