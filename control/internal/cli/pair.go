package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
)

func (a *app) pair() *cobra.Command {
	command := &cobra.Command{
		Use:   "pair COMMAND",
		Short: "Show the other server of a pair, and say which one packets go to",
		Long: `Shows what two servers that have each other's connections know of one another, and tells this one
whether packets go to it: keepalived does so, as docs/pair.md describes.`,
		Args: noCommand,
		RunE: func(command *cobra.Command, _ []string) error {
			return usage("a command is needed: %s --help lists them", command.CommandPath())
		},
	}
	command.AddCommand(a.pairStatus(), a.pairReady(),
		a.pairTold("active", "Say that packets go to this server from now on",
			`Says that packets go to this server from now on. It answers for the pair's addresses and for those of
services and pools, announces them, and becomes the master as soon as its copy is in sync.`),
		a.pairTold("standby", "Say that packets go to the other server from now on",
			`Says that packets go to the other server from now on. This one leaves the pair's addresses, and those of
services and pools, to that one. It goes on with the packets that still come.`),
		a.pairTold("gone", "Say that the other server's process is gone for good",
			`Says that the other server's process is gone for good: the machine is off, or will be started anew. So
ports that its connections used may go to other customers, after a rest. It is refused while the other
server is heard. If the process is not gone, but cut off, two customers may get the same port.`))
	return command
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// standing names a server's part: "active, master".
func standing(isActive bool, role string) string {
	word := "standby"
	if isActive {
		word = "active"
	}
	if role == "none" {
		return word
	}
	return word + ", " + role
}

func (a *app) sayPair(is api.Pair) error {
	t := newTable(a.out, "", "server", "packets and copy", "in sync", "heard")
	t.hold(fmt.Sprintf("%d, this one", is.Number), standing(is.Active, is.Role),
		fmt.Sprintf("%s, %d of %d shards", yesOrNo(is.InSync), is.ShardsInSync, is.Shards), "-")
	if is.Other != nil {
		t.hold(fmt.Sprintf("%d", is.Other.Number), standing(is.Other.Active, is.Other.Role), yesOrNo(is.Other.InSync), yesOrNo(is.Other.Heard))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if is.Disagreement != "" {
		a.say("nothing is copied: %s", is.Disagreement)
		return nil
	}
	if is.Other == nil {
		a.say("the other server has never been heard")
	} else if !is.Other.Heard {
		a.say("server %d is not heard now: its line shows what it said last", is.Other.Number)
	}
	if is.Other != nil && is.Other.SameLayout != nil && !*is.Other.SameLayout {
		a.say("the servers have different functions, or versions: a function that only one has, such as a firewall, does not act at the other")
	}
	if !is.Settled {
		a.say("not settled: a process of the other server may go on with connections that this one has ended (millctl pair gone)")
	}
	if !is.Gives {
		a.say("customers get no ports from this server yet: what it gave before may still be in use")
	}
	return nil
}

func (a *app) pairStatus() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "status [--json]",
		Short: "Show both servers",
		Long: `Shows which of the two servers packets go to, which one is the master, that is, which one lets connections
age, and whether each has all connections of the other one.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				return a.passOn(command, "/pair", nil)
			}
			is, err := a.client().Pair(command.Context())
			if err != nil {
				return err
			}
			return a.sayPair(is)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON object unchanged; docs/control.md describes it")
	return command
}

func (a *app) pairReady() *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Check whether packets may come to this server",
		Long: `Checks whether packets may come to this server: it has all connections, and may give ports to customers, or
the other server is not heard. If not, the exit status is 1. For keepalived's track_script.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			is, err := a.client().Pair(command.Context())
			switch {
			case err != nil:
				return err
			case is.Ready:
				a.say("ready")
				return nil
			case is.Disagreement != "":
				return fmt.Errorf("not ready: %s", is.Disagreement)
			case !is.Gives:
				return errors.New("not ready: customers get no ports from this server yet")
			}
			return fmt.Errorf("not ready: %d of %d shards are in sync", is.ShardsInSync, is.Shards)
		},
	}
}

// pairTold is a command that tells millrace something about the pair.
func (a *app) pairTold(word, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:   word,
		Short: short,
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			is, err := a.client().TellPair(command.Context(), word)
			if err != nil {
				return err
			}
			return a.sayPair(is)
		},
	}
}
