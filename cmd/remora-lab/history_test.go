package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/lab/history/record"
)

// TestHistory: what one command records another one checks, with the access log of a sidecar.
func TestHistory(t *testing.T) {
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	client, err := record.Client([]string{e.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(t.Context(), "/p/s/n@x", `{"Addr": "x"}`); err != nil {
		t.Fatal(err)
	}
	file, access := filepath.Join(t.TempDir(), "history"), filepath.Join(t.TempDir(), "access")
	ctx, cancel := context.WithCancel(t.Context())
	recorded := make(chan error)
	go func() {
		_, err := execute(ctx, "history", "record", "--etcd", e.Addr(), "--prefix", "/p", "--sidecar", "a=127.0.0.1:1", file)
		recorded <- err
	}()
	eventually.True(t, "ticks", func() bool {
		got, err := client.Get(t.Context(), "/history/tick")
		return err == nil && len(got.Kvs) > 0 && got.Kvs[0].Version > 3
	})
	began := time.Now().UTC()
	must.WriteFile(t, access, `{"time": "`+began.Format(time.RFC3339Nano)+`", "service": "s", "error": "no-endpoint"}`+"\n")
	eventually.True(t, "more ticks", func() bool {
		got, err := client.Get(t.Context(), "/history/tick")
		return err == nil && len(got.Kvs) > 0 && got.Kvs[0].Version > 10
	})
	cancel()
	if err := <-recorded; err != nil {
		t.Fatal(err)
	}
	out, err := execute(t.Context(), "history", "check", file)
	if err != nil || !strings.HasPrefix(out, "1 changes, ") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = execute(t.Context(), "history", "check", "--seen", "1ns", "--access", "a="+access, "--service", "s", file)
	if err == nil || !strings.HasPrefix(out, "empty: sidecar a had no endpoint of service s for a request at ") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err = execute(t.Context(), "history", "check", "--access", "a="+access, file); err == nil {
		t.Errorf("an access log without services: %s", out)
	}
}

// TestHistoryOfViews: the views of a sidecar are recorded also where no etcd can be reached.
func TestHistoryOfViews(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"services": {"s": {"version": 1, "revision": 7, "endpoints": []}}}`)
		if asked.Add(1) > 1 {
			cancel()
		}
	}))
	defer admin.Close()
	file := filepath.Join(t.TempDir(), "history")
	if _, err := execute(ctx, "history", "record", "--sidecar", "a="+strings.TrimPrefix(admin.URL, "http://"), file); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t.Context(), "history", "check", file)
	if err == nil || !strings.Contains(out, "\n0 changes, 0 ticks, 1 views, ") {
		t.Errorf("%v: %s", err, out)
	}
}
