package sources

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/remora-proxy/remora/internal/zktest"
)

// zooKeeperNodes are the records of providers in a stand-in for ZooKeeper. scripts/zookeeper-source.sh has a real one.
type zooKeeperNodes struct {
	server *zktest.Server
	known  map[string]bool // paths of the records of the service compute
}

// recordPath returns the node of a provider.
func recordPath(service, scheme, addr, port string) string {
	return "/dubbo/" + service + "/providers/" + url.QueryEscape(fmt.Sprintf("%s://%s:%s/%s?side=provider", scheme, addr, port, service))
}

// publish makes these the providers of the service compute.
func (z *zooKeeperNodes) publish(addrs []string, port string) error {
	now := map[string]bool{}
	for _, a := range addrs {
		path := recordPath("compute", "rest", a, port)
		if now[path] = true; !z.known[path] {
			z.server.Create(path, "")
		}
	}
	for path := range z.known {
		if !now[path] {
			z.server.Delete(path)
		}
	}
	z.known = now
	return nil
}

// many publishes services.
func (z *zooKeeperNodes) many(services int) error {
	for i := range services {
		for _, a := range manyAddrs(i) {
			z.server.Create(recordPath(manyName(i), "dubbo", a, "80"), "")
		}
	}
	return nil
}

// zooKeeperSource is a ZooKeeper.
func zooKeeperSource(t *testing.T) *source {
	z := &zooKeeperNodes{server: zktest.Start(t)}
	return &source{
		find: "discover: zookeeper", publish: z.publish, many: z.many, manyProtocol: "dubbo", watches: z.server.Open,
		keys: fmt.Sprintf(", zookeeper: {servers: [%q], session_timeout: 3s, services: [{service: compute, protocol: rest}]}", z.server.Addr()),
		faults: []fault{
			{name: "unreachable", begin: func() { z.server.Cut(true) }, end: func() { z.server.Cut(false) }, code: "unreachable"},
			{name: "frozen", begin: func() { z.server.Freeze(true) }, end: func() { z.server.Freeze(false) }, code: "unreachable", isLong: true},
			{name: "all sessions ended", begin: z.server.Expire, end: func() {}, isLong: true},
			{name: "its data lost", begin: func() { z.server.Wipe(); z.known = nil }, end: func() {}, isLong: true},
		},
	}
}
