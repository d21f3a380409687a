package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The shares of changes that tests must notice. Equivalent changes do not count.
const (
	least       = 0.95
	leastStrict = 1 // of the packages in strict
)

// usual are the folders that a run without folders measures.
var usual = []string{"proxy/...", "protocol/...", "lb/...", "registry/..."}

// strict are packages whose changes let somebody in who should stay out.
var strict = []string{"proxy/allow", "proxy/certs"}

// testers are packages whose tests are those of another package, too: a part of a request's way is tested by the whole of it.
var testers = map[string][]string{
	"proxy":                 {"proxy/shard"},
	"proxy/downstream":      {"proxy/downstream/http"},
	"proxy/downstream/link": {"proxy/mux/linkconn"},
	"proxy/exchange":        {"proxy/filter/fallback", "proxy/filter/mirror", "proxy/telemetry/trace"},
	"proxy/identity":        {"proxy/allow"},
	"proxy/mux":             {"proxy/upstream/dubbo"},
	"proxy/mux/linkconn":    {"proxy/downstream/link"},
	"proxy/race":            {"proxy/exchange", "proxy/telemetry/trace"},
	"proxy/reactor/epoll":   {"proxy/reactor/kernel"},
	"proxy/reactor/gnet":    {"proxy/reactor/kernel"},
	"proxy/service":         {"proxy/exchange"},
	"proxy/upstream/link":   {"proxy/mux/linkconn", "proxy/downstream/link", "proxy/exchange"},
}

func main() {
	seed := flag.Uint64("seed", 1, "chooses the changes")
	each := flag.Int("each", 20, "changes of each package; 0 means all")
	file := flag.String("log", "", "where verdicts are kept, so that another run goes on (default bin/mutate/SEED.log)")
	jobs := flag.Int("jobs", 2, "changes that are tried at a time")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mutate [flags] [FOLDER ...]\n\nA folder may end in /... for all that is in it.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *file == "" {
		*file = fmt.Sprintf("bin/mutate/%d.log", *seed)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folders := flag.Args()
	if len(folders) == 0 {
		folders = usual
	}
	ok, err := run(ctx, *seed, *each, *jobs, *file, folders)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run tries changes of the packages in folders, and reports whether enough were noticed.
func run(ctx context.Context, seed uint64, each, jobs int, file string, folders []string) (ok bool, err error) {
	known, err := equivalents(equivalentText)
	if err != nil {
		return false, err
	}
	j, err := openJournal(file)
	if err != nil {
		return false, err
	}
	packages, err := packagesOf(folders)
	if err != nil {
		return false, err
	}
	ok = true
	for i := range packages {
		p := &packages[i]
		s, err := p.measure(ctx, seed, each, jobs, j, known)
		if err != nil {
			return false, err
		}
		fmt.Println(s)
		ok = ok && s.enough()
	}
	return ok, nil
}

// pack is a package with tests.
type pack struct {
	module, folder string // paths: of the module, and of the package in it
	name           string
	files          []string
	testers        []string // other packages whose tests test this one
}

// tested returns the folders of all packages whose tests test this one.
func (p *pack) tested() []string { return append([]string{p.folder}, p.testers...) }

// packagesOf lists the packages with tests, their own or those of testers, in folders of the module.
func packagesOf(folders []string) (all []pack, err error) {
	const format = `{{.Module.Dir}} {{.Dir}} {{.Name}} {{len .TestGoFiles}} {{len .XTestGoFiles}} {{join .GoFiles " "}}`
	args := []string{"list", "-f", format}
	for _, folder := range folders {
		args = append(args, "./"+folder)
	}
	out, err := exec.Command("go", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("go list: %s", exit.Stderr)
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 6 {
			continue
		}
		folder, err := filepath.Rel(fields[0], fields[1])
		if err != nil {
			return nil, err
		}
		p := pack{fields[0], folder, fields[2], fields[5:], testers[folder]}
		if hasOwn := fields[3] != "0" || fields[4] != "0"; hasOwn || p.testers != nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// sources returns the files of the package, by their paths in the module.
func (p *pack) sources() (map[string][]byte, error) {
	all := make(map[string][]byte)
	for _, name := range p.files {
		file := filepath.Join(p.folder, name)
		source, err := os.ReadFile(filepath.Join(p.module, file))
		if err != nil {
			return nil, err
		}
		all[file] = source
	}
	return all, nil
}

// changes returns all changes of the package.
func (p *pack) changes() (all []*change, err error) {
	sources, err := p.sources()
	if err != nil {
		return nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		of, err := changesOf(file, sources[file])
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// state returns a hash of the package's files, its tests among them, and of those of its testers.
func (p *pack) state() (string, error) {
	var files []string
	for _, folder := range p.tested() {
		of, err := filepath.Glob(filepath.Join(p.module, folder, "*.go"))
		if err != nil {
			return "", err
		}
		files = append(files, of...)
	}
	hash := fnv.New64a()
	for _, file := range files { // sorted in each folder
		source, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(file), len(source), source)
	}
	return strconv.FormatUint(hash.Sum64(), 16), nil
}

// score is what became of the changes of a package.
type score struct {
	folder     string
	noticed    int
	equivalent int
	survivors  []string
}

func (s *score) share() float64 {
	if all := s.noticed + len(s.survivors); all > 0 {
		return float64(s.noticed) / float64(all)
	}
	return 1
}

// enough reports whether the tests notice as many changes as they must.
func (s *score) enough() bool {
	if slices.Contains(strict, s.folder) {
		return s.share() >= leastStrict
	}
	return s.share() >= least
}

func (s *score) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-40s %3d of %3d noticed, %3.0f%%, %d equivalent", s.folder, s.noticed, s.noticed+len(s.survivors), 100*s.share(), s.equivalent)
	for _, name := range s.survivors {
		b.WriteString("\n    " + name)
	}
	return b.String()
}

// add counts a verdict.
func (s *score) add(c *change, v verdict, isEquivalent bool) {
	switch {
	case v == noticed:
		s.noticed++
	case v == survived && isEquivalent:
		s.equivalent++
	case v == survived:
		s.survivors = append(s.survivors, c.String())
	}
}

// spare is how many more changes than are needed are compiled at a time, in case that some don't compile.
const spare = 10

// measure tries so many changes of the package that compile, several at a time.
func (p *pack) measure(ctx context.Context, seed uint64, each, jobs int, j *journal, known map[string]string) (*score, error) {
	all, err := p.changes()
	if err != nil {
		return nil, err
	}
	state, err := p.state()
	if err != nil {
		return nil, err
	}
	hash := fnv.New64a()
	hash.Write([]byte(p.folder))
	rand.New(rand.NewPCG(seed, hash.Sum64())).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	if each == 0 {
		each = len(all)
	}
	s := &score{folder: p.folder}
	for counted := 0; counted < each && len(all) > 0; {
		batch := all[:min(each-counted+spare, len(all))]
		all = all[len(batch):]
		fresh := slices.DeleteFunc(slices.Clone(batch), func(c *change) bool { return j.get(state, c) != "" })
		if len(fresh) > 0 {
			err := try(ctx, p, fresh, jobs, func(c *change, v verdict) error { return j.put(state, c, v) })
			if err != nil {
				return nil, err
			}
		}
		for _, c := range batch {
			_, isEquivalent := known[c.String()]
			v := j.get(state, c)
			s.add(c, v, isEquivalent)
			if v != uncompiled {
				counted++
			}
		}
	}
	slices.Sort(s.survivors)
	return s, nil
}
