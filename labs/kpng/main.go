// KPNG's nft backend on KPNG's own client, as `kpng local to-nft` runs it, without what else that program has. Built inside a copy of
// KPNG's source (run.sh).
package main

import (
	"os"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	_ "sigs.k8s.io/kpng/backends/nft"
	"sigs.k8s.io/kpng/client"
	"sigs.k8s.io/kpng/client/backendcmd"
)

func main() {
	runner, backend := &client.Runner{}, backendcmd.Registered()[0].New()
	flags := pflag.NewFlagSet("kpng", pflag.ExitOnError)
	runner.BindFlags(flags)
	backend.BindFlags(flags)
	if err := flags.Parse(os.Args[1:]); err != nil {
		klog.Fatal(err)
	}
	runner.RunSink(backend.Sink())
}
