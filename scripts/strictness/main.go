// Command strictness compares what Remora, nginx, HAProxy and Envoy make of the
// requests of protocol/http1/testdata. scripts/strictness.sh runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
)

// quiet is how long nothing may happen before a case counts as over; slow is the
// same for a second look at what differs, on a machine that may be busy.
const (
	quiet = 150 * time.Millisecond
	slow  = 1500 * time.Millisecond
)

func main() {
	binaries := map[string]*string{
		"Remora":  flag.String("remora", "remora", "its binary"),
		"nginx":   flag.String("nginx", "nginx", "its binary"),
		"HAProxy": flag.String("haproxy", "haproxy", "its binary"),
		"Envoy":   flag.String("envoy", "envoy", "its binary"),
	}
	dir := flag.String("dir", os.TempDir(), "a folder for configuration files")
	out := flag.String("out", "docs/strictness.md", "the document whose table is written")
	list := flag.Bool("list", false, "print each difference")
	flag.Parse()
	if err := run(binaries, *dir, *out, *list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(binaries map[string]*string, dir, out string, list bool) error {
	cases, err := corpus.Requests("protocol/http1/testdata")
	if err != nil {
		return err
	}
	why, err := readExplanations("scripts/strictness/explained.txt")
	if err != nil {
		return err
	}
	var proxies []*proxy
	for i := range products {
		binary, err := exec.LookPath(*binaries[products[i].name])
		if err != nil {
			return err
		}
		p, err := products[i].start(binary, dir)
		if p != nil {
			defer p.stop()
		}
		if err != nil {
			return err
		}
		proxies = append(proxies, p)
		fmt.Println(p.name+":", p.version)
	}
	differences, err := compare(proxies, cases)
	if err != nil {
		return err
	}
	if list {
		for _, d := range differences {
			fmt.Printf("%s\t%s\t%s\t(Remora: %s)\n", d.proxy, d.verdict, d.c.Name, d.ours)
		}
	}
	unexplained := why.explain(differences)
	if err := write(out, proxies, len(cases), differences, why); err != nil {
		return err
	}
	for _, d := range unexplained {
		fmt.Printf("not explained: %s, %s: %s, Remora: %s\n", d.proxy, d.c.Name, d.verdict, d.ours)
	}
	for _, e := range why {
		for _, r := range e.rules {
			if !r.used {
				unexplained = append(unexplained, nil)
				fmt.Printf("explains nothing: %s | %s | %s\n", r.proxy, r.verdict, r.cases)
			}
		}
	}
	fmt.Printf("%d requests, %d differences, %d findings that are not explained\n", len(cases), len(differences), len(unexplained))
	if len(unexplained) > 0 {
		return fmt.Errorf("see scripts/strictness/explained.txt")
	}
	return nil
}

// difference is a case of which a proxy makes something else than Remora.
type difference struct {
	proxy   string
	c       *corpus.Case
	ours    string // Remora's verdict
	verdict string // the proxy's
	entry   *explanation
}

// compare says each case to each proxy; the proxies are asked at the same time.
func compare(proxies []*proxy, cases []corpus.Case) ([]*difference, error) {
	seen := make([][]observed, len(proxies))
	errs := make([]error, len(proxies))
	var all sync.WaitGroup
	for i, p := range proxies {
		seen[i] = make([]observed, len(cases))
		all.Go(func() {
			for j := range cases {
				if seen[i][j], errs[i] = p.say(&cases[j], quiet); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", proxies[i].name, err)
		}
	}
	var found []*difference
	for i := range proxies[1:] {
		for j := range cases {
			ours, theirs := seen[0][j], seen[i+1][j]
			if differs(ours, theirs) == "" {
				continue
			}
			ours, theirs, err := again(proxies[0], proxies[i+1], &cases[j])
			if err != nil {
				return nil, err
			}
			if verdict := differs(ours, theirs); verdict != "" {
				found = append(found, &difference{proxy: proxies[i+1].name, c: &cases[j], ours: ours.verdict, verdict: verdict})
			}
		}
	}
	return found, nil
}

// again takes a second, longer look at a difference.
func again(ours, theirs *proxy, c *corpus.Case) (a, b observed, err error) {
	var all sync.WaitGroup
	var errA, errB error
	all.Go(func() { a, errA = ours.say(c, slow) })
	all.Go(func() { b, errB = theirs.say(c, slow) })
	all.Wait()
	if errA == nil {
		errA = errB
	}
	return a, b, errA
}
