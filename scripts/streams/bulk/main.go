// Command bulk is the far end of long transfers: a server on net/http, and the
// bytes that go through it. All bytes come from one pseudo-random sequence, so
// that both ends can tell what arrived without keeping it.
//
//	bulk serve ADDRESS   GET /bytes/N      N bytes with their Content-Length
//	                     GET /chunks/N     N bytes in chunks
//	                     GET /small        a few
//	                     PUT /sum          answers with the length and SHA-256 of the body
//	bulk bytes N         writes N bytes
//	bulk sum             reads to the end, prints the length and SHA-256
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
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		return write(os.Stdout, n)
	case len(args) == 1 && args[0] == "sum":
		return sum(os.Stdout, os.Stdin)
	}
	return errors.New("usage: bulk serve ADDRESS | bytes N | sum")
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes/{n}", func(w http.ResponseWriter, r *http.Request) { serve(w, r, true) })
	mux.HandleFunc("GET /chunks/{n}", func(w http.ResponseWriter, r *http.Request) { serve(w, r, false) })
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Nonce", r.Header.Get("X-Nonce"))
		_ = write(w, 300)
	})
	mux.HandleFunc("PUT /sum", func(w http.ResponseWriter, r *http.Request) {
		if err := sum(w, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	return mux
}

func serve(w http.ResponseWriter, r *http.Request, known bool) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if known {
		w.Header().Set("Content-Length", r.PathValue("n"))
	}
	if err := write(w, n); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// write writes the first n bytes of the sequence.
func write(w io.Writer, n int64) error {
	_, err := io.CopyBuffer(w, io.LimitReader(rand.NewChaCha8([32]byte{}), n), make([]byte, 256<<10))
	return err
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
