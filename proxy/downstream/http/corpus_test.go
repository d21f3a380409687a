package http_test

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestCorpusDownstream: of what a client says, the application gets each request
// that the corpus accepts, and nothing else; the client gets its answers in their
// order, and the next request on the connection its own.
func TestCorpusDownstream(t *testing.T) {
	cases, err := corpus.Requests(proxytest.CorpusDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, direct := range []bool{true, false} {
		for _, how := range proxytest.Feedings {
			t.Run(fmt.Sprintf("direct %v, %s", direct, how.Name), func(t *testing.T) {
				for i := range cases {
					c := &cases[i]
					if how.Skips(i) {
						continue
					}
					t.Run(c.Name, func(t *testing.T) {
						m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: how.Seed, Apps: 1, Direct: direct, Limits: proxytest.CorpusYAML})
						m.W.Options.Cut = how.Cut
						if err := m.CheckRequestCase(c, how.Gap); err != nil {
							t.Errorf("%s: %v\n%.300q", c.Where, err, c.Bytes())
						}
						m.Settled()
					})
				}
			})
		}
	}
}
