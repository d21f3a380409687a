package http2

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
)

// tellRequest is a handler that responds with what it got.
func tellRequest(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Sum")
	w.Header().Set("X-Remora-Error", "forged")
	fmt.Fprintf(w, "%s %s %s host=%s via=%s te=%s body=%d trailer=%s err=%v", r.Proto, r.Method, r.URL, r.Host, r.Header.Get("Via"), r.Header.Get("Te"),
		len(body), r.Trailer.Get("X-End"), err)
	w.Header().Set("X-Sum", fmt.Sprintf("%x", sha256.Sum256(body)))
}
