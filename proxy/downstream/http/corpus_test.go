package http_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestCorpusDownstream plays the requests of the corpus as a client. The application gets each
// request that the corpus accepts, and nothing else. The client gets the responses in order,
// and the next request on the connection gets its own.
func TestCorpusDownstream(t *testing.T) {
	cases, err := corpus.Requests(os.DirFS(proxytest.CorpusDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, direct := range []bool{true, false} {
		for _, how := range proxytest.Feedings {
			t.Run(fmt.Sprintf("direct %v, %s", direct, how.Name), func(t *testing.T) {
				for i := range cases {
					c := &cases[i]
					if how.Skips(i) || downstream.BeginsHTTP2(c.Bytes()) {
						continue
					}
					t.Run(c.Name, func(t *testing.T) {
						m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: how.Seed, Apps: 1, OneHop: direct, Limits: proxytest.CorpusYAML})
						m.W.Options.Cut = how.Cut
						if err := proxytest.CheckRequestCase(m, c, how.Gap); err != nil {
							t.Errorf("%s: %v\n%.300q", c.Where, err, c.Bytes())
						}
						m.Settled()
					})
				}
			})
		}
	}
}
