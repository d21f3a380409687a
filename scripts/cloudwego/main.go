// Command cloudwego is servers and clients of Hertz and Kitex, which e2e/peers/cloudwego_*_test.go
// start. A client gets the names of cases, and prints "ok CASE" or "FAIL CASE WHY" for each.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"
)

var (
	addr      = flag.String("addr", "", "`address` of the server")
	stream    = flag.Bool("stream", false, "echo, hertz: handlers start before the body of a request has arrived")
	delay     = flag.Duration("delay", 0, "hertz, kitex: `time` before each response")
	age       = flag.Duration("age", 0, "hertz: `time` after which it closes a connection without requests; kitex: of each connection of gRPC")
	transport = flag.String("transport", "", "kitex, thrift: how calls are framed, a key of transports")
	etcd      = flag.String("etcd", "", "kitex: register at this etcd; thrift, grpc: resolve there")
	prefix    = flag.String("prefix", "kitex/registry-etcd", "of the keys in etcd")
	register  = flag.String("register", "", "kitex: `address` to register in place of -addr")
)

// commands are what the program does, by its first argument.
var commands = map[string]func() error{
	"echo":   serveEcho,
	"hertz":  serveHertz,
	"kitex":  serveKitex,
	"thrift": callThrift,
	"grpc":   callGRPC,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: cloudwego COMMAND [FLAG...] [CASE...]")
		os.Exit(2)
	}
	_ = flag.CommandLine.Parse(os.Args[2:]) // ends the program at an error
	if err := commands[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, "cloudwego:", err)
		os.Exit(1)
	}
}

var output sync.Mutex

// begin comes before each call that is carried out. It prints the id, unless that is empty, so that
// a test can count calls.
func begin(id string) {
	time.Sleep(*delay)
	if id == "" {
		return
	}
	output.Lock()
	defer output.Unlock()
	fmt.Printf("did %s\n", id)
}

// runCases runs the cases that the arguments name.
func runCases(cases map[string]func(ctx context.Context) error) error {
	for _, name := range flag.Args() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := fmt.Errorf("no such case")
		if run := cases[name]; run != nil {
			err = run(ctx)
		}
		cancel()
		if err != nil {
			fmt.Printf("FAIL %s %q\n", name, err.Error())
			continue
		}
		fmt.Println("ok", name)
	}
	return nil
}

// together runs n calls by eight callers, and returns the first error.
func together(n int, call func(i int) error) error {
	var all sync.WaitGroup
	errs := make(chan error, n)
	for caller := range 8 {
		all.Go(func() {
			for i := caller; i < n; i += 8 {
				errs <- call(i)
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
