package bench

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lab/child"
)

// wrkScripts make the requests, and print a last line for parseWrk.
//
//go:embed wrk
var wrkScripts embed.FS

// runWrk makes a closed loop with wrk, which costs the machine less than a load in Go. The
// script "" means post.lua.
func runWrk(ctx context.Context, wrk, script, url string, connections int, d time.Duration) (*Result, error) {
	dir, err := os.MkdirTemp("", "remora-wrk-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, wrkScripts); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d+requestTimeout)
	defer cancel()
	out, err := child.Output(ctx, wrk, "-t1", "-c"+strconv.Itoa(connections), fmt.Sprintf("-d%ds", seconds(d)),
		"--timeout", fmt.Sprintf("%ds", seconds(requestTimeout)), "-s", filepath.Join(dir, "wrk", cmp.Or(script, "post.lua")), url)
	if err != nil {
		return nil, err
	}
	return parseWrk(out)
}

// seconds rounds up: wrk takes whole seconds.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

var wrkResult = regexp.MustCompile(`(?m)^RESULT (.*)$`)

// parseWrk reads the line that result.lua prints.
func parseWrk(out []byte) (*Result, error) {
	m := wrkResult.FindSubmatch(out)
	if m == nil {
		return nil, errors.New("wrk printed no result")
	}
	r := &Result{}
	if err := json.Unmarshal(m[1], r); err != nil {
		return nil, fmt.Errorf("wrk: %w", err)
	}
	return r, nil
}
