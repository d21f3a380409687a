// Package streams is a server of gRPC calls with long messages, for benches. It speaks HTTP/2 without TLS.
package streams

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// MaxSize bounds ?size, in bytes.
const MaxSize = 16 << 20

// Serve listens at addr, and serves until ctx ends. It reads each request to its end, and responds with a message of ?size=N
// bytes.
func Serve(ctx context.Context, addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(respond), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	// The largest windows that net/http allows: the proxies are to be the slowest part.
	server.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 4<<20 - 1, MaxReceiveBufferPerStream: 4<<20 - 1}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("streams: %w", err)
	}
	return nil
}

// piece is what respond writes at a time.
var piece [64 << 10]byte

func respond(w http.ResponseWriter, r *http.Request) {
	status := "0" // OK
	size, err := strconv.Atoi(r.URL.Query().Get("size"))
	if err != nil || size < 0 || size > MaxSize {
		size, status = 0, "3" // INVALID_ARGUMENT
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the client has left
	}
	w.Header().Set("content-type", "application/grpc")
	w.Header().Set("trailer", "grpc-status")
	prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(size)) // not compressed
	_, err = w.Write(prefix)
	for rest := size; rest > 0 && err == nil; rest -= len(piece) {
		_, err = w.Write(piece[:min(rest, len(piece))])
	}
	w.Header().Set("grpc-status", status)
}
