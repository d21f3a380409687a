package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/lab/precise"
)

// stormOf is the kind of handshake that a storm makes.
var stormOf = Handshake{AtListener, false, tls.VersionTLS13, tls.X25519MLKEM768}

// stormName is the name of stormy.
func stormName(job Job) string { return calmName(job) + ", beside handshakes" }

// stormy is calm beside full handshakes, so many a second.
func stormy(job Job, rate float64, d time.Duration) Load {
	l := calm(job, d)
	l.Name = stormName(job)
	send := l.send
	l.send = func(ctx context.Context, s *Stack) (r *Result, err error) {
		failed, stormErr := s.inStorm(job, rate, func() { r, err = send(ctx, s) })
		if err == nil {
			r.Errors += failed
		}
		return r, errors.Join(err, stormErr)
	}
	return l
}

// inStorm runs do while a process makes handshakes, so many a second. It returns how many failed. The process is not this one:
// the requests beside the handshakes would wait for them here, and not in the proxy.
func (s *Stack) inStorm(job Job, rate float64, do func()) (failed int64, err error) {
	storm := exec.Command(s.Tools[Lab], "storm", s.dir, s.called(job), "--rate", strconv.FormatFloat(rate, 'f', -1, 64))
	var stdout, stderr bytes.Buffer
	storm.Stdout, storm.Stderr = &stdout, &stderr
	stdin, err := storm.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := storm.Start(); err != nil {
		return 0, err
	}
	do()
	stdin.Close() // ends the storm
	if err := storm.Wait(); err != nil {
		return 0, fmt.Errorf("storm of handshakes: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strconv.ParseInt(strings.TrimSpace(stdout.String()), 10, 64)
}

// Storm makes full handshakes with the server at addr, so many a second, until in ends, and writes how many failed. dir has
// the certificates ca.pem and cert.pem with key.pem.
func Storm(ctx context.Context, dir, addr string, rate float64, in io.Reader, out io.Writer) error {
	clients, err := (&Stack{dir: dir, Addr: addr}).clients(ctx, stormOf, 1)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	_, err = fmt.Fprintln(out, clients[0].storm(ctx, rate))
	return err
}

// storm makes so many handshakes a second until ctx ends, whatever becomes of earlier ones. It returns how
// many failed.
func (c *tlsClient) storm(ctx context.Context, rate float64) int64 {
	var all sync.WaitGroup
	var failed atomic.Int64
	gap := time.Duration(float64(time.Second) / rate)
	for due := time.Now(); ctx.Err() == nil; due = due.Add(gap) {
		precise.SleepUntil(due)
		all.Go(func() {
			// ctx ends the storm, not its last handshakes.
			if err := c.handshake(context.WithoutCancel(ctx)); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return failed.Load()
}

// beside limits the P99 of requests beside handshakes, of that without, round by round.
func (s Samples) beside(row string, job Job) Verdict {
	v := Verdict{What: "p99 of requests beside handshakes, of that without them: " + row, Limit: 1.2}
	for _, sample := range s {
		beside, ok := sample.Figures[P99]
		if base := s.at(sample.Round, row, calmName(job))[P99]; ok && base > 0 && sample.Row == row && sample.Load == stormName(job) {
			v.Values = append(v.Values, beside/base)
		}
	}
	v.Measured, v.Rounds = median(v.Values), len(v.Values)
	v.Restless = s.restless(calmName(job), P99, row) || s.restless(stormName(job), P99, row)
	return v
}
