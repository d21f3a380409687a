package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lab/dubbo"
	"github.com/remora-proxy/remora/lab/wire"
)

// maxText is the longest argument, in characters.
const maxText = 1023

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// agent makes calls through the sidecar, one at a time.
type agent struct {
	ctx     context.Context // its end closes the connection
	opts    Options
	form    string // without the argument's value
	text    []byte
	in, out []byte
	msg     wire.Message

	nc      net.Conn    // nil means none
	unwatch func() bool // nc outlives ctx after it
}

func newAgent(ctx context.Context, o Options) agent {
	return agent{ctx: ctx, opts: o, form: "interface=" + url.QueryEscape(o.Interface) + "&method=hash&parameterTypesString=" +
		url.QueryEscape("Ljava/lang/String;") + "&parameter="}
}

// call asks for a hash. It returns what is wrong with the result, or why there is none.
func (a *agent) call() (wrong string, err error) {
	a.text = a.text[:0]
	for range rand.IntN(maxText + 1) {
		a.text = append(a.text, letters[rand.IntN(len(letters))])
	}
	if err := a.exchange(); err != nil {
		a.hangUp()
		return "", err
	}
	if a.msg.Close {
		defer a.hangUp()
	}
	if a.msg.Status != 200 {
		return "", fmt.Errorf("status %d: %.200s", a.msg.Status, a.msg.Body)
	}
	if want := dubbo.HashCode(string(a.text)); string(a.msg.Body) != strconv.Itoa(int(want)) {
		return fmt.Sprintf("got %.200q, want %d", a.msg.Body, want), nil
	}
	return "", nil
}

// exchange sends the call and reads its response into a.msg.
func (a *agent) exchange() error {
	deadline := time.Now().Add(a.opts.Timeout)
	if err := a.connect(deadline); err != nil {
		return fmt.Errorf("no connection: %w", err)
	}
	a.nc.SetDeadline(deadline)
	if _, err := a.nc.Write(a.request()); err != nil {
		return fmt.Errorf("not sent: %w", err)
	}
	a.msg.Reset()
	a.in = a.in[:0]
	for {
		var err error
		if a.in, err = wire.ReadMore(a.nc, a.in); err != nil {
			return fmt.Errorf("no response: %w", err)
		}
		n, err := a.msg.ParseResponse(a.in, false)
		switch {
		case err == wire.ErrIncomplete:
		case err != nil:
			return err
		case n < len(a.in):
			return fmt.Errorf("%d bytes after the response", len(a.in)-n)
		default:
			return nil
		}
	}
}

// request returns a call, which is valid until the next one is made.
func (a *agent) request() []byte {
	b := append(a.out[:0], "POST / HTTP/1.1\r\ncontent-length: "...)
	b = strconv.AppendInt(b, int64(len(a.form)+len(a.text)), 10)
	b = append(b, "\r\ncontent-type: application/x-www-form-urlencoded\r\nhost: "...)
	b = append(b, a.opts.Agent...)
	b = append(b, "\r\naccept: */*\r\nuser-agent: AHC/2.1\r\n\r\n"...)
	b = append(b, a.form...)
	b = append(b, a.text...)
	a.out = b
	return b
}

func (a *agent) connect(deadline time.Time) (err error) {
	if a.nc != nil {
		return nil
	}
	d := net.Dialer{Deadline: deadline}
	if a.nc, err = d.DialContext(a.ctx, "tcp", a.opts.Agent); err != nil {
		return err
	}
	nc := a.nc
	a.unwatch = context.AfterFunc(a.ctx, func() { nc.Close() })
	return nil
}

func (a *agent) hangUp() {
	if a.nc != nil {
		a.unwatch()
		a.nc.Close()
		a.nc = nil
	}
}
