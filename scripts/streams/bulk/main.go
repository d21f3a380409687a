// Command bulk is the far end of long transfers: a server on net/http, and the
// bytes that go through it. All bytes come from one pseudo-random sequence, so
// that both ends can tell what arrived without keeping it.
//
//	bulk serve ADDRESS    GET /bytes/N        N bytes with their Content-Length,
//	                                          with ?rate=R at most R a second
//	                      GET /chunks/N       N bytes in chunks
//	                      GET /small          a few
//	                      PUT /sum            returns the length and SHA-256 of the body
//	bulk bytes N [RATE]   writes N bytes, at most RATE a second
//	bulk sum              reads to the end, prints the length and SHA-256
package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return http.ListenAndServe(args[1], handler())
	case len(args) == 2 && args[0] == "bytes":
		return bytes(os.Stdout, args[1], "")
	case len(args) == 3 && args[0] == "bytes":
		return bytes(os.Stdout, args[1], args[2])
	case len(args) == 1 && args[0] == "sum":
		return sum(os.Stdout, os.Stdin)
	}
	return errors.New("usage: bulk serve ADDRESS | bytes N [RATE] | sum")
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes/{n}", func(w http.ResponseWriter, r *http.Request) { serve(w, r, true) })
	mux.HandleFunc("GET /chunks/{n}", func(w http.ResponseWriter, r *http.Request) { serve(w, r, false) })
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Nonce", r.Header.Get("X-Nonce"))
		_ = bytes(w, "300", "")
	})
	mux.HandleFunc("PUT /sum", func(w http.ResponseWriter, r *http.Request) {
		if err := sum(w, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	return mux
}

func serve(w http.ResponseWriter, r *http.Request, known bool) {
	n := r.PathValue("n")
	if known {
		w.Header().Set("Content-Length", n)
	}
	if err := bytes(w, n, r.FormValue("rate")); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// bytes writes the first count bytes of the sequence, at most rate a second if it
// says something.
func bytes(w io.Writer, count, rate string) error {
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err
	}
	all := io.LimitReader(rand.NewChaCha8([32]byte{}), n)
	if rate != "" {
		perSecond, err := strconv.ParseInt(rate, 10, 64)
		if err != nil {
			return err
		}
		all = &paced{Reader: all, gap: time.Second * pace / time.Duration(perSecond)}
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{all}, make([]byte, 256<<10))
	return err
}

// pace is how many bytes a paced reader gives at a time.
const pace = 32 << 10

// paced gives pace bytes every gap. What it is late with it does not make up for.
type paced struct {
	io.Reader
	gap  time.Duration
	next time.Time
}

func (p *paced) Read(b []byte) (int, error) {
	time.Sleep(time.Until(p.next))
	p.next = time.Now().Add(p.gap)
	return p.Reader.Read(b[:min(len(b), pace)])
}

// sum writes the length and SHA-256 of all that r has.
func sum(w io.Writer, r io.Reader) error {
	h := sha256.New()
	n, err := io.CopyBuffer(h, r, make([]byte, 256<<10))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d %x\n", n, h.Sum(nil))
	return err
}
