package cli

import (
	"strings"
	"testing"
)

func TestClusterIsNotInstalled(t *testing.T) {
	t.Setenv("PATH", "")
	got := run(t, "", "cluster", "status")
	if got.status != unopened || !strings.HasPrefix(got.err, "millctl: cluster needs the program millctl-cluster, ") || strings.Count(got.err, "\n") != 1 {
		t.Errorf("%+v", got)
	}
}
