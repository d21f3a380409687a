package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/remora-proxy/remora/lab/child"
)

// AwaitIdle waits until a replica that runs as p has no request in flight, and returns its
// counts. The loser of a hedge outlives its request.
func AwaitIdle(ctx context.Context, p *child.Process, addr string) (s Stats, err error) {
	err = child.Await(ctx, p, p.Name+" to be idle", func(ctx context.Context) (err error) {
		if s, err = AskStats(ctx, addr); err == nil && s.InFlight != 0 {
			err = fmt.Errorf("%d requests in flight", s.InFlight)
		}
		return err
	})
	return s, err
}

// AskStats returns the counts of the replica at addr.
func AskStats(ctx context.Context, addr string) (s Stats, err error) {
	b, err := child.Call(ctx, http.MethodGet, "http://"+addr+"/stats")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// Reset sets the counts of the replica at addr to 0. Its schedule of freezes began at epoch.
func Reset(ctx context.Context, addr string, epoch time.Time) error {
	url := fmt.Sprintf("http://%s/reset?epoch=%d", addr, epoch.UnixNano())
	_, err := child.Call(ctx, http.MethodPost, url)
	return err
}
