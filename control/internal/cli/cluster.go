package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"millrace/control/internal/commandline"
)

// clusterProgram has the commands of a cluster: they need a newer Go than millctl, and much larger libraries.
const clusterProgram = "millctl-cluster"

// cluster replaces this process by clusterProgram, with the rest of the command line.
func cluster() *cobra.Command {
	return &cobra.Command{
		Use:                "cluster COMMAND",
		Short:              "Run servers that have each other's connections as one (by the program millctl-cluster)",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := findBeside(clusterProgram)
			if err == nil {
				err = syscall.Exec(program, append([]string{clusterProgram}, args...), os.Environ())
			}
			if errors.Is(err, exec.ErrNotFound) {
				err = fmt.Errorf("cluster needs the program %s, which is neither beside millctl nor in PATH: cluster/README.md says how to build it", clusterProgram)
			}
			return commandline.UnopenedFile{Err: err}
		},
	}
}

// findBeside returns the path of the program of that name beside this one, or else of the first one in PATH.
func findBeside(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(name)
}
