// millctl-cluster runs servers that have each other's connections as one: `millctl cluster` becomes this program.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"millrace/control/cluster/internal/cli"
)

func main() {
	// An agent leaves the cluster in order, also when a service manager ends it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the program at once
	}()
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
