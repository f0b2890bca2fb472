// Antrea's own controller code on random object sets, beside this project's engine: which objects each takes, and of those that
// both take the policies, groups, members and spans, as a whole and as each node has them.
//
// It is built inside a copy of Antrea's source (run.sh). The sets, and what we say of them, come from a program beside it.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"antrea.io/antrea/v2/pkg/features"
)

// peer is the program with our engine.
type peer struct {
	mutex sync.Mutex
	in    *json.Encoder
	out   *bufio.Reader
}

func (p *peer) ask(question, answer any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	must(p.in.Encode(question))
	line, err := p.out.ReadBytes('\n')
	must(err)
	must(json.Unmarshal(line, answer))
}

func start(program string) *peer {
	command := exec.Command(program)
	in, err := command.StdinPipe()
	must(err)
	out, err := command.StdoutPipe()
	must(err)
	command.Stderr = os.Stderr
	must(command.Start())
	return &peer{in: json.NewEncoder(in), out: bufio.NewReaderSize(out, 1<<20)}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type verdict struct {
	// Why objects were left out: by Antrea's schemas and by its webhook, which we take; and by us, which Antrea takes.
	pruned, laxer, stricter []string
	different               []string
	policies, objects       int
}

// explained are refusals that only Antrea's webhook has, with a reason (docs/policy.md): they need other objects, and
// documents come in any order here; or they are about names that the webhook itself has made up.
var explained = regexp.MustCompile("tier .* does not exist|childGroup|rules names must be unique")

func compare(p *peer, seed uint64, patience time.Duration) verdict {
	var s set
	p.ask(map[string]uint64{"seed": seed}, &s)
	c := newController()
	defer close(c.stop)
	var v verdict
	var taken []json.RawMessage
	for i := range s.Objects {
		d := &s.Objects[i]
		if bySchema, why := c.admit(d); why != "" {
			list := &v.laxer
			if bySchema {
				list = &v.pruned
			}
			*list = append(*list, d.Kind+": "+why)
			if !strings.HasSuffix(d.Kind, "Group") {
				continue
			}
			// Others name it: they find one with nobody in it.
			d.empty()
		}
		c.create(d)
		taken = append(taken, d.raw)
		v.objects++
	}
	for i := range s.Refused {
		d := &s.Refused[i].Object
		if !strings.HasPrefix(d.APIVersion, "crd.antrea.io/v1beta1") {
			continue
		}
		if _, why := c.admit(d); why == "" {
			v.stricter = append(v.stricter, d.Kind+": "+s.Refused[i].Why)
		}
	}
	var answer struct{ Views map[string]view }
	p.ask(map[string]any{"objects": taken}, &answer)
	ours := texts(answer.Views)
	v.policies = len(answer.Views[""].NetworkPolicies.Items)
	until := time.Now().Add(patience)
	for {
		if reflect.DeepEqual(ours, c.texts(ours)) {
			// And it stays so.
			time.Sleep(50 * time.Millisecond)
			if reflect.DeepEqual(ours, c.texts(ours)) {
				return v
			}
		}
		if time.Now().After(until) {
			v.different = difference(ours, c.texts(ours))
			if len(v.different) > 0 {
				return v
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func main() {
	checkout := flag.String("antrea", ".", "where Antrea's source is")
	program := flag.String("sets", "", "the program with the sets and our engine")
	first := flag.Uint64("from", 1, "the first seed")
	count := flag.Uint64("count", 10000, "how many sets")
	workers := flag.Int("workers", 4, "how many at a time")
	patience := flag.Duration("patience", 20*time.Second, "for how long Antrea's controller may take to come to its end")
	most := flag.Int("most", 20, "end after so many differences")
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	must(features.DefaultMutableFeatureGate.Set("L7NetworkPolicy=true,NodeNetworkPolicy=true,Multicast=true"))

	readSchemas(*checkout)
	p := start(*program)
	seeds := make(chan uint64)
	go func() {
		for seed := *first; seed < *first+*count; seed++ {
			seeds <- seed
		}
		close(seeds)
	}()
	var mutex sync.Mutex
	pruned, laxer, stricter := reasons{}, reasons{}, reasons{}
	sets, policies, objects, differences := 0, 0, 0, 0
	begun := time.Now()
	var all sync.WaitGroup
	for range *workers {
		all.Go(func() {
			for seed := range seeds {
				v := compare(p, seed, *patience)
				mutex.Lock()
				sets, policies, objects = sets+1, policies+v.policies, objects+v.objects
				pruned.note(seed, v.pruned)
				laxer.note(seed, v.laxer)
				stricter.note(seed, v.stricter)
				if len(v.different) > 0 {
					differences++
					fmt.Printf("seed %d:\n", seed)
					for i, line := range v.different {
						if i == 12 {
							fmt.Printf("  … and %d more\n", len(v.different)-i)
							break
						}
						fmt.Println("  " + line)
					}
				}
				if sets%500 == 0 {
					fmt.Fprintf(os.Stderr, "%d sets, %d policies, %d differences, %.0f s\n", sets, policies, differences, time.Since(begun).Seconds())
				}
				end := differences >= *most
				mutex.Unlock()
				if end {
					return
				}
			}
		})
	}
	all.Wait()
	pruned.report("Antrea's schemas")
	stricter.report("we")
	unexplained := laxer.report("Antrea's webhook")
	fmt.Printf("%d sets of %d objects, %d policies: %d sets differ, %d kinds of refusal are Antrea's alone and unexplained\n",
		sets, objects, policies, differences, unexplained)
	if differences > 0 || unexplained > 0 || uint64(sets) < *count {
		os.Exit(1)
	}
}

// reasons are the seeds in which each was given.
type reasons map[string][]uint64

var numbers = regexp.MustCompile("[0-9]+")

func (r reasons) note(seed uint64, whys []string) {
	for _, why := range whys {
		why = numbers.ReplaceAllString(why, "N")
		r[why] = append(r[why], seed)
	}
}

// report returns how many have no explanation.
func (r reasons) report(who string) int {
	unexplained := 0
	for _, why := range slices.Sorted(maps.Keys(r)) {
		seeds, how := r[why], "only "+who
		if explained.MatchString(why) {
			how = "as explained, only " + who
		} else {
			unexplained++
		}
		fmt.Printf("%s would not take it, %d times, first in seed %d: %s\n", how, len(seeds), seeds[0], why)
	}
	return unexplained
}

type discard struct{}

func (discard) Write(text []byte) (int, error) { return len(text), nil }
