package flame

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// made returns a profile of stacks such as "main.main;a.f+b.g", outermost first, with their
// values. What follows a + is inlined.
func made(unit string, stacks map[string]int64) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "count", Unit: "count"}, {Type: "value", Unit: unit}}}
	functions := map[string]*profile.Function{}
	for stack, value := range stacks {
		s := &profile.Sample{Value: []int64{1, value}}
		for place := range strings.SplitSeq(stack, ";") {
			l := &profile.Location{ID: uint64(len(p.Location) + 1)}
			for name := range strings.SplitSeq(place, "+") {
				f := functions[name]
				if f == nil {
					f = &profile.Function{ID: uint64(len(functions) + 1), Name: name}
					functions[name] = f
					p.Function = append(p.Function, f)
				}
				l.Line = slices.Insert(l.Line, 0, profile.Line{Function: f})
			}
			p.Location = append(p.Location, l)
			s.Location = slices.Insert(s.Location, 0, l)
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

// block is a block of a drawing.
type block struct {
	tip, text, class string
	x, width         float64
	row              int
}

// drawn returns the blocks of an SVG, which must be well-formed.
func drawn(t *testing.T, svg []byte) (blocks []block) {
	t.Helper()
	var picture struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Groups  []struct {
			Class string `xml:"class,attr"`
			Title string `xml:"title"`
			Text  string `xml:"text"`
			Rect  struct {
				X     string `xml:"x,attr"`
				Y     int    `xml:"y,attr"`
				Width string `xml:"width,attr"`
			} `xml:"rect"`
		} `xml:"g"`
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	if err := d.Decode(&picture); err != nil {
		t.Fatalf("%v in %s", err, svg)
	}
	if _, err := d.Token(); err != nil && err != io.EOF {
		t.Fatalf("%v after the end of %s", err, svg)
	}
	for _, g := range picture.Groups {
		x, err := strconv.ParseFloat(g.Rect.X, 64)
		if err != nil {
			t.Fatal(err)
		}
		w, err := strconv.ParseFloat(g.Rect.Width, 64)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, block{g.Title, g.Text, g.Class, x, w, g.Rect.Y / rowHeight})
	}
	return blocks
}

// TestSVG: each block is below its caller, as wide as its share of the samples, with its short
// name and its values.
func TestSVG(t *testing.T) {
	const own = "github.com/remora-proxy/remora/proxy/exchange.(*Exchange).Begin"
	p := made("nanoseconds", map[string]int64{
		"main.main;" + own: 1e9,
		"main.main;" + own + "+github.com/some/one/v2/log.Add": 1e9,
		"main.main;" + own + "+github.com/some/one/v2/log.End": 1e9,
		"main.main;net/http.Get;syscall.Syscall":               4e9,
		"runtime.mstart":                                       1e9,
	})
	p.Sample = append(p.Sample, &profile.Sample{Value: []int64{1, -5}, Location: p.Sample[0].Location})
	g := New(p, 1)
	if got := g.Amount(g.Total()); got != "8.00 s" {
		t.Errorf("total %q", got)
	}
	svg := g.SVG("8 s of <CPU>")
	got := drawn(t, svg)
	want := []block{
		{"8 s of <CPU>", "8 s of <CPU>", "f", 0, 1200, 0},
		{"main.main: 7.00 s, 87.5%", "main.main", "a", 0, 1050, 1},
		{"net/http.Get: 4.00 s, 50.0%", "net/http.Get", "c", 0, 600, 2},
		{"syscall.Syscall: 4.00 s, 50.0%", "syscall.Syscall", "e", 0, 600, 3},
		{"proxy/exchange.(*Exchange).Begin: 3.00 s, 37.5%, itself 1.00 s", "proxy/exchange.(*Exchange).Begin", "a", 600, 450, 2},
		{"one/log.Add: 1.00 s, 12.5%", "one/log.Add", "b", 600, 150, 3},
		{"one/log.End: 1.00 s, 12.5%", "one/log.End", "b", 750, 150, 3},
		{"runtime.mstart: 1.00 s, 12.5%", "runtime.mstart", "d", 1050, 150, 1},
		{"remora 12.5%: 1.00 s in these functions themselves", "remora 12.5%", "a", 0, 0, 5},
		{"libraries 25.0%: 2.00 s in these functions themselves", "libraries 25.0%", "b", 0, 0, 5},
		{"Go runtime 12.5%: 1.00 s in these functions themselves", "Go runtime 12.5%", "d", 0, 0, 5},
		{"system calls 50.0%: 4.00 s in these functions themselves", "system calls 50.0%", "e", 0, 0, 5},
	}
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		if w.row == 5 { // the legend is as wide as its texts
			w.x, w.width = got[i].x, got[i].width
		}
		if got[i] != w {
			t.Errorf("block %d\n got %+v\nwant %+v", i, got[i], w)
		}
	}
	for range 10 {
		if again := New(p, 1).SVG("8 s of <CPU>"); !bytes.Equal(again, svg) {
			t.Fatal("the same profile gives another picture")
		}
	}
}

// TestNarrow: what is narrower than 0.2% is merged with its siblings, or left out.
func TestNarrow(t *testing.T) {
	stacks := map[string]int64{"main.main;main.large": 100_000, "main.main;main.large;main.tiny": 10}
	for i := range 1000 {
		stacks[fmt.Sprintf("main.main;main.small%d", i)] = 10
	}
	blocks := drawn(t, New(made("bytes", stacks), 1).SVG("title"))
	var tips []string
	for _, b := range blocks {
		tips = append(tips, b.tip)
	}
	want := []string{
		"title", "main.main: 107 KiB, 100.0%", "main.large: 97.7 KiB, 90.9%, itself 97.7 KiB",
		"1000 others: 9.77 KiB, 9.1%", "remora 100.0%: 107 KiB in these functions themselves",
	}
	if !slices.Equal(tips, want) {
		t.Errorf("got %q, want %q", tips, want)
	}
}

// TestHostileNames: whatever names a profile has, the picture is XML, and shows them as text.
func TestHostileNames(t *testing.T) {
	const name = "a</title><script>alert('1')</script>\x00\x1b]52;&\"\xff"
	svg := New(made("bytes", map[string]int64{strings.ReplaceAll(name, ";", ","): 1}), 1).SVG(name)
	if bytes.Contains(svg, []byte("<script")) {
		t.Errorf("%s", svg)
	}
	if got := drawn(t, svg); !strings.HasPrefix(got[1].tip, "a</title><script>alert('1')</script>\uFFFD\uFFFD]52,&\"\uFFFD: 1 B") {
		t.Errorf("%q", got[1].tip)
	}
}

// TestEmpty: a profile without samples has a root.
func TestEmpty(t *testing.T) {
	g := New(made("bytes", nil), 0)
	if got := drawn(t, g.SVG("nothing")); g.Total() != 0 || len(got) != 1 || got[0].text != "nothing" {
		t.Errorf("total %d, %+v", g.Total(), got)
	}
}

func TestShort(t *testing.T) {
	for name, want := range map[string]string{
		"main.main":                                             "main.main",
		"runtime.mallocgc":                                      "runtime.mallocgc",
		"internal/poll.(*FD).Read":                              "internal/poll.(*FD).Read",
		"sync.(*Pool).Get":                                      "sync.(*Pool).Get",
		module + "lb.(*Set).Pick":                               "lb.(*Set).Pick",
		module + "protocol/http1.X":                             "protocol/http1.X",
		"go.etcd.io/etcd/client/v3.(*watcher).Watch":            "etcd/client.(*watcher).Watch",
		"github.com/prometheus/client_golang/v2/prometheus.New": "client_golang/prometheus.New",
		"golang.org/x/sys/unix.EpollWait":                       "x/sys/unix.EpollWait",
		"go.etcd.io/etcd/client/v3.(*Client).Get":               "etcd/client.(*Client).Get",
		"slices.SortFunc[...]":                                  "slices.SortFunc[...]",
		"github.com":                                            "github.com",
		"github.com/x":                                          "x",
	} {
		if got := short(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestOwnerOf(t *testing.T) {
	for name, want := range map[string]owner{
		"main.main": remora, module + "lb.(*Set).Pick": remora, "go.etcd.io/etcd/client/v3.New": libraries, "golang.org/x/sync/errgroup.X": libraries,
		"net/http.Get": standard, "internal/poll.X": standard, "runtime.mallocgc": goRuntime, "runtime/internal/x.Y": goRuntime, "memeqbody": goRuntime,
		"internal/runtime/maps.X": goRuntime, "internal/runtime/syscall/linux.Syscall6": kernel, "golang.org/x/sys/unix.Read": kernel, "syscall.write": kernel,
	} {
		if got := ownerOf(name); got != want {
			t.Errorf("%s is of %q, want %q", name, owners[got].text, owners[want].text)
		}
	}
}

func TestFit(t *testing.T) {
	const name = "proxy/exchange.(*Exchange).Begin"
	for length, want := range map[int]string{
		-1: "", 2: "", 3: "Be…", 4: "Beg…", 5: "Begin", 16: "Begin", 17: "(*Exchange).Begin", 25: "(*Exchange).Begin",
		26: "exchange.(*Exchange).Begin", 31: "exchange.(*Exchange).Begin", 32: name, 99: name,
	} {
		if got := fit(name, length); got != want {
			t.Errorf("in %d characters: %q, want %q", length, got, want)
		}
	}
	if got := fit("no point", 4); got != "no …" {
		t.Errorf("without a package: %q", got)
	}
}

func TestAmount(t *testing.T) {
	for _, c := range []struct {
		value int64
		unit  string
		want  string
	}{
		{0, "bytes", "0 B"}, {1023, "bytes", "1023 B"}, {1024, "bytes", "1.00 KiB"}, {64 << 20, "bytes", "64.0 MiB"}, {5 << 40, "bytes", "5120 GiB"},
		{999, "nanoseconds", "999 ns"}, {12_345, "nanoseconds", "12.3 µs"}, {4_310_000_000, "nanoseconds", "4.31 s"}, {300e9, "nanoseconds", "300 s"},
		{5000, "count", "5000 count"}, {math.MaxInt64, "nanoseconds", "9223372037 s"},
	} {
		if got := New(made(c.unit, nil), 1).Amount(c.value); got != c.want {
			t.Errorf("%d %s is %q, want %q", c.value, c.unit, got, c.want)
		}
	}
}
