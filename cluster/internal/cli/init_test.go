package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// namesIn returns what is in a folder.
func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// refused runs a command line that is wrong, and expects a line with that text.
func refused(t *testing.T, text string, args ...string) {
	t.Helper()
	if status, out, err := run(t, args...); status != 2 || out != "" || !strings.Contains(err, text) || strings.Count(err, "\n") != 1 {
		t.Errorf("%v: %d, %q, %q", args, status, out, err)
	}
}

// A server's folder lies beside the files of all servers: it cannot have the name of one.
func TestNamesOfFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	if status, _, err := run(t, "init", dir, "one=192.0.2.1", "two=192.0.2.2", "three=192.0.2.3"); status != 0 {
		t.Fatal(err)
	}
	all := namesIn(t, dir)
	for _, name := range all {
		if slices.Contains([]string{"one", "two", "three"}, name) {
			continue
		}
		other := filepath.Join(t.TempDir(), "cluster")
		refused(t, "a file of the cluster is named "+name, "init", other, name+"=192.0.2.1", "two=192.0.2.2", "three=192.0.2.3")
		if _, err := os.Stat(other); err == nil {
			t.Errorf("with the name %s it makes %s", name, other)
		}
		refused(t, "a file of the cluster is named "+name, "join", dir, "four=192.0.2.4", name+"=192.0.2.5")
	}
	if is := namesIn(t, dir); len(all) != 8 || !slices.Equal(is, all) {
		t.Errorf("%q instead of %q", is, all)
	}
}

// A server that joins needs an address of its own, too.
func TestJoinAddress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	if status, _, err := run(t, "init", dir, "one=192.0.2.1", "two=192.0.2.2", "three=2001:db8::3"); status != 0 {
		t.Fatal(err)
	}
	all := namesIn(t, dir)
	refused(t, "fourt=192.0.2.1: one has that address", "join", dir, "four=192.0.2.4", "fourt=192.0.2.1")
	refused(t, "four=2001:db8::3: three has that address", "join", dir, "four=2001:db8:0::3")
	if is := namesIn(t, dir); !slices.Equal(is, all) {
		t.Errorf("%q instead of %q", is, all)
	}
	for _, args := range [][]string{{"join", dir, "four=192.0.2.4"}, {"join", dir, "five=2001:db8::5"}} {
		if status, _, err := run(t, args...); status != 0 {
			t.Errorf("%v: %d, %s", args, status, err)
		}
	}
	refused(t, "four has that address", "join", dir, "six=192.0.2.4")
}

// Addresses at which no other server could reach a server, or by which it would not know it.
func TestUnfitAddresses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	for address, why := range map[string]string{"0.0.0.0": "that means any address", "::": "that means any address", "224.0.0.1": "multicast",
		"ff02::1": "multicast", "::ffff:192.0.2.1": "that is the IPv4 address 192.0.2.1", "fe80::1%eth0": "with a zone"} {
		refused(t, why, "init", dir, "one="+address, "two=192.0.2.2", "three=192.0.2.3")
		refused(t, why, "join", dir, "one="+address)
	}
	refused(t, "an address of its own", "init", dir, "one=2001:db8::1", "two=2001:db8:0::1", "three=192.0.2.3")
}
