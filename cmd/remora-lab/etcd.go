package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/remora-proxy/remora/lab"
)

func etcdCommand() *cobra.Command {
	var o lab.EtcdOptions
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run an embedded etcd server of one node, for trying things out",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := lab.StartEtcd(o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "etcd serves on %s\n", e.Endpoint())
			<-cmd.Context().Done()
			return e.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ClientAddr, "listen", "127.0.0.1:2379", "address to serve clients on")
	f.StringVar(&o.Dir, "dir", "", "data directory (default: one that is removed with the server)")
	return cmd
}
