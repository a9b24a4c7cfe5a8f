package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
)

// text is the value of a flag, and what help calls it.
type text struct {
	value *string
	kind  string
}

func (t text) String() string { return *t.value }
func (t text) Set(value string) error {
	if value == "" {
		return errors.New("it is empty: give it, or leave the option out")
	}
	*t.value = value
	return nil
}
func (t text) Type() string { return t.kind }

// filterFlags gives the command a flag for each part of a FILTER. What it answers is to be called
// once the command line was read: the parts that were given.
func filterFlags(command *cobra.Command) func() api.Filter {
	values := make([]string, len(api.FilterKeys))
	for i, part := range api.FilterKeys {
		command.Flags().Var(text{&values[i], part.Type}, flagName(part.Key), part.Meaning)
	}
	return func() api.Filter {
		filter := api.Filter{}
		for i, part := range api.FilterKeys {
			if command.Flags().Changed(flagName(part.Key)) {
				filter.Set(part.Key, values[i])
			}
		}
		return filter
	}
}

func flagName(key string) string { return strings.ReplaceAll(key, "_", "-") }
