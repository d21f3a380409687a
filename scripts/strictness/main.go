// Command strictness compares what Remora, nginx, HAProxy and Envoy make of the
// requests of protocol/http1/testdata. scripts/strictness.sh runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
)

// quiet is how long nothing may happen before a case counts as over; slow is the
// same for a second look at what is not explained, on a machine that may be busy.
const (
	quiet = 500 * time.Millisecond
	slow  = 3 * time.Second
)

func main() {
	binaries := map[string]*string{
		"Remora":  flag.String("remora", "remora", "its binary"),
		"nginx":   flag.String("nginx", "nginx", "its binary"),
		"HAProxy": flag.String("haproxy", "haproxy", "its binary"),
		"Envoy":   flag.String("envoy", "envoy", "its binary"),
	}
	dir := flag.String("dir", os.TempDir(), "a folder for configuration files")
	out := flag.String("out", "", "a document whose table is written, docs/strictness.md")
	list := flag.Bool("list", false, "print each difference")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, binaries, *dir, *out, *list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run stops all proxies before it returns, and returns when ctx ends.
func run(ctx context.Context, binaries map[string]*string, dir, out string, list bool) error {
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
	seen, err := observe(ctx, proxies, cases)
	if err != nil {
		return err
	}
	if err := lookAgain(ctx, proxies, cases, seen, why); err != nil {
		return err
	}
	differences := compare(proxies, cases, seen)
	if list {
		for _, d := range differences {
			fmt.Printf("%s | %s | %s | %s\n", d.proxy.name, d.verdict, d.c.Name, d.ours)
		}
	}
	unexplained := why.explain(differences)
	if out != "" {
		if err := write(out, proxies, len(cases), differences, why); err != nil {
			return err
		}
	}
	for _, d := range unexplained {
		fmt.Printf("not explained: %s, %s: %s, %s: %s\n", d.proxy.name, d.c.Name, d.verdict, d.measure(), d.ours)
	}
	for _, e := range why {
		for _, r := range e.rules {
			if !r.used && !r.sometimes {
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
	proxy   *proxy
	c       *corpus.Case
	ours    string // Remora's verdict; where it is the proxy, the corpus's
	verdict string // the proxy's
}

// own tells that Remora does otherwise than the corpus says, for which there is no
// explanation.
func (d *difference) own() bool { return d.proxy.name == products[0].name }

// measure is what the proxy is held against.
func (d *difference) measure() string {
	if d.own() {
		return "corpus"
	}
	return products[0].name
}

// each does something for each of n things, as many at a time as a product has
// instances, until something fails or ctx ends.
func each(ctx context.Context, n int, do func(instance, thing int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	var next atomic.Int64
	for i := range parallel {
		all.Go(func() {
			for thing := int(next.Add(1)) - 1; thing < n && ctx.Err() == nil; thing = int(next.Add(1)) - 1 {
				if err := do(i, thing); err != nil {
					stop(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// observe says each case to each proxy, to all of them at the same time.
func observe(ctx context.Context, proxies []*proxy, cases []corpus.Case) (seen [][]observed, err error) {
	seen = make([][]observed, len(proxies))
	errs := make([]error, len(proxies))
	var all sync.WaitGroup
	for i, p := range proxies {
		seen[i] = make([]observed, len(cases))
		all.Go(func() {
			errs[i] = each(ctx, len(cases), func(instance, j int) (err error) {
				if seen[i][j], err = p.instances[instance].say(&cases[j], quiet); err != nil {
					err = fmt.Errorf("%s: %s: %w", p.name, cases[j].Name, err)
				}
				return err
			})
		})
	}
	all.Wait()
	return seen, errors.Join(errs...)
}

// compare holds what Remora, the first, makes of each case against the corpus, and
// what the others make of it against Remora.
func compare(proxies []*proxy, cases []corpus.Case, seen [][]observed) (found []*difference) {
	for i := range proxies {
		for j := range cases {
			if d := compareOne(proxies[i], &cases[j], &seen[0][j], &seen[i][j]); d != nil {
				found = append(found, d)
			}
		}
	}
	return found
}

func compareOne(p *proxy, c *corpus.Case, remora, theirs *observed) *difference {
	ours := *remora
	if remora == theirs {
		var ok bool
		if ours, ok = expected(c); !ok {
			return nil
		}
	}
	return differs(p, c, ours, *theirs)
}

// lookAgain takes a second, longer look where a difference is not explained, and
// where an explanation waits for one in vain.
func lookAgain(ctx context.Context, proxies []*proxy, cases []corpus.Case, seen [][]observed, why explanations) error {
	type look struct{ proxy, c int }
	var again []look
	why.explain(compare(proxies, cases, seen))
	for j := range cases {
		var at []look
		for i, p := range proxies {
			d := compareOne(p, &cases[j], &seen[0][j], &seen[i][j])
			if d != nil && why.of(d) == nil || d == nil && why.lack(p, &cases[j]) {
				at = append(at, look{i, j})
			}
		}
		if len(at) > 0 && at[0].proxy != 0 {
			at = append(at, look{0, j})
		}
		again = append(again, at...)
	}
	why.reset()
	return each(ctx, len(again), func(instance, n int) (err error) {
		at := again[n]
		seen[at.proxy][at.c], err = proxies[at.proxy].instances[instance].say(&cases[at.c], slow)
		return err
	})
}
