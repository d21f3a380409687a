package adminclient

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/cmd/remora/flame"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
)

// profileRequest bounds what a request for a profile takes beyond the profile's own seconds.
const profileRequest = 20 * time.Second

// profileKind is a kind of profile.
type profileKind struct {
	name, path string
	value      string // type of the values that are drawn
	what       string // follows their sum
	none       string // why there may be no sample
}

const heapProfile = "/debug/pprof/heap?gc=1" // after a collection, which is what it shows

var profileKinds = []profileKind{
	{"cpu", "/debug/pprof/profile", "cpu", "of CPU", "it used next to no CPU"},
	{"heap", heapProfile, "inuse_space", "in use", "it uses next to no memory"},
	{"allocs", heapProfile, "alloc_space", "allocated", "it allocated next to nothing"},
	{"block", "/debug/pprof/block", "delay", "blocked", "no goroutine was blocked"},
	{"mutex", "/debug/pprof/mutex", "delay", "waiting for mutexes", "no goroutine waited for a mutex"},
}

// profileOptions are the flags of "remora profile".
type profileOptions struct {
	kind    profileKind
	seconds int
	file    string
}

// NewProfile returns the command "remora profile".
func NewProfile(load Load) *cobra.Command {
	flags := Flags{Load: load}
	var o profileOptions
	var kind string
	cmd := &cobra.Command{
		Use:   "profile [--kind KIND] [--seconds N] -o FILE [--admin ADDR | -c FILE]",
		Short: "Take a profile of a running sidecar",
		Long: "Take a profile of a running sidecar by its admin API, which needs admin.profiles: true. If the name of the file\n" +
			"ends in .svg it is a flame graph for a browser, otherwise a profile for \"go tool pprof\". KIND is one of\n\n" +
			"  cpu      CPU by function\n" +
			"  heap     memory in use now, by the function that allocated it; without --seconds\n" +
			"  allocs   memory allocated\n" +
			"  block    waits of goroutines for channels and locks\n" +
			"  mutex    waits for mutexes, by the function that held them\n\n" +
			"If admin.token is set, the token comes from the configuration file or from $" + TokenVariable + ".",
		Args: func(cmd *cobra.Command, args []string) error {
			i := slices.IndexFunc(profileKinds, func(k profileKind) bool { return k.name == kind })
			switch {
			case i < 0:
				return fmt.Errorf("--kind: expected one of %s, got %s", strings.Join(kindNames(), ", "), kind)
			case kind == "heap" && cmd.Flags().Changed("seconds"):
				return errors.New("--seconds does not go with --kind heap, which shows the memory in use now")
			case o.seconds < 1 || o.seconds > admin.LongestProfile:
				return fmt.Errorf("--seconds: expected a number from 1 to %d, got %d", admin.LongestProfile, o.seconds)
			}
			o.kind = profileKinds[i]
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := flags.API(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			err = o.write(ctx, at, cmd.OutOrStdout())
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("%s: interrupted", at.Address)
			}
			return explain(err, at)
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "cpu", "kind of profile")
	cmd.Flags().IntVar(&o.seconds, "seconds", 10, "length of the profile")
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "file to write; .svg for a flame graph")
	flags.Add(cmd, "configuration file with address and token")
	_ = cmd.MarkFlagRequired("output") // the flag exists
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func kindNames() (names []string) {
	for _, k := range profileKinds {
		names = append(names, k.name)
	}
	return names
}

// write takes the profile and writes the file, or leaves none. It prints what the profile says
// in a line.
func (o *profileOptions) write(ctx context.Context, at config.Admin, out io.Writer) error {
	if info, err := os.Stat(o.file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--output: %s is not a regular file", o.file)
	}
	// Before the profile is taken, so that it is not lost for a wrong path.
	f, err := os.CreateTemp(filepath.Dir(o.file), ".remora-profile-")
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	defer os.Remove(f.Name()) // unless it has been renamed
	summary, err := o.fill(ctx, at, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), o.file); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", o.file, summary)
	return err
}

// fill takes the profile, and writes it to w in the form that the name of the file asks for.
func (o *profileOptions) fill(ctx context.Context, at config.Admin, w io.Writer) (summary string, err error) {
	raw, p, err := o.take(ctx, at)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == o.kind.value })
	if i < 0 {
		return "", fmt.Errorf("%s: the profile has no values of type %s", at.Address, o.kind.value)
	}
	g := flame.New(p, i)
	summary = o.summary(g, time.Duration(p.DurationNanos))
	if strings.HasSuffix(o.file, ".svg") {
		raw = g.SVG(summary)
	}
	_, err = w.Write(raw)
	return summary, err
}

// summary says how much of what the samples are, and of how much time.
func (o *profileOptions) summary(g *flame.Graph, d time.Duration) string {
	within := ""
	if d > 0 {
		within = fmt.Sprintf(" in %.1f s", d.Seconds())
	}
	if g.Total() == 0 {
		return fmt.Sprintf("nothing was sampled%s: %s", within, o.kind.none)
	}
	return fmt.Sprintf("%s %s%s", g.Amount(g.Total()), o.kind.what, within)
}

// take returns the profile, and its bytes.
func (o *profileOptions) take(ctx context.Context, at config.Admin) ([]byte, *profile.Profile, error) {
	d := time.Duration(o.seconds) * time.Second
	client := http.Client{Timeout: d + profileRequest, Transport: Transport(at.Address)}
	switch o.kind.name {
	case "heap":
		return getProfile(ctx, &client, at, o.kind.path)
	case "allocs":
		return allocated(ctx, &client, at, d)
	}
	return getProfile(ctx, &client, at, fmt.Sprintf("%s?seconds=%d", o.kind.path, o.seconds))
}

// allocated returns what the sidecar allocates within d. It compares two profiles of the heap,
// since the sidecar knows of allocations as of its last collection only.
func allocated(ctx context.Context, client *http.Client, at config.Admin, d time.Duration) ([]byte, *profile.Profile, error) {
	_, before, err := getProfile(ctx, client, at, heapProfile)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	_, after, err := getProfile(ctx, client, at, heapProfile)
	if err != nil {
		return nil, nil, err
	}
	before.Scale(-1)
	p, err := profile.Merge([]*profile.Profile{before, after})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", at.Address, err)
	}
	p.TimeNanos, p.DurationNanos = before.TimeNanos, after.TimeNanos-before.TimeNanos
	p.DefaultSampleType = "alloc_space"
	var raw bytes.Buffer
	err = p.Write(&raw)
	return raw.Bytes(), p, err
}

// getProfile returns a profile of the admin API, and its bytes.
func getProfile(ctx context.Context, client *http.Client, at config.Admin, path string) ([]byte, *profile.Profile, error) {
	raw, err := Get(ctx, client, at, path)
	if err != nil {
		return nil, nil, err
	}
	p, err := parseProfile(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%s%s: not a profile: %w", at.Address, path, err)
	}
	return raw, p, nil
}

// parseProfile parses a compressed profile. profile.Parse would uncompress any number of bytes.
func parseProfile(raw []byte) (*profile.Profile, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxResponse {
		return nil, fmt.Errorf("more than %d bytes", maxResponse)
	}
	p, err := profile.ParseUncompressed(text)
	if err != nil {
		return nil, err
	}
	return p, p.CheckValid()
}
