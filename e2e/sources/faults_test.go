package sources

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
)

// TestFaults: no request fails while a source is killed, cut off, frozen, wiped or broken, although a replica ends
// meanwhile. /readyz?verbose says that the source is down, and the log once for each code. Afterwards the view of the
// sidecar is right again.
func TestFaults(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			src := s.make(t)
			r := newReplicas(t, 20)
			p, egress := src.start(t, r)
			for _, f := range src.faults {
				if f.isLong && testing.Short() {
					continue
				}
				told := linesByCode(p.Output.String())
				l := startLoad(t, egress)
				l.Await(100)
				f.begin()
				r.stopOne()
				if f.code != "" {
					eventually.True(t, f.name+": the source to be down, and the log to say so", func() bool {
						status, body := p.Get("/readyz?verbose")
						return status == 200 && strings.Contains(body, fmt.Sprintf("[-]%s failed: %s since ", s.name, f.code)) &&
							linesByCode(p.Output.String())[f.code] > told[f.code]
					})
				}
				l.Await(500)
				f.end()
				r.add()
				eventually.Nil(t, f.name+": to publish", func() error { return src.publish(r.addrs(), r.port) })
				t.Logf("%s: right %v after the end", f.name, r.await(p, "after "+f.name))
				eventually.True(t, f.name+": the source to be up", func() bool {
					_, body := p.Get("/readyz?verbose")
					return strings.Contains(body, "[+]"+s.name+" ok")
				})
				l.Await(100)
				l.End(f.name)
				for code, n := range linesByCode(p.Output.String()) {
					if n -= told[code]; n > 1 {
						t.Errorf("%s: %d lines of the log say %s", f.name, n, code)
					}
				}
			}
		})
	}
}

var lostSource = regexp.MustCompile(`last (?:known endpoints|addresses) stay in use"? .*\bcode=(\w+)`)

// linesByCode counts the lines of a log that tell of a lost source, by their code.
func linesByCode(log string) map[string]int {
	all := map[string]int{}
	for _, found := range lostSource.FindAllStringSubmatch(log, -1) {
		all[found[1]]++
	}
	return all
}
