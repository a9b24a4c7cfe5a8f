// Package cli is millctl's command line: each subcommand is a file of its own.
//
// Run is the only function that other packages call. It writes only to the two given writers; live views
// and bold text appear only if the first writer is a terminal.
package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
	"millrace/control/internal/balance"
	"millrace/control/internal/commandline"
)

// Version is millrace's version in ../../../CMakeLists.txt; a build may set another.
var Version = "0.1.0"

// app has what the subcommands share: millrace's control socket, and the writers.
type app struct {
	socket string
	out    *sink
	err    io.Writer
}

func (a *app) client() *balance.Client { return balance.New(a.socket) }

func (a *app) say(format string, values ...any) {
	fmt.Fprintf(a.out, format+"\n", values...)
}

func (a *app) warn(message string) { fmt.Fprintf(a.err, "millctl: warning: %s\n", message) }

// Run executes a command line and returns the exit status.
func Run(ctx context.Context, args []string, out, err io.Writer) int {
	a := &app{out: &sink{Writer: out}, err: err}
	failure := commandline.Execute(ctx, a.root(), args)
	return commandline.Status(ctx, err, first(a.out.lost, failure))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "millctl COMMAND",
		Short: "Look into a running millrace, and control it",
		Long: `millctl looks into a running millrace, and controls it.

It speaks to the control socket of "millrace run", which only the user that runs millrace may open.`,
		Example: `  millctl stats
  millctl connections --backend 10.0.0.1:8000 --state established
  millctl drain 10.0.0.1:8000
  sudo millctl --socket /run/other.sock top`,
		Version: Version,
		Args:    noCommand,
		RunE: func(*cobra.Command, []string) error {
			return usage("a command is needed: millctl --help lists them")
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("millctl {{.Version}}\n")
	a.socket = api.DefaultSocket()
	root.PersistentFlags().Var(text{&a.socket, "PATH"}, "socket", "millrace's control socket")
	root.AddCommand(a.stats(), a.top(), a.connections(), a.explain(), a.trace(), a.shards(), a.drain(), a.firewall(), a.nat(), a.pair(), a.kill(),
		a.reload(), a.upgrade(), a.health(), a.exporter(), cluster())
	return root
}
