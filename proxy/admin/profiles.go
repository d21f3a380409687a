package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"sync"
)

// profiles returns the handler of all paths under /debug/pprof/. Unless allowed returns true it
// refuses all: a profile costs processor time, and a trace shows when each goroutine ran.
func profiles(allowed func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", profiling(pprof.Index))
	mux.HandleFunc("GET /debug/pprof/block", profiling(blocked.during(pprof.Index)))
	mux.HandleFunc("GET /debug/pprof/mutex", profiling(contended.during(pprof.Index)))
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

// LongestProfile bounds a profile, in seconds.
const LongestProfile = 300

// profiling guards profiles, which cost processor time: the page of another site can't start
// one, and none takes longer than LongestProfile.
func profiling(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			http.Error(w, "pages of other sites can't take profiles", http.StatusForbidden)
			return
		}
		if text := r.FormValue("seconds"); text != "" {
			if seconds, err := strconv.ParseFloat(text, 64); err != nil || !(seconds <= LongestProfile) {
				http.Error(w, fmt.Sprintf("seconds must be a number up to %d", LongestProfile), http.StatusBadRequest)
				return
			}
		}
		next(w, r)
	}
}

// Waits of goroutines are sampled only while a profile of them is taken: each sample is a stack,
// and costs the goroutine time. The rates are of the process, as are the samplers.
var (
	blocked   = sampler{set: runtime.SetBlockProfileRate, rate: 10_000} // nanoseconds: all longer waits
	contended = sampler{set: func(rate int) { runtime.SetMutexProfileFraction(rate) }, rate: 10}
)

// sampler samples one kind of event while at least one profile of it is taken.
type sampler struct {
	set  func(rate int) // 0 means no samples
	rate int

	mu    sync.Mutex
	takes int // profiles that are being taken
}

// during samples while next takes a profile of some seconds. Without seconds next responds with
// what earlier profiles have sampled.
func (s *sampler) during(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("seconds") != "" {
			s.add(1)
			defer s.add(-1)
		}
		next(w, r)
	}
}

// add begins or ends profiles, and samples while there is one.
func (s *sampler) add(profiles int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes += profiles
	switch {
	case s.takes == 0:
		s.set(0)
	case profiles > 0:
		s.set(s.rate)
	}
}
