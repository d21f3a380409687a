package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/lab/load"
	"github.com/remora-proxy/remora/lab/replica"
)

func execute(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

func TestLoadOutput(t *testing.T) {
	r, err := replica.Start(replica.Options{Mode: replica.Fast})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	args := []string{"load", "--rate", "500", "--duration", "100ms", "--warmup", "0s", "--timeout", "20s",
		"--header", "x-tier: gold", "http://" + r.Addr() + "/compute"}
	out, err := execute(context.Background(), args...)
	if err != nil || !strings.HasPrefix(out, "requests   50 in") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = execute(context.Background(), append(args, "--json")...)
	var j load.JSON
	if err != nil || json.Unmarshal([]byte(out), &j) != nil || j.Requests != 50 || j.Errors != 0 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLoadToEachURL(t *testing.T) {
	r, err := replica.Start(replica.Options{Mode: replica.Fast})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	first, second := "http://"+r.Addr()+"/compute", "http://"+r.Addr()+"/healthz"
	out, err := execute(context.Background(), "load", "--each", "--rate", "500", "--duration", "100ms", "--warmup", "0s",
		"--timeout", "20s", first, second)
	if err != nil || !strings.HasPrefix(out, first+"\nrequests   50 in") || !strings.Contains(out, "\n"+second+"\nrequests   50 in") ||
		!strings.Contains(out, "\n| | "+first+" | "+second+" |\n|---|---:|---:|\n| p50 ms | ") || !strings.HasSuffix(out, "\n| failed | 0 | 0 |\n") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestReplicaCounts(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	out, err := execute(ctx, "replica", "--listen", "127.0.0.1:0", "--name", "r7", "--mode", "gc", "--cache-entries", "100")
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(out, "\n")
	var s replica.Stats
	if err := json.Unmarshal([]byte(last), &s); err != nil || s.Name != "r7" || s.Mode != replica.GC || s.Stalls < 1 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestDubboReplica(t *testing.T) {
	run := func(args ...string) (s replica.Stats) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		out, err := execute(ctx, append([]string{"replica", "--listen", "127.0.0.1:0", "--protocol", "dubbo"}, args...)...)
		_, last, _ := strings.Cut(out, "\n")
		if err != nil || json.Unmarshal([]byte(last), &s) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return s
	}
	if s := run(); s.Stalls != 0 {
		t.Errorf("%+v", s)
	}
	if s := run("--stall-mean", "1ms", "--stall-len", "1ms"); s.Stalls == 0 {
		t.Errorf("%+v", s)
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{"load"}, {"load", "--header", "nothing", "http://x/"}, {"load", "--body", "/no/such", "http://x/"},
		{"load", "ftp://x/"}, {"replica", "--mode", "slow"}, {"replica", "--protocol", "smtp"}, {"consumer", "--agent", "nowhere"},
		{"load", "--stages", "1", "--sidecar", "x", "http://x/"}, {"load", "--stages", "0", "http://x/"}, {"demo", "--mode", "slow"}, {"demo", "extra"},
		{"demo", "--seconds", "0"}, {"etcd", "extra"}, {"store", "extra"}, {"callers"}, {"callers", "direct"}, {"callers", "direct=http://127.0.0.1:1/", "--seconds", "7"}, {"callers", "direct=http://127.0.0.1:1/"}, {"store", "--workers", "-1"}, {"replica", "--mode", "expiry"}, {"replica", "--cache-kind", "round"}, {"fish"}, {"steal", "--period", "0s"}, {"bench", "extra"}, {"bench", "memory", "extra"}, {"bench", "work", "--jobs", "idle"}, {"bench", "tail", "--rate", "0"}, {"bench", "dubbo", "--rows", "direct"}, {"plots", "/no/such", "/no/such", "/tmp"}, {"plots", "/tmp"}, {"plots", "--work", "/no/such", "/tmp"}, {"plots", "--work", "/no/such", "/no/such", "/tmp"}, {"bench", "--rows", "squid-1"},
		{"bench", "--rounds", "0"}, {"bench", "--seconds", "0"}, {"bench", "--remora", "/no/such"},
		{"replica", "--listen", "127.0.0.1:0", "--device", "no-such-device"},
		{"certs"}, {"certs", "/none/a", "b"}, {"certs", "/none/a", "--days", "0"}, {"certs", "/none/a", "--leaf", "b"}, {"certs", "/dev/null/a"},
	} {
		if out, err := execute(context.Background(), args...); err == nil {
			t.Errorf("%v was accepted: %s", args, out)
		}
	}
}
