package linkconn_test

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/proxytest"
)

// A long body leaves in three writes for each window, credit included.
func TestWritesOfLongBody(t *testing.T) {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{Apps: 1})
	before := m.Consumer.Report().Stats.LinkFlushes
	c := m.Post(1 << 20)
	m.Do(c)
	m.OK(c)
	if n := m.Consumer.Report().Stats.LinkFlushes - before; n > 14 {
		t.Errorf("%d writes for 1 MiB", n)
	}
	m.Settled()
}
