package cli

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
)

// filterFlags adds a flag for each part of a FILTER to the command. It returns a function that returns the
// given parts; that function may be called once the command line was parsed.
func filterFlags(command *cobra.Command) func() (api.Filter, error) {
	values := make([]string, len(api.FilterKeys))
	for i, part := range api.FilterKeys {
		command.Flags().Var(text{&values[i], part.Type}, flagName(part.Key), part.Meaning)
	}
	command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(api.States, cobra.ShellCompDirectiveNoFileComp))
	return func() (api.Filter, error) {
		filter := api.Filter{}
		for i, part := range api.FilterKeys {
			if command.Flags().Changed(flagName(part.Key)) {
				filter.Set(part.Key, values[i])
			}
		}
		return filter, tidy(filter)
	}
}

func flagName(key string) string { return strings.ReplaceAll(key, "_", "-") }

// tidy puts names in lower case, and splits the value address:port of one part into two parts. It returns
// an error if the state is unknown, or a port is given twice.
func tidy(filter api.Filter) error {
	for _, key := range []string{"protocol", "state"} {
		if filter.Has(key) {
			filter.Set(key, strings.ToLower(filter.Get(key)))
		}
	}
	if state := filter.Get("state"); state != "" && !api.IsState(state) {
		return usage("--state %s is unknown: give one of %s", state, strings.Join(api.States, ", "))
	}
	for _, key := range []string{"source", "destination"} {
		address, err := netip.ParseAddrPort(filter.Get(key))
		if err != nil {
			continue // no port: millrace checks the value
		}
		if filter.Has(key + "_port") {
			return usage("--%s has a port: leave out --%s-port", key, key)
		}
		filter.Set(key, address.Addr().String())
		filter.Set(key+"_port", strconv.Itoa(int(address.Port())))
	}
	return nil
}
