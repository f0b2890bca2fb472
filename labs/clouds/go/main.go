// The clouds' official Go clients against the simulators: main CLOUD URL. Each makes a network, machines and VPN links,
// reads back what it made, meets refusals, and takes everything away again.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

var ctx = context.Background()

func main() {
	clouds := map[string]func(string){"aws": aws, "azure": azure, "gcp": gcp, "ibm": ibm}
	if len(os.Args) != 3 || clouds[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: main aws|azure|gcp|ibm URL")
		os.Exit(2)
	}
	clouds[os.Args[1]](os.Args[2])
	fmt.Println(os.Args[1] + "'s Go client is content")
}

// fail ends everything, and says where.
func fail(what string, args ...any) {
	fmt.Fprintf(os.Stderr, what+"\n", args...)
	for depth := 1; depth < 6; depth++ {
		if _, file, line, ok := runtime.Caller(depth); ok {
			fmt.Fprintf(os.Stderr, "  at %s:%d\n", filepath.Base(file), line)
		}
	}
	os.Exit(1)
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func is[T comparable](wanted, had T) {
	if wanted != had {
		fail("wanted %v, had %v", wanted, had)
	}
}

func that(holds bool, what any) {
	if !holds {
		fail("unexpected: %v", what)
	}
}

func to[T any](value T) *T { return &value }

// until asks again and again; the simulators' time passes faster than ours.
func until(what string, look func() bool) {
	for range 300 {
		if look() {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	fail("never: %s", what)
}
