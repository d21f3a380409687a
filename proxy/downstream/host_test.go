package downstream

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/shard"
	"github.com/remora-proxy/remora/proxy/sim"
)

// TestSessionCounts: a session is in the list until it is removed, once or again. Its connection counts until it has closed.
func TestSessionCounts(t *testing.T) {
	h := &Host{Shard: &shard.Shard{Process: new(shard.Process), Config: &config.Config{}}}
	var all [3]*idleSession
	for i := range all {
		all[i] = &idleSession{}
		h.Add(all[i])
	}
	check := func(what string, connections int, want ...*idleSession) {
		t.Helper()
		if n := h.Process.Sessions.Load(); n != int64(len(want)) || len(h.Sessions) != len(want) || h.Stats.Connections != connections {
			t.Errorf("%s: %d sessions, %d in the list, %d connections", what, n, len(h.Sessions), h.Stats.Connections)
		}
		for i, s := range h.Sessions {
			if s != session(want[i]) {
				t.Errorf("%s: another session is at place %d", what, i)
			}
		}
	}
	check("added", 3, all[0], all[1], all[2])
	for range 2 {
		h.Remove(all[0])
		check("the first removed", 3, all[2], all[1])
	}
	h.OnClosed(all[0])
	check("the first closed", 2, all[2], all[1])
	h.OnClosed(all[1])
	check("the second closed", 1, all[2])
	h.OnClosed(all[2])
	check("all closed", 0)
}

// tableSession is an idle session with tables.
type tableSession struct {
	idleSession
	name    string
	account shard.TableAccount
	host    *Host
	closed  *[]string
}

func (s *tableSession) Reclaimable() int { return s.account.Tables() }

func (s *tableSession) CloseIdle() {
	*s.closed = append(*s.closed, s.name)
	s.account.Count(s.host.Shard, 0, 0)
	s.host.OnClosed(s)
}

// TestReclaim: idle sessions close when tables take their part of limits.buffered, the largest first, until a quarter of it is
// free. The rest also has to do for tables of sessions that are not idle, and for tables that are added later.
func TestReclaim(t *testing.T) {
	const part = 1 << 20
	loop := sim.New(1).Loop("a")
	h := &Host{Shard: shard.New(&shard.Process{Loops: 1}, 0, loop, slog.New(slog.DiscardHandler), 1)}
	limits := config.Limits{Buffered: 2 * part, Message: part}
	h.Process.Budget.Configure(&limits)
	h.Configure(&config.Config{Limits: limits})
	var closed []string
	add := func(name string, bytes int) {
		s := &tableSession{name: name, host: h, closed: &closed}
		h.Add(s)
		s.account.Count(h.Shard, 0, bytes)
	}
	loop.Do(func() {
		for i, bytes := range []int{part / 16, part / 4, 1, part / 8, part / 2, part / 32} {
			add(fmt.Sprint(i), bytes)
		}
		without := 0
		h.Add(&idleSession{closed: &without})
		var busy shard.TableAccount
		busy.Count(h.Shard, 0, part/32-1)
		if !h.Tables.Full() {
			t.Error("the tables have room")
		}
		h.Reclaim()
		if got := fmt.Sprint(closed); got != "[4]" || h.Stats.Shed != 1 || h.Tables.Full() {
			t.Errorf("%s are closed, %d counted", got, h.Stats.Shed)
		}
		busy.Count(h.Shard, 0, part)
		h.Reclaim()
		if got := fmt.Sprint(closed); got != "[4 1 3 0 5 2]" || h.Stats.Shed != 6 || h.Tables.Full() {
			t.Errorf("%s are closed beside a busy one, %d counted, full %t", got, h.Stats.Shed, h.Tables.Full())
		}
		busy.Count(h.Shard, 0, 2*part)
		if !h.Tables.Full() {
			t.Error("the tables of the busy one may grow without end")
		}
		if without > 0 {
			t.Error("a session closes that holds no table")
		}
	})
}

// testCaller is a session whose listener and peer have names.
type testCaller struct{ exchange.Caller }

func (testCaller) Listener() *exchange.Listener { return &exchange.Listener{Name: "in"} }
func (testCaller) RemoteAddr() string           { return "192.0.2.1:1" }

// TestRefuse: a request that never began counts as failed, and the log has what was read of it.
func TestRefuse(t *testing.T) {
	read := &exchange.Exchange{}
	read.Request.Method, read.Request.Authority, read.Request.Path = []byte("GET"), []byte("h"), []byte("/a")
	for _, c := range []struct {
		ex   *exchange.Exchange
		want string
	}{{read, " method=GET host=h path=/a"}, {nil, ""}} {
		loop := sim.New(1).Loop("a")
		loop.Do(func() {
			var log strings.Builder
			h := &Host{Shard: shard.New(&shard.Process{Loops: 1}, 0, loop, slog.New(slog.NewTextHandler(&log, nil)), 1)}
			h.Refuse(testCaller{}, c.ex, fault.Overloaded)
			_, line, _ := strings.Cut(log.String(), " msg=")
			want := fmt.Sprintf("%q listener=in code=overloaded reason=%q peer=192.0.2.1:1%s omitted=0\n", "request refused", fault.Overloaded.Text, c.want)
			if line != want {
				t.Errorf("logged %s, want %s", line, want)
			}
			if n := h.Stats.Unrouted["in"]; n != 1 {
				t.Errorf("%d requests without a route are counted", n)
			}
		})
	}
}
