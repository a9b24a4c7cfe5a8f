package cli

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"millrace/control/internal/nat"
)

func (a *app) nat() *cobra.Command {
	command := &cobra.Command{
		Use:   "nat COMMAND",
		Short: "Show NAT's pools, the public ports of a customer, and the log",
		Long:  `Shows how much of NAT's pools is used, which public ports a customer has, and whether the log of port blocks is written.`,
		Args:  noCommand,
		RunE: func(command *cobra.Command, _ []string) error {
			return usage("a command is needed: %s --help lists them", command.CommandPath())
		},
	}
	command.AddCommand(a.natPools(), a.natCustomer(), a.natLog())
	return command
}

func (a *app) natPools() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "pools [--json]",
		Short: "Show how much of each pool is used",
		Long: `Shows of each pool: the port blocks that there are, how many customers have (blocks without a
mapping rest, and their customer may use them again at once), the most that they ever had,
the ports of all blocks without a mapping, the customers with sessions, their sessions and mappings, and the sessions that were refused
because no port was free, because their customer has as many sessions as he may have, or because
the log could not record the block that they needed. A pool
is nearly empty once 90 % of its blocks have mappings, until less than 80 % have. Then shows the
customers who are nearest to their limit of sessions or ports, at most five of each pool.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				return a.passOn(command, "/nat/pools", nil)
			}
			pools, err := nat.New(a.socket).Pools(command.Context())
			if err != nil {
				return err
			}
			t := newTable(a.out, "", "pool", ">addresses", ">blocks", ">held", ">resting", ">most held", ">free ports", ">customers", ">sessions",
				">mappings", ">no port", ">over limit", ">no record", "alarm")
			nearest := newTable(a.out, "", "nearest to a limit", "pool", ">blocks", ">ports", ">sessions", ">used")
			isNear := false
			for _, p := range pools {
				alarm := "-"
				if p.NearlyEmpty {
					alarm = "nearly empty"
				}
				for _, c := range p.Nearest {
					isNear = true
					nearest.hold(c.Customer, p.Pool, grouped(c.Blocks), grouped(c.Ports), grouped(c.Sessions), fmt.Sprintf("%d %%", c.Percent))
				}
				t.hold(p.Pool, grouped(p.Addresses), grouped(p.Blocks), grouped(p.Held), grouped(p.Resting), grouped(p.MostHeld), grouped(p.FreePorts),
					grouped(p.Customers), grouped(p.Sessions), grouped(p.Mappings), grouped(p.NoPort), grouped(p.OverLimit), grouped(p.NoRecord), alarm)
			}
			if err := t.flush(); err != nil || !isNear {
				return err
			}
			a.say("")
			return nearest.flush()
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON array unchanged; docs/control.md describes it")
	return command
}

func (a *app) natLog() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "log [--json]",
		Short: "Show whether the log of port blocks is written",
		Long: `Shows of each place where the log of port blocks is written, a file or a collector: the records that
were written and lost, and since when and why nothing can be written.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				return a.passOn(command, "/nat/log", nil)
			}
			places, err := nat.New(a.socket).Log(command.Context())
			if err != nil {
				return err
			}
			if len(places) == 0 {
				a.say("there is no log: the configuration has no [nat.log]")
				return nil
			}
			t := newTable(a.out, "", "log", ">written", ">lost", "failing since", "error")
			for _, p := range places {
				since, why := "-", "-"
				if p.FailingSince != nil && p.Error != nil {
					since, why = *p.FailingSince, *p.Error
				}
				t.hold(p.To, grouped(p.Written), grouped(p.Lost), since, why)
			}
			return t.flush()
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON array unchanged; docs/control.md describes it")
	return command
}

func (a *app) natCustomer() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "customer CUSTOMER [--json]",
		Short: "Show the public ports of a customer, by his address or his name",
		Long: `Shows the public ports of a customer: the port blocks that he has, his sessions, and how many of
both he may have; his forwards; and the range that a deterministic pool gives him. CUSTOMER is
an address of his, with customer_prefix also the prefix, or his name: that of [[port]].customers,
his VLAN (access.100), the far end of his tunnel, or his group (local/17).`,
		Example: `  millctl nat customer 10.0.0.5
  millctl nat customer 10.0.0.4/31
  millctl nat customer access.100 --json`,
		Args: exactly("CUSTOMER"),
		RunE: func(command *cobra.Command, args []string) error {
			if asJSON {
				return a.passOn(command, "/nat/customer", url.Values{"customer": args})
			}
			is, err := nat.New(a.socket).Customer(command.Context(), args[0])
			if err != nil {
				return err
			}
			for _, r := range is.Ranges {
				a.say("the pool %s gives %s the ports %d-%d of %s", r.Pool, args[0], r.FirstPort, r.LastPort, r.Address)
			}
			if len(is.Ranges)+len(is.Blocks)+len(is.Forwards) == 0 {
				a.say("%s has no public ports", args[0])
				return nil
			}
			if len(is.Forwards) > 0 {
				t := newTable(a.out, "", "forward", "inside")
				for _, f := range is.Forwards {
					t.hold(f.Public, f.Inside)
				}
				if err := t.flush(); err != nil {
					return err
				}
			}
			if len(is.Blocks) == 0 {
				return nil
			}
			t := newTable(a.out, "", "pool", "public address", "ports", ">mappings")
			for _, b := range is.Blocks {
				t.hold(b.Pool, b.Address, fmt.Sprintf("%d-%d", b.FirstPort, b.LastPort), grouped(b.Mappings))
			}
			if err := t.flush(); err != nil {
				return err
			}
			b := is.Blocks[0]
			if b.MostSessions == 0 { // a reload has taken the pool away
				a.say("%s", count(b.Sessions, "session"))
				return nil
			}
			a.say("%s of at most %s; %s of at most %s", count(b.Sessions, "session"), grouped(b.MostSessions),
				count(uint64(len(is.Blocks)), "block"), grouped(b.MostBlocks))
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON object unchanged; docs/control.md describes it")
	return command
}
