package http_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/proxy/proxytest"
)

// TestCorpusUpstream plays the responses of the corpus as an application. The caller gets the
// response that the corpus accepts, or one 502 or 504. The next requests, on this connection
// and on another, get their own responses.
func TestCorpusUpstream(t *testing.T) {
	cases, err := corpus.Responses(os.DirFS(proxytest.CorpusDir))
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
						m := proxytest.NewMesh(t, proxytest.MeshOptions{Seed: how.Seed, Apps: 1, OneHop: direct, Limits: proxytest.CorpusYAML,
							Service: "timeout: 30s", Provider: "timeout: 30s"})
						m.W.Options.Cut = how.Cut
						if err := proxytest.CheckResponseCase(m, c, how.Gap); err != nil {
							t.Errorf("%s: %v\n%.300q", c.Where, err, c.Bytes())
						}
						m.Settled()
					})
				}
			})
		}
	}
}
