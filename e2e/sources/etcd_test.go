package sources

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
)

// etcdKeys are the keys of the service in a cluster of etcd.
type etcdKeys struct {
	cluster *harness.Etcds
	known   map[string]bool // by the address in the key
}

// publish makes these the keys of the service.
func (k *etcdKeys) publish(addrs []string, port string) error {
	ctx, cancel := context.WithTimeout(k.cluster.Client.Ctx(), 10*time.Second)
	defer cancel()
	now := map[string]bool{}
	for _, a := range addrs {
		now[a] = true
	}
	key := func(a string) string { return "/remora/services/compute/n@" + a }
	for a := range now {
		if k.known[a] {
			continue
		}
		if _, err := k.cluster.Client.Put(ctx, key(a), fmt.Sprintf(`{"Op": 0, "Addr": "%s:%s"}`, a, port)); err != nil {
			return err
		}
		k.known[a] = true
	}
	for a := range k.known {
		if now[a] {
			continue
		}
		if _, err := k.cluster.Client.Delete(ctx, key(a)); err != nil {
			return err
		}
		delete(k.known, a)
	}
	return nil
}

// many publishes services.
func (k *etcdKeys) many(services int) error {
	ctx, cancel := context.WithTimeout(k.cluster.Client.Ctx(), time.Minute)
	defer cancel()
	const most = 128 // operations of a transaction
	var puts []clientv3.Op
	for i := range services {
		for _, a := range manyAddrs(i) {
			puts = append(puts, clientv3.OpPut("/remora/services/"+manyName(i)+"/n@"+a, fmt.Sprintf(`{"Op": 0, "Addr": "%s:80"}`, a)))
		}
	}
	for chunk := range slices.Chunk(puts, most) {
		if _, err := k.cluster.Client.Txn(ctx).Then(chunk...).Commit(); err != nil {
			return err
		}
	}
	return nil
}

// etcdSource is a cluster of three etcds.
func etcdSource(t *testing.T) *source {
	c := harness.StartEtcds(t)
	k := &etcdKeys{cluster: c, known: map[string]bool{}}
	c.Leader()
	var some []*harness.EtcdMember // of the fault
	majority := func() []*harness.EtcdMember {
		leader, others := c.Leader()
		return []*harness.EtcdMember{leader, others[0]}
	}
	return &source{
		find: "discover: etcd", keys: fmt.Sprintf(", etcd: {endpoints: %s, lease_ttl: 2s}", c.Fronts()), publish: k.publish,
		many: k.many, watches: func() int { return c.Metric("etcd_debugging_mvcc_watch_stream_total") },
		faults: []fault{
			{name: "leader killed", begin: func() { some = majority()[:1]; c.Kill(some...) }, end: func() { c.Start(some...) }},
			{name: "majority killed", begin: func() { some = majority(); c.Kill(some...) }, end: func() { c.Start(some...) }, code: "unreachable"},
			{
				name:  "majority frozen",
				begin: func() { some = majority(); c.Signal(syscall.SIGSTOP, some...) }, end: func() { c.Signal(syscall.SIGCONT, some...) },
				code: "unreachable", isLong: true,
			},
			{name: "one silent", begin: func() { c.SetSilent(true, c.Members[0]) }, end: func() { c.SetSilent(false, c.Members...) }, isLong: true},
			{name: "all silent", begin: func() { c.SetSilent(true, c.Members...) }, end: func() { c.SetSilent(false, c.Members...) }, code: "unreachable"},
			{name: "killed, and its data lost", begin: func() { c.Wipe(); clear(k.known) }, end: func() {}, isLong: true},
		},
	}
}
