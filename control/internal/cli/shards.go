package cli

import (
	"fmt"
	"io"
	"net/url"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
)

func (a *app) shards() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "shards [--json]",
		Short: "Show the shards of each worker, and how busy they are",
		Long: `Shows each worker with the packets that its present shards have had so far, and below that
the shards that have had packets, the busiest first. A shard is an entry of the
indirection table from hash to worker, with all connections whose hash selects that entry.
With spread.level = true shards move from busy workers to idle ones.`,
		Example: `  millctl shards
  millctl shards --json | jq '.shards[] | select(.moves > 0)'
  millctl shards move 17 1`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				return a.passOn(command, "/shards", nil)
			}
			shards, err := a.client().Shards(command.Context())
			if err != nil {
				return err
			}
			return showShards(a.out, &shards)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON object unchanged; docs/control.md describes it")
	command.AddCommand(a.moveShard())
	return command
}

func (a *app) moveShard() *cobra.Command {
	return &cobra.Command{
		Use:   "move SHARD WORKER",
		Short: "Give a shard to a worker",
		Long: `Moves a shard, with its connections, to a worker, while packets flow. Needs
spread.level = true; millrace may then also move the shard on by itself.`,
		Example: `  millctl shards move 17 1`,
		Args:    exactly("SHARD", "WORKER"),
		RunE: func(command *cobra.Command, args []string) error {
			for i, name := range []string{"SHARD", "WORKER"} {
				if _, err := strconv.ParseUint(args[i], 10, 16); err != nil {
					return usage("%s: %q is no number: millctl shards lists shards and workers", name, args[i])
				}
			}
			moved, err := a.client().MoveShard(command.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if moved.TookMs == 0 {
				a.say("worker %d has shard %d already", moved.Worker, moved.Shard)
			} else {
				a.say("worker %d has shard %d, after %.1f ms", moved.Worker, moved.Shard, moved.TookMs)
			}
			return nil
		},
	}
}

// passOn prints the answer to a GET request unchanged.
func (a *app) passOn(command *cobra.Command, path string, query url.Values) error {
	body, err := a.client().Get(command.Context(), path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return brokeOff(err)
	}
	a.say("%s", strings.TrimRight(string(text), "\n"))
	return nil
}

func showShards(out io.Writer, shards *api.Shards) error {
	if len(shards.Shards) == 0 {
		why := "the workers share their tables, and each serves what it receives (spread.level = true changes that)"
		if shards.Workers == 1 {
			why = "there is one worker"
		}
		_, err := fmt.Fprintln(out, "no shards: "+why)
		return err
	}
	type work struct{ shards, packets uint64 }
	var all work
	workers := map[int]work{}
	for _, shard := range shards.Shards {
		of := workers[shard.Worker]
		workers[shard.Worker] = work{of.shards + 1, of.packets + shard.Packets}
		all = work{all.shards + 1, all.packets + shard.Packets}
	}
	if shards.InUse < shards.Workers {
		fmt.Fprintf(out, "%d of %d workers in use\n\n", shards.InUse, shards.Workers)
	}
	byWorker := newTable(out, "", "worker", ">shards", ">packets", ">share")
	for worker := 0; worker < shards.Workers; worker++ {
		of := workers[worker]
		byWorker.hold(strconv.Itoa(worker), grouped(of.shards), grouped(of.packets), share(of.packets, all.packets))
	}
	if err := byWorker.flush(); err != nil {
		return err
	}
	busy := append([]api.Shard{}, shards.Shards...)
	sort.SliceStable(busy, func(i, j int) bool { return busy[i].Packets > busy[j].Packets })
	fmt.Fprintln(out)
	byShard := newTable(out, "", "shard", "worker", ">packets", ">share", ">moves")
	for _, shard := range busy {
		if shard.Packets == 0 {
			break
		}
		byShard.hold(strconv.Itoa(shard.Shard), strconv.Itoa(shard.Worker), grouped(shard.Packets),
			share(shard.Packets, all.packets), grouped(shard.Moves))
	}
	return byShard.flush()
}
