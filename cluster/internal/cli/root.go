// Package cli is the command line of millctl-cluster: each subcommand is a file of its own.
//
// Run is the only function that other packages call. It writes only to the two given writers.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/control/cluster/internal/config"
	"millrace/control/cluster/internal/node"
	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
	"millrace/control/internal/commandline"
)

// Version is millrace's version in ../../../CMakeLists.txt; a build may set another.
var Version = "0.1.0"

// app has what the subcommands share.
type app struct {
	path string // of the configuration
	out  io.Writer
	err  io.Writer
}

func (a *app) say(format string, values ...any) { fmt.Fprintf(a.out, format+"\n", values...) }

// Run executes a command line and returns the exit status.
func Run(ctx context.Context, args []string, out, err io.Writer) int {
	a := &app{path: config.Path, out: out, err: err}
	failure := commandline.Execute(ctx, a.root(), args)
	if errors.Is(failure, node.ErrNotLeft) {
		ctx = context.WithoutCancel(ctx) // to interrupt an agent is no failure; what it then has to do has failed
	}
	return commandline.Status(ctx, err, failure)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cluster COMMAND",
		Short: "Run servers that have each other's connections as one",
		Long: `millctl cluster runs servers that have each other's connections as one (docs/cluster.md). Each server has an agent, which
tells its millrace what to do; one of the agents also decides which server has which shard. Other commands show the
cluster, and say what an operator wants: they work on each server, by the agent's configuration.`,
		Example: `  millctl cluster init cluster --prefix 203.0.113.10/32 one=192.0.2.1 two=192.0.2.2 three=192.0.2.3
  millctl cluster status
  millctl cluster drain two`,
		Version: Version,
		Args:    commandline.NoCommand,
		RunE: func(*cobra.Command, []string) error {
			return commandline.Usage("a command is needed: millctl cluster --help lists them")
		},
	}
	// Help and messages name the command as users give it.
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "millctl cluster"}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("millctl-cluster {{.Version}}\n")
	root.PersistentFlags().StringVar(&a.path, "config", a.path, "the agent's configuration")
	root.AddCommand(a.init(), a.join(), a.agent(), a.status(), a.move(), a.drain(), a.giveBack(), a.gone(), a.upgrade())
	return root
}

// config reads the configuration.
func (a *app) config() (*config.Config, error) {
	c, err := config.Read(a.path)
	var unopened *fs.PathError
	switch {
	case errors.As(err, &unopened):
		return nil, commandline.UnopenedFile{Err: err}
	case err != nil:
		return nil, commandline.Usage("%v", err)
	}
	return c, nil
}

// cluster is the store, as an operator's command sees it.
type cluster struct {
	store.Store
	*app
	config *config.Config
	rest   time.Duration // for which ports, or other slaves, are waited for at most
}

const patience = 5 * time.Second

func (a *app) open() (*cluster, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	client, err := c.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, commandline.UnopenedFile{Err: err}
	}
	return &cluster{client, a, c, placement.Default.Rest}, nil
}

// state reads the store.
func (c *cluster) state(ctx context.Context) (*records.State, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	view, err := c.Read(limited)
	if limited.Err() != nil && ctx.Err() == nil {
		at := slices.Concat(c.config.Store.Etcd, c.config.Store.ZooKeeper)
		return nil, commandline.UnopenedFile{Err: fmt.Errorf("the store has not answered for %v, at none of %v: servers go on as they are; do most of the store's servers run?", patience, at)}
	}
	if err != nil {
		return nil, err
	}
	state, err := records.Parse(view, nil)
	if err == nil && len(state.Servers) == 0 {
		return nil, fmt.Errorf("the cluster %s has no servers yet: an agent that starts makes its server's record", c.config.Cluster)
	}
	return state, err
}

// serverOf returns the number of the server with that name or number.
func serverOf(state *records.State, name string) (records.ServerID, error) {
	var known []string
	for _, id := range slices.Sorted(maps.Keys(state.Servers)) {
		server := state.Servers[id].Value
		if server.Name == name || strconv.FormatUint(uint64(id), 10) == name {
			return id, nil
		}
		known = append(known, server.Name)
	}
	return 0, commandline.Usage("%s is no server of the cluster: there are %s", name, strings.Join(known, ", "))
}

// change writes another record of a server, unless the function returns an error.
func (c *cluster) change(ctx context.Context, name string, to func(*records.State, records.ServerID, *records.Server) error) (records.ServerID, error) {
	for {
		state, err := c.state(ctx)
		if err != nil {
			return 0, err
		}
		id, err := serverOf(state, name)
		if err != nil {
			return 0, err
		}
		server := state.Servers[id].Value
		if err := to(state, id, &server); err != nil {
			return id, err
		}
		if err := c.Write(ctx, state.Servers[id].Put(id.Key(), server)); !errors.Is(err, store.ErrConflict) {
			return id, err
		}
	}
}

// await waits until a function returns "", and prints meanwhile what it returns: lines that are new, at most one a second.
func (c *cluster) await(ctx context.Context, wait func(*records.State) string) error {
	return c.awaitSaying(ctx, c.out, wait)
}

// awaitSaying asks the function at each change, and each second, since times run out.
func (c *cluster) awaitSaying(ctx context.Context, to io.Writer, wait func(*records.State) string) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	views := c.Watch(watching)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var state *records.State
	said, at := "", time.Time{}
	for {
		select {
		case view, is := <-views:
			if !is {
				return ctx.Err()
			}
			var err error
			if state, err = records.Parse(view, nil); err != nil {
				return err
			}
		case <-tick.C:
		}
		if state == nil {
			continue
		}
		what := wait(state)
		if what == "" {
			return nil
		}
		if what != said && time.Since(at) >= time.Second {
			fmt.Fprintln(to, what)
			said, at = what, time.Now()
		}
	}
}

func nameOf(state *records.State, id records.ServerID) string {
	if id == 0 {
		return "-"
	}
	return state.Servers[id].Value.Name
}

// copies returns how many shards the server is the master and the slave of.
func copies(state *records.State, id records.ServerID) (masters, slaves int) {
	for _, shard := range state.Shards {
		if shard.Value.Master.Server == id && !state.IsGone(shard.Value.Master) {
			masters++
		}
		if shard.Value.Slave.Server == id && !state.IsGone(shard.Value.Slave) {
			slaves++
		}
	}
	return masters, slaves
}

func newest(state *records.State, id records.ServerID) records.Member {
	return records.Member{Server: id, Process: state.Servers[id].Value.Process}
}
