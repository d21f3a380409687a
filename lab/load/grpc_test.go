package load

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestGRPC makes calls to a server of the standard library.
func TestGRPC(t *testing.T) {
	message := "\x00\x00\x00\x00\x03abc"
	for name, c := range map[string]struct {
		kind   ErrorKind
		handle http.HandlerFunc
	}{
		"a message": {"", func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte(message))
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}},
		"an error": {ErrStatus, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Grpc-Status", "14") }},
		"a status of HTTP": {ErrStatus, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}},
		"no status": {ErrProtocol, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(message)) }},
		"half a message": {ErrProtocol, func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte(message[:6]))
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}},
		"a reset":     {ErrReset, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"no response": {ErrTimeout, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 || r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Grpc-Timeout") == "" || r.ContentLength != 305 {
					t.Errorf("%s, %v", r.Proto, r.Header)
				}
				c.handle(w, r)
			}))
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
			defer s.Close()
			timeout := testTimeout
			if c.kind == ErrTimeout {
				timeout = 100 * time.Millisecond
			}
			res := run(t, Options{Targets: []string{"grpc://" + s.Listener.Addr().String()}, Rate: 1000, Duration: 20 * time.Millisecond, Timeout: timeout})
			if res.Counts.Requests != 20 || c.kind == "" && res.Counts.Failed() != 0 || c.kind != "" && res.Counts.Errors[c.kind] != 20 {
				t.Errorf("%+v", res.Counts)
			}
		})
	}
}
