package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/commandline"
)

// named is a server of the command line.
type named struct {
	name    string
	address netip.Addr
}

var nameLike = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

func parseServers(args []string) (servers []named, err error) {
	seen := map[string]bool{}
	for _, arg := range args {
		name, text, _ := strings.Cut(arg, "=")
		address, err := netip.ParseAddr(text)
		if err != nil || !nameLike.MatchString(name) {
			return nil, commandline.Usage("%q: give NAME=ADDRESS, such as one=192.0.2.1, with the address at which other servers reach the server's own kernel", arg)
		}
		if seen[name] || seen[text] {
			return nil, commandline.Usage("%q: each server needs a name and an address of its own", arg)
		}
		seen[name], seen[text] = true, true
		servers = append(servers, named{name, address})
	}
	return servers, nil
}

func (n named) url(port int) string {
	return "https://" + netip.AddrPortFrom(n.address, uint16(port)).String()
}

// mostEtcds is how many servers have a server of etcd: so many that two may fail. More would make each write slower.
const mostEtcds = 5

func (a *app) init() *cobra.Command {
	var prefixes, etcd, zookeeper []string
	command := &cobra.Command{
		Use:   "init DIR NAME=ADDRESS... [--prefix PREFIX]...",
		Short: "Make the keys, certificates and configurations of a cluster",
		Long: `Makes a folder with a certificate authority, and a folder in it for each server: its certificate, the cluster's key, and its agent's
configuration, in which only its neighbours are missing. ADDRESS is where the other servers reach the server's kernel, not its millrace.
Three or four servers run etcd on three of them, within their agents, five and more on five. --etcd or --zookeeper name a store that is there already; its
certificates are then to be put in place of those made here.`,
		Example: `  millctl cluster init cluster --prefix 203.0.113.10/32 one=192.0.2.1 two=192.0.2.2 three=192.0.2.3`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 {
				return commandline.Usage("give a folder, and the servers as NAME=ADDRESS")
			}
			servers, err := parseServers(args[1:])
			if err != nil {
				return err
			}
			isOwn := len(etcd)+len(zookeeper) == 0
			if len(servers) < 2 || isOwn && len(servers) < 3 {
				return commandline.Usage("%d servers are too few: embedded etcd needs three, of which one may fail; two servers need --etcd or --zookeeper, or no cluster at all (docs/pair.md)", len(servers))
			}
			if len(etcd) > 0 && len(zookeeper) > 0 {
				return commandline.Usage("give --etcd or --zookeeper")
			}
			for _, prefix := range prefixes {
				if p, err := netip.ParsePrefix(prefix); err != nil || p != p.Masked() {
					return commandline.Usage("--prefix %s: give a prefix, such as 203.0.113.10/32", prefix)
				}
			}
			return a.made(a.makeCluster(args[0], servers, prefixes, etcd, zookeeper))
		},
	}
	command.Flags().StringArrayVar(&prefixes, "prefix", nil, "announce this prefix to the switches (several times: several prefixes)")
	command.Flags().StringSliceVar(&etcd, "etcd", nil, "URLs of an etcd that is there already")
	command.Flags().StringSliceVar(&zookeeper, "zookeeper", nil, "addresses, with ports, of a ZooKeeper that is there already")
	return command
}

// made gives an error of a file the exit status of one.
func (a *app) made(err error) error {
	var unopened *fs.PathError
	if errors.As(err, &unopened) {
		return commandline.UnopenedFile{Err: err}
	}
	return err
}

// makeFolder makes a folder that only its owner may open. If something has that name already, the error also gives `advice`.
func makeFolder(path, advice string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

func (a *app) makeCluster(dir string, servers []named, prefixes, etcd, zookeeper []string) error {
	if err := makeFolder(dir, "give the name of a new folder (millctl cluster join adds servers to a cluster)"); err != nil {
		return err
	}
	ca, err := newAuthority(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := writeNew(filepath.Join(dir, "cluster.key"), []byte(hex.EncodeToString(key)+"\n")); err != nil {
		return err
	}
	store, with := storeText(servers, etcd, zookeeper)
	if err := writeNew(filepath.Join(dir, "store.toml"), []byte(store)); err != nil {
		return err
	}
	routes := routesText(prefixes)
	if err := writeNew(filepath.Join(dir, "routes.toml"), []byte(routes)); err != nil {
		return err
	}
	for n, server := range servers {
		own := ""
		if n < with {
			own = etcdText(servers[:with], server)
		}
		if err := addServer(dir, ca, server, store+own+routes); err != nil {
			return err
		}
	}
	a.say("%s has a folder for each server, and ca.key, which signs servers' certificates: keep it where nobody else can read it.", dir)
	a.next(dir, servers)
	return nil
}

func (a *app) next(dir string, servers []named) {
	a.say("Next:")
	for n, server := range servers {
		a.say("%3d. copy %s to /etc/millrace/cluster on %s (%v)", n+1, filepath.Join(dir, server.name), server.name, server.address)
	}
	a.say("%3d. add [[routes.neighbor]], the switches, to agent.toml there, and [cluster] to millrace.toml (docs/cluster.md)", len(servers)+1)
	a.say("%3d. systemctl enable --now millrace@a millctl-cluster, and then: millctl cluster status", len(servers)+2)
}

// addServer makes a server's folder.
func addServer(dir string, ca *authority, server named, rest string) error {
	to := filepath.Join(dir, server.name)
	if err := makeFolder(to, "the cluster has a server of that name, so give another name"); err != nil {
		return err
	}
	if err := ca.sign(server.name, server.address, filepath.Join(to, "cert.pem"), filepath.Join(to, "key.pem")); err != nil {
		return err
	}
	for _, name := range []string{"ca.pem", "cluster.key"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = writeNew(filepath.Join(to, name), text)
		}
		if err != nil {
			return err
		}
	}
	head := fmt.Sprintf(`# The agent of %s (docs/cluster.md).
name = %q
# rack = "a"            # both copies of a shard are never in one rack, if there is another
# capacity = 1000000    # packets a second that this server can serve, about
# socket = "/run/millrace.sock"
`, server.name, server.name)
	return writeNew(filepath.Join(to, "agent.toml"), []byte(head+rest))
}

func storeText(servers []named, etcd, zookeeper []string) (text string, with int) {
	text = "\n[store]\n"
	switch {
	case len(zookeeper) > 0:
		text += "zookeeper = " + list(zookeeper)
	case len(etcd) > 0:
		text += "etcd = " + list(etcd)
	default:
		with = min(mostEtcds, len(servers)-(len(servers)+1)%2)
		var urls []string
		for _, server := range servers[:with] {
			urls = append(urls, server.url(2379))
		}
		text += "etcd = " + list(urls)
	}
	return text + "cert = \"cert.pem\"\nkey = \"key.pem\"\nca = \"ca.pem\"\n", with
}

func etcdText(servers []named, self named) string {
	text := fmt.Sprintf("\n[etcd]                  # runs within the agent\ndir = \"/var/lib/millrace/etcd\"\nclients = %q\n\n[etcd.cluster]\n", self.url(2379))
	for _, server := range servers {
		text += fmt.Sprintf("%q = %q\n", server.name, server.url(2380))
	}
	return text
}

func routesText(prefixes []string) string {
	if len(prefixes) == 0 {
		prefixes = []string{"203.0.113.10/32"}
	}
	text := "\n[routes]\nasn = 65001             # of all servers\nprefixes = " + list(prefixes) + `
# [[routes.neighbor]]     # each switch, at each port
# device = "mr-wan"       # the kernel interface of the port
# local = "10.1.1.2"      # this server's address there
# address = "10.1.1.1"    # the switch's
# asn = 65000
# password = "..."
# side = "wan"            # one neighbour of each side must be up
`
	return strings.Replace(commented(text), "\n# # ", "\n# ", -1)
}

// commented makes the part a comment: without neighbours it would be wrong.
func commented(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for n, line := range lines {
		if line != "" {
			lines[n] = "# " + line
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func list(texts []string) string {
	quoted := make([]string, len(texts))
	for n, text := range texts {
		quoted[n] = fmt.Sprintf("%q", text)
	}
	return "[" + strings.Join(quoted, ", ") + "]\n"
}

func (a *app) join() *cobra.Command {
	return &cobra.Command{
		Use:   "join DIR NAME=ADDRESS...",
		Short: "Make the certificate and the configuration of further servers",
		Long: `Makes the folders of further servers in the folder that "millctl cluster init" has made. A server is part of the cluster from when its agent runs. Its
etcd is that of the first servers.`,
		Example: `  millctl cluster join cluster four=192.0.2.4`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return commandline.Usage("give the folder that millctl cluster init has made, and servers as NAME=ADDRESS")
			}
			servers, err := parseServers(args[1:])
			if err != nil {
				return err
			}
			return a.made(a.addServers(args[0], servers))
		},
	}
}

func (a *app) addServers(dir string, servers []named) error {
	ca, err := readAuthority(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: give the folder that millctl cluster init has made", err)
	}
	if err != nil {
		return err
	}
	rest := ""
	for _, name := range []string{"store.toml", "routes.toml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		rest += string(text)
	}
	for _, server := range servers {
		if err := addServer(dir, ca, server, rest); err != nil {
			return err
		}
	}
	a.next(dir, servers)
	return nil
}
