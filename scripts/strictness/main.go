// Command strictness compares what Remora, nginx, HAProxy and Envoy make of the
// requests of protocol/http1/testdata. scripts/strictness.sh runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
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
	out := flag.String("out", "docs/strictness.md", "the document whose table is written")
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
	differences, err := compare(ctx, proxies, cases)
	if err != nil {
		return err
	}
	if list {
		for _, d := range differences {
			fmt.Printf("%s | %s | %s | %s\n", d.proxy.name, d.verdict, d.c.Name, d.ours)
		}
	}
	if differences, err = lookAgain(ctx, proxies[0], differences, why); err != nil {
		return err
	}
	unexplained := why.explain(differences)
	if err := write(out, proxies, len(cases), differences, why); err != nil {
		return err
	}
	for _, d := range unexplained {
		fmt.Printf("not explained: %s, %s: %s, Remora: %s\n", d.proxy.name, d.c.Name, d.verdict, d.ours)
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
	proxy   *proxy
	c       *corpus.Case
	ours    string // Remora's verdict
	verdict string // the proxy's
}

// compare says each case to each proxy; the proxies are asked at the same time.
func compare(ctx context.Context, proxies []*proxy, cases []corpus.Case) ([]*difference, error) {
	seen := make([][]observed, len(proxies))
	errs := make([]error, len(proxies))
	var all sync.WaitGroup
	for i, p := range proxies {
		seen[i] = make([]observed, len(cases))
		all.Go(func() {
			for j := range cases {
				if seen[i][j], errs[i] = p.say(&cases[j], quiet); errs[i] == nil {
					errs[i] = ctx.Err()
				}
				if errs[i] != nil {
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
	for i, p := range proxies[1:] {
		for j := range cases {
			if d := differs(p, &cases[j], seen[0][j], seen[i+1][j]); d != nil {
				found = append(found, d)
			}
		}
	}
	return found, nil
}

// lookAgain takes a second, longer look at the differences that are not explained,
// and leaves out those that it does not see.
func lookAgain(ctx context.Context, ours *proxy, differences []*difference, why explanations) (stay []*difference, err error) {
	for _, d := range differences {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if why.of(d) == nil {
			a, err := ours.say(d.c, slow)
			if err != nil {
				return nil, err
			}
			b, err := d.proxy.say(d.c, slow)
			if err != nil {
				return nil, err
			}
			d = differs(d.proxy, d.c, a, b)
		}
		if d != nil {
			stay = append(stay, d)
		}
	}
	return stay, nil
}
