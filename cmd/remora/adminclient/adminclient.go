// Package adminclient has the commands that ask the admin API of a running sidecar, and what
// others need to ask it.
package adminclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/proxy/config"
)

// TokenVariable is the environment variable with the token of the admin API.
const TokenVariable = "REMORA_ADMIN_TOKEN"

// Load reads a configuration file, and prints its errors.
type Load func(cmd *cobra.Command, file string, more ...config.Inspect) (*config.Config, error)

// Flags say where the admin API is.
type Flags struct {
	Load    Load
	address string
	file    string
}

// Add adds the flags to a command. usage is that of --config.
func (f *Flags) Add(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&f.address, "admin", config.Default().Admin.Address, "address of the admin API")
	cmd.Flags().StringVarP(&f.file, "config", "c", "", usage)
	cmd.MarkFlagsMutuallyExclusive("admin", "config")
}

// API returns address and token of the admin API: those of the configuration file or, without
// one, the address of the flag and the token in the environment.
func (f *Flags) API(cmd *cobra.Command) (config.Admin, error) {
	if f.file == "" {
		return config.Admin{Address: f.address, Token: os.Getenv(TokenVariable)}, nil
	}
	cfg, err := f.Load(cmd, f.file)
	if err != nil {
		return config.Admin{}, err
	}
	if cfg.Admin.Address == "" {
		return config.Admin{}, errors.New("the configuration has no admin.address")
	}
	return cfg.Admin, nil
}

// Transport returns a transport to the admin API at addr, which may be a Unix socket.
func Transport(addr string) *http.Transport {
	t := new(http.Transport)
	if unixaddr.Is(addr) {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			network, name := unixaddr.Split(addr)
			return d.DialContext(ctx, network, name)
		}
	}
	return t
}

// maxResponse bounds a response of the admin API, in bytes.
const maxResponse = 64 << 20

// Get returns the body of a response of the admin API, to which client has the Transport. Its error
// has the body unless the status is 200. An empty token is not sent.
func Get(ctx context.Context, client *http.Client, at config.Admin, path string) ([]byte, error) {
	return call(ctx, client, at, http.MethodGet, path, http.StatusOK)
}

// statusError is the error of a response with another status than expected.
type statusError struct {
	url, status, text string
	code              int
}

func (e *statusError) Error() string { return e.url + ": " + e.status + ": " + e.text }

// call sends one request, and expects the status want.
func call(ctx context.Context, client *http.Client, at config.Admin, method, path string, want int) ([]byte, error) {
	host := at.Address
	if unixaddr.Is(host) {
		host = "localhost"
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, nil)
	if err != nil {
		return nil, err
	}
	if at.Token != "" {
		req.Header.Set("Authorization", "Bearer "+at.Token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if len(body) > maxResponse {
		return nil, fmt.Errorf("%s%s: the response has more than %d bytes", at.Address, path, maxResponse)
	}
	if resp.StatusCode != want {
		unexpected := &statusError{at.Address + path, resp.Status, strings.TrimSpace(string(body)), resp.StatusCode}
		return body, errors.Join(unexpected, err)
	}
	if err != nil {
		err = fmt.Errorf("%s%s: %w", at.Address, path, err)
	}
	return body, err
}
