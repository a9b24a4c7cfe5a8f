package commandline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NoCommand returns an error if there is an argument: cobra calls it only if no command has that name. The
// error names the nearest command.
func NoCommand(of *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, command := range of.Commands() {
		if command.IsAvailableCommand() {
			known = append(known, command.Name())
		}
	}
	return fmt.Errorf("%s is no command of %s%s", args[0], of.CommandPath(), hint("", args[0], known))
}

// NoOption turns cobra's error about an unknown option into one that names the nearest option, or that
// refuses a negative number.
func NoOption(command *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	if shorts := unknown.GetSpecifiedShortnames(); shorts != "" && shorts[0] >= '0' && shorts[0] <= '9' {
		return fmt.Errorf("-%s is negative: give a number from 0 on", shorts)
	}
	if len(unknown.GetSpecifiedName()) == 1 {
		return err
	}
	var known []string
	command.Flags().VisitAll(func(flag *pflag.Flag) { known = append(known, flag.Name) })
	name := unknown.GetSpecifiedName()
	return fmt.Errorf("--%s is no option%s", name, hint("--", name, known))
}

func hint(dashes, name string, known []string) string {
	nearest := nearestOf(name, known)
	if nearest == "" {
		return ""
	}
	return ": the nearest is " + dashes + nearest
}

// nearestOf returns the known name at the smallest distance from `name`, two at most. A known name that
// begins with `name` counts as one at distance 1. Returns "" if no known name is near enough.
func nearestOf(name string, known []string) (nearest string) {
	least := 3
	for _, one := range known {
		changes := distance(strings.ToLower(name), one)
		if strings.HasPrefix(one, strings.ToLower(name)) {
			changes = 1
		}
		if changes < least {
			least, nearest = changes, one
		}
	}
	return nearest
}

// distance returns the Levenshtein distance: the least number of letters to insert, delete or replace.
func distance(from, to string) int {
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j := range to {
			change := diagonal
			if from[i] != to[j] {
				change++
			}
			diagonal = row[j+1]
			for _, other := range []int{row[j+1] + 1, row[j] + 1} {
				if other < change {
					change = other
				}
			}
			row[j+1] = change
		}
	}
	return row[len(to)]
}

// Exactly returns a check that there are as many arguments as names. Its error has the names.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return fmt.Errorf("%d given: give %s", len(args), strings.Join(names, " "))
	}
}

// NoArguments checks that there is no argument. cobra.NoArgs would call it an unknown command.
func NoArguments(of *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q given: %s takes no argument", args[0], of.CommandPath())
}
