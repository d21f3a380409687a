package registry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/lab/history"
)

// change has endpoints come and go.
func (m *watched) change() {
	m.delete(m.some())
	for _, p := range m.providers {
		if p.since.IsZero() {
			m.start(p)
		}
	}
	sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[rand.IntN(2)]
	m.end(m.some(), sig)
	m.load.Await(200)
}

// retire ends a provider for good.
func (m *watched) retire() {
	last := len(m.providers) - 1
	m.retired = m.providers[last].replica
	m.end(m.providers[last], syscall.SIGTERM)
	m.providers = m.providers[:last]
}

// remove removes keys by hand.
func (m *watched) remove() {
	for _, p := range m.providers {
		if !p.since.IsZero() {
			m.delete(p)
		}
	}
	m.load.Await(100)
}

// awaitEnd waits until the key of a provider is gone.
func (m *watched) awaitEnd(p *provider) {
	m.t.Helper()
	m.eventually("the end of a lease", func(ctx context.Context) error {
		got, err := m.client.Get(ctx, p.key())
		if err == nil && len(got.Kvs) > 0 {
			err = fmt.Errorf("%s is there", p.key())
		}
		return err
	})
}

// endLease kills a provider, and waits for the end of its lease.
func (m *watched) endLease() {
	p := m.some()
	m.end(p, syscall.SIGKILL)
	m.awaitEnd(p)
}

// compact compacts changes that etcd could not send to a consumer yet: more than it keeps for a watch that is slow.
func (m *watched) compact() {
	const puts, size = 250, 32 << 10
	c := m.consumers[0]
	m.outage(c.name, func() {
		c.setSilent(true)
		var last int64
		for i := range puts {
			m.eventually("a put", func(ctx context.Context) error {
				resp, err := m.client.Put(ctx, fmt.Sprintf("%s/app/other/%d", services, i), strings.Repeat("x", size))
				if err == nil {
					last = resp.Header.Revision
				}
				return err
			})
		}
		m.end(m.some(), syscall.SIGTERM)
		m.eventually("a compaction", func(ctx context.Context) error {
			got, err := m.client.Get(ctx, "any")
			if err == nil {
				last = max(last, got.Header.Revision)
				_, err = m.client.Compact(ctx, last, clientv3.WithCompactPhysical())
			}
			return err
		})
		c.setSilent(false)
	})
	m.change()
}

// killLeader kills the member that leads, and starts it again.
func (m *watched) killLeader() {
	leader, _ := m.etcds.Leader()
	m.etcds.Kill(leader)
	m.change()
	m.etcds.Start(leader)
}

// killMajority kills two members at once.
func (m *watched) killMajority() {
	m.outage("", func() {
		leader, others := m.etcds.Leader()
		m.etcds.Kill(leader, others[0])
		m.load.Await(300)
		m.etcds.Start(leader, others[0])
		m.etcds.Leader()
	})
	m.change()
}

// pauseMember pauses a member that does not lead, or the leader.
func (m *watched) pauseMember() {
	member, others := m.etcds.Leader()
	if rand.IntN(2) == 0 {
		member = others[0]
	}
	m.etcds.Signal(syscall.SIGSTOP, member)
	m.change()
	if m.isLong {
		m.load.Await(rand.Int64N(5000))
	}
	m.etcds.Signal(syscall.SIGCONT, member)
	m.etcds.Leader()
}

// cutConsumer cuts a consumer off from etcd, and breaks its connections.
func (m *watched) cutConsumer() {
	c := m.consumers[rand.IntN(len(m.consumers))]
	m.outage(c.name, func() {
		c.setSilent(true)
		for _, f := range c.fronts {
			f.Break()
		}
		m.change()
		c.setSilent(false)
	})
}

// restartConsumer kills a consumer while etcd can't be reached. It starts with its cache.
func (m *watched) restartConsumer() {
	c := m.consumers[rand.IntN(len(m.consumers))]
	m.outage(c.name, func() {
		c.setSilent(true)
		c.process.Signal(syscall.SIGKILL)
		harness.Receive(m.t, "the consumer to end", c.process.Exited)
		m.change()
		c.process = c.process.Again()
		c.process.Ready()
		m.load.Await(100)
		c.setSilent(false)
	})
}

// lag has all consumers lose all members but one, which was paused while the others went on. Requests of the consumers wait for that member
// as it goes on. A consumer whose watch is at that member loses nothing: so it comes twice.
func (m *watched) lag() {
	_, others := m.etcds.Leader()
	late := slices.Index(m.etcds.Members, others[0])
	from := time.Now()
	m.etcds.Signal(syscall.SIGSTOP, others[0])
	m.change()
	for _, c := range m.consumers {
		for i, f := range c.fronts {
			if i != late {
				f.SetSilent(true)
				f.Break()
			}
		}
	}
	m.load.Await(300)
	m.etcds.Signal(syscall.SIGCONT, others[0])
	for _, c := range m.consumers {
		m.log.Put(&history.Outage{Sidecar: c.name, From: from, Until: time.Now()})
	}
	m.change()
	for _, c := range m.consumers {
		c.setSilent(false)
	}
}

// cutProvider cuts a provider off from etcd until its lease has ended.
func (m *watched) cutProvider() {
	p := m.some()
	m.outage(p.name, func() {
		p.setSilent(true)
		m.awaitEnd(p)
		p.setSilent(false)
	})
}
