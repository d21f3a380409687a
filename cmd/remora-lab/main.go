// Command remora-lab has what is needed to see Remora work on one machine with nothing installed:
// an embedded etcd, replicas that freeze, load, and a demo that puts them together.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// The first signal ends a command in an orderly way, a second one at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "remora-lab:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "remora-lab",
		Short:         "A laboratory for the Remora sidecar",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(demoCommand(), etcdCommand(), replicaCommand(), storeCommand(), callersCommand(),
		consumerCommand(), togetherCommand(), loadCommand(), historyCommand(), stealCommand(), benchCommand(), stormCommand(), streamsCommand(), plotsCommand(), certsCommand())
	return root
}
