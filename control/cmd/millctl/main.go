// millctl looks into a running millrace and controls it, through its control socket.
package main

import (
	"context"
	"os"
	"os/signal"

	"millrace/control/internal/cli"
)

func main() {
	// Only Ctrl-C is caught. SIGTERM kills millctl, which a service manager counts as a regular end.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	go func() {
		<-ctx.Done()
		stop() // a second Ctrl-C ends millctl at once
	}()
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
