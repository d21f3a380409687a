package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
)

// profiles returns the handler of all paths under /debug/pprof/. Unless allowed returns true it
// refuses all: a profile costs processor time, and a trace shows when each goroutine ran.
func profiles(allowed func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", profiling(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", profiling(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", profiling(pprof.Trace))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed() {
			http.Error(w, "profiles are off: set admin.profiles to true in the configuration, and reload it", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// longestProfile bounds a profile, in seconds.
const longestProfile = 300

// profiling guards profiles, which cost processor time: the page of another site can't start
// one, and none takes longer than longestProfile.
func profiling(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			http.Error(w, "pages of other sites can't take profiles", http.StatusForbidden)
			return
		}
		if text := r.FormValue("seconds"); text != "" {
			if seconds, err := strconv.ParseFloat(text, 64); err != nil || !(seconds <= longestProfile) {
				http.Error(w, fmt.Sprintf("seconds must be a number up to %d", longestProfile), http.StatusBadRequest)
				return
			}
		}
		next(w, r)
	}
}
