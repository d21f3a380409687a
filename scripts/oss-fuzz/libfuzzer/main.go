//go:build libfuzzer

// The program of a fuzz target. libFuzzer calls LLVMFuzzerTestOneInput.
package main

// #include <stddef.h>
import "C"

import (
	"encoding/binary"
	"reflect"
	"sync"
	"testing"

	target "PACKAGE"
)

// fuzz is the function that the target gives to F.Fuzz.
var fuzz = sync.OnceValue(func() (fn reflect.Value) {
	if err := testing.InitLibFuzzer(); err != nil {
		panic(err)
	}
	testing.LibFuzzer = func(f any) { fn = reflect.ValueOf(f) }
	done := make(chan struct{})
	go func() { // F.Fatal ends it
		defer close(done)
		target.TARGET(new(testing.F))
	}()
	<-done
	if !fn.IsValid() {
		panic("the target fuzzes nothing: it may lack its files")
	}
	return fn
})

//export LLVMFuzzerTestOneInput
func LLVMFuzzerTestOneInput(data *C.char, size C.size_t) C.int {
	args := arguments(fuzz().Type(), []byte(C.GoStringN(data, C.int(size))))
	run := func(t *testing.T) { fuzz().Call(append([]reflect.Value{reflect.ValueOf(t)}, args...)) }
	all := func(_, _ string) (bool, error) { return true, nil }
	if !testing.RunTests(all, []testing.InternalTest{{Name: "TARGET", F: run}}) {
		panic("failed")
	}
	return 0
}

// arguments takes the arguments of a target from an input, as the builder of OSS-Fuzz does: numbers, a weight for each
// text, and texts. What is missing is zero.
func arguments(fn reflect.Type, b []byte) (args []reflect.Value) {
	take := func(n int) []byte {
		taken := make([]byte, n)
		b = b[copy(taken, b):]
		return taken
	}
	var texts []int
	for i := 1; i < fn.NumIn(); i++ {
		v := reflect.New(fn.In(i)).Elem()
		args = append(args, v)
		var n uint64
		if k := v.Kind(); k == reflect.String || k == reflect.Slice {
			texts = append(texts, i-1)
			continue
		} else if k == reflect.Bool {
			v.SetBool(take(1)[0]&1 != 0)
			continue
		}
		n = binary.BigEndian.Uint64(append(make([]byte, 8-v.Type().Size()), take(int(v.Type().Size()))...))
		if v.CanInt() {
			v.SetInt(int64(n))
		} else {
			v.SetUint(n)
		}
	}
	weights, sum := take(len(texts)), 0
	for _, w := range weights {
		sum += int(w)
	}
	left := len(b)
	for i, at := range texts {
		size := len(b)
		if i < len(texts)-1 {
			size = left / len(texts)
			if sum > 0 {
				size = left * int(weights[i]) / sum
			}
		}
		if v := args[at]; v.Kind() == reflect.String {
			v.SetString(string(take(size)))
		} else {
			v.SetBytes(take(size))
		}
	}
	return args
}

func main() {}
