package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/firewall"
)

func (a *app) firewall() *cobra.Command {
	command := &cobra.Command{
		Use:   "firewall COMMAND",
		Short: "Show the firewall's rules and its log, and change its sets",
		Long: `Shows the firewall's rules with their counters, shows its log, and shows and changes its sets of prefixes.
Rules themselves change by the configuration and "millctl reload".`,
		Args: noCommand,
		RunE: func(command *cobra.Command, _ []string) error {
			return usage("a command is needed: %s --help lists them", command.CommandPath())
		},
	}
	command.AddCommand(a.firewallRules(), a.firewallLog(), a.firewallSets(), a.firewallSet())
	return command
}

func (a *app) firewallClient() *firewall.Client { return firewall.New(a.socket) }

func (a *app) firewallRules() *cobra.Command {
	asJSON, all := false, false
	command := &cobra.Command{
		Use:   "rules [--all] [--json]",
		Short: "Show the rules with their counters",
		Long: `Shows each rule that has accepted a connection or refused a packet, in the rules' order, then
the default: how many connections it has accepted and how many of these live, the packets
of these connections in both directions, and the packets that it has refused.`,
		Example: `  millctl firewall rules
  millctl firewall rules --json | jq '.[] | select(.live > 0)'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				return a.passOn(command, "/firewall/rules", nil)
			}
			rules, err := a.firewallClient().Rules(command.Context())
			if err != nil {
				return err
			}
			return showRules(a.out, rules, all)
		},
	}
	command.Flags().BoolVar(&all, "all", false, "show rules that no packet has met, too")
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON array unchanged; docs/control.md describes it")
	return command
}

func showRules(out io.Writer, rules []firewall.Rule, all bool) error {
	t := newTable(out, "", "rule", "action", ">connections", ">live", ">packets", ">bytes", ">replies", ">bytes", ">refused", ">limited", "")
	hidden := uint64(0)
	for _, r := range rules {
		if !all && r.Connections+r.Refused+r.Limited == 0 {
			hidden++
			continue
		}
		if err := t.row(r.Rule, r.Action, grouped(r.Connections), grouped(r.Live), grouped(r.Packets), grouped(r.Bytes),
			grouped(r.Replies), grouped(r.ReplyBytes), grouped(r.Refused), grouped(r.Limited), yes(r.Gone, "no longer configured")); err != nil {
			return err
		}
	}
	err := t.flush()
	if err == nil && hidden > 0 {
		_, err = fmt.Fprintf(out, "%s without a packet (--all shows them)\n", count(hidden, "rule"))
	}
	return err
}

func (a *app) firewallSets() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "sets [--json]",
		Short: "Show the sets with their prefixes",
		Example: `  millctl firewall sets
  millctl firewall sets --json | jq -r '.[] | select(.set == "blocked").prefixes[]'`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				return a.passOn(command, "/firewall/sets", nil)
			}
			sets, err := a.firewallClient().Sets(command.Context())
			if err != nil {
				return err
			}
			for _, set := range sets {
				a.say("%s: %s%s", set.Set, count(uint64(len(set.Prefixes)), "prefix"), yes(set.Changed, ", not those of the file"))
				for _, prefix := range set.Prefixes {
					a.say("  %s", prefix)
				}
			}
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON array unchanged; docs/control.md describes it")
	return command
}

func (a *app) firewallSet() *cobra.Command {
	command := &cobra.Command{
		Use:   "set COMMAND",
		Short: "Change a set of prefixes",
		Long: `Changes a set of prefixes that rules name as "@SET", without a reload. The change lasts, also over
a reload and a take-over, until "reset". With firewall.on_reload = "recheck", connections end
that the rules no longer accept. A PREFIX is 192.0.2.0/24, 2001:db8::/32 or an address.`,
		Args: noCommand,
		RunE: func(command *cobra.Command, _ []string) error {
			return usage("a command is needed: %s --help lists them", command.CommandPath())
		},
	}
	command.AddCommand(
		a.changeSet("add", "Add prefixes to a set", `  millctl firewall set add blocked 192.0.2.7 2001:db8:7::/48`),
		a.changeSet("remove", "Remove prefixes from a set", `  millctl firewall set remove blocked 192.0.2.7`),
		a.changeSet("replace", "Replace all prefixes of a set",
			`  millctl firewall set replace blocked 192.0.2.0/24
  curl -s https://example.net/list.txt | millctl firewall set replace blocked --file -`),
		&cobra.Command{
			Use:   "reset SET",
			Short: "Give a set the prefixes that the configuration has",
			Args:  exactly("SET"),
			RunE: func(command *cobra.Command, args []string) error {
				return a.change(command, args[0], "reset", nil)
			},
		})
	return command
}

func (a *app) changeSet(action, short, example string) *cobra.Command {
	file := ""
	command := &cobra.Command{
		Use:     action + " SET PREFIX... [--file FILE]",
		Short:   short,
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("SET is missing: give the set's name, and prefixes")
			}
			if len(args) == 1 && file == "" {
				return usage("there are no prefixes: give at least one, or --file")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			prefixes := args[1:]
			if file != "" {
				of, err := prefixesIn(file, command.InOrStdin())
				if err != nil {
					return err
				}
				prefixes = append(prefixes, of...)
			}
			return a.change(command, args[0], action, prefixes)
		},
	}
	command.Flags().Var(text{&file, "FILE"}, "file", "read further prefixes from this file, one a line, behind # a comment; - is standard input")
	return command
}

func (a *app) change(command *cobra.Command, set, action string, prefixes []string) error {
	done, err := a.firewallClient().Change(command.Context(), set, action, prefixes)
	if err != nil {
		return err
	}
	a.say("%s has %s after %s; %s ended", set, count(done.Prefixes, "prefix"), count(done.Changed, "change"), count(done.Ended, "connection"))
	return nil
}

// prefixesIn reads prefixes, one a line.
func prefixesIn(path string, stdin io.Reader) (prefixes []string, err error) {
	from := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, usage("%v", err)
		}
		defer file.Close()
		from = file
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		prefixes = append(prefixes, strings.Fields(line)...)
	}
	return prefixes, lines.Err()
}
