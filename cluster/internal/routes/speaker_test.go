package routes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/control/cluster/internal/routes"
)

const (
	frr      = "/usr/lib/frr/"
	password = "test-password"
	long     = time.Minute
)

// TestMain runs a speaker instead of the tests if a test has started this process as one, in a network namespace.
func TestMain(m *testing.M) {
	config := os.Getenv("MILLRACE_TEST_SPEAKER")
	if config == "" {
		os.Exit(m.Run())
	}
	if err := speak(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// speak announces the routes after a line "on", and withdraws them after any other line.
func speak(text string) error {
	var config routes.Config
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	config.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	speaker, err := routes.Open(context.Background(), config)
	if err != nil {
		return err
	}
	defer speaker.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := speaker.Announce(context.Background(), lines.Text() == "on"); err != nil {
			return err
		}
	}
	return nil
}

// network is a switch, which is FRR in a namespace, and servers, each with a link on two sides.
type network struct {
	*testing.T
	is6             bool
	inside, outside netip.Prefix // announced on the two sides
	dir             string
	id              int
}

func newNetwork(t *testing.T, is6 bool) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for path, of := range map[string]string{"ip": "iproute2", frr + "bgpd": "frr", frr + "bfdd": "frr", frr + "zebra": "frr"} {
		if _, err := exec.LookPath(path); err != nil {
			t.Skipf("no %s here (package %s)", path, of)
		}
	}
	n := &network{T: t, is6: is6, inside: netip.MustParsePrefix("172.16.0.5/32"), outside: netip.MustParsePrefix("192.0.2.0/26"), id: os.Getpid()}
	if is6 {
		n.inside, n.outside = netip.MustParsePrefix("2001:db8:1::5/128"), netip.MustParsePrefix("2001:db8:2::/64")
	}
	n.must(n.add("switch"))
	n.within("switch", "sysctl", "-q", "-w", "net.ipv6.conf.all.keep_addr_on_down=1") // as a router that has its addresses configured
	for server := 1; server <= 2; server++ {
		n.must(n.add(fmt.Sprint("server", server)))
		for side, name := range []string{"access", "internet"} {
			here, there := fmt.Sprint(name, server), name
			n.run("ip", "link", "add", here, "netns", n.name("switch"), "type", "veth", "peer", there, "netns", n.name(fmt.Sprint("server", server)))
			n.within("switch", "ip", "link", "set", here, "up")
			n.within("switch", "ip", "address", "add", n.with(side, server, 1), "dev", here, "nodad")
			n.within(fmt.Sprint("server", server), "ip", "link", "set", there, "up")
			n.within(fmt.Sprint("server", server), "ip", "address", "add", n.with(side, server, 2), "dev", there, "nodad")
		}
	}
	n.startSwitch()
	return n
}

func (n *network) address(side, server, end int) netip.Addr {
	if n.is6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 5: byte(side + 1), 7: byte(server), 15: byte(end)})
	}
	return netip.AddrFrom4([4]byte{10, byte(side + 1), byte(server), byte(end)})
}

// with returns an address with the length of its link's prefix.
func (n *network) with(side, server, end int) string {
	if n.is6 {
		return fmt.Sprint(n.address(side, server, end), "/64")
	}
	return fmt.Sprint(n.address(side, server, end), "/24")
}

func (n *network) name(of string) string { return fmt.Sprintf("mr%d%s", n.id, of) }

func (n *network) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *network) add(name string) error {
	out, err := exec.Command("ip", "netns", "add", n.name(name)).CombinedOutput()
	if err != nil {
		n.Skipf("no network namespaces here: %s", out)
	}
	n.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.name(name)).Run() })
	_, err = exec.Command("ip", "-n", n.name(name), "link", "set", "lo", "up").CombinedOutput()
	return err
}

func (n *network) run(command ...string) string {
	n.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		n.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

func (n *network) within(name string, command ...string) string {
	n.Helper()
	return n.run(append([]string{"ip", "netns", "exec", n.name(name)}, command...)...)
}

// startSwitch starts FRR's daemons, with paths of their own, as the user that FRR wants.
func (n *network) startSwitch() {
	n.Helper()
	var bgp strings.Builder
	bgp.WriteString("router bgp 65000\n bgp router-id 10.0.0.1\n no bgp ebgp-requires-policy\n timers bgp 1 3\n")
	for server := 1; server <= 2; server++ {
		for side := range 2 {
			for _, line := range []string{"remote-as 65001", "bfd profile fast", "password " + password, "advertisement-interval 0"} {
				fmt.Fprintf(&bgp, " neighbor %v %s\n", n.address(side, server, 2), line)
			}
			if n.is6 {
				fmt.Fprintf(&bgp, " address-family ipv6 unicast\n  neighbor %v activate\n exit-address-family\n", n.address(side, server, 2))
			}
		}
	}
	files := map[string]string{"zebra": "no zebra nexthop kernel enable\n", "bgpd": bgp.String(), "bfdd": "bfd\n profile fast\n  detect-multiplier 3\n  receive-interval 50\n  transmit-interval 50\n"}
	owner, err := user.Lookup("frr")
	n.must(err)
	uid, err := strconv.Atoi(owner.Uid)
	n.must(err)
	gid, err := strconv.Atoi(owner.Gid)
	n.must(err)
	dir, err := os.MkdirTemp("", "millrace-frr") // the user must be let in
	n.must(err)
	n.Cleanup(func() { _ = os.RemoveAll(dir) })
	n.dir = dir
	n.must(os.Chmod(dir, 0o755))
	n.must(os.Chown(dir, uid, gid))
	for _, daemon := range []string{"zebra", "bfdd", "bgpd"} {
		config := filepath.Join(dir, daemon+".conf")
		n.must(os.WriteFile(config, []byte(files[daemon]), 0o644))
		arguments := []string{"-f", config, "-i", filepath.Join(dir, daemon+".pid"), "-z", filepath.Join(dir, "zserv"), "--vty_socket", dir,
			"-A", "127.0.0.1", "-P", "0", "--log", "file:" + filepath.Join(dir, daemon+".log")}
		if daemon == "bfdd" {
			arguments = append(arguments, "--bfdctl", filepath.Join(dir, "bfdd.sock"))
		}
		n.start("switch", nil, append([]string{frr + daemon}, arguments...)...)
		if daemon == "zebra" {
			n.await("zebra listens", func() bool { _, err := os.Stat(filepath.Join(dir, "zserv")); return err == nil })
		}
	}
}

// start starts a program in a namespace. It ends with the test.
func (n *network) start(name string, environment []string, command ...string) (*exec.Cmd, io.Writer) {
	n.Helper()
	program := exec.Command("ip", append([]string{"netns", "exec", n.name(name)}, command...)...)
	program.Env = append(os.Environ(), environment...)
	program.Stdout, program.Stderr = n.Output(), n.Output()
	in, err := program.StdinPipe()
	n.must(err)
	n.must(program.Start())
	n.Cleanup(func() {
		_ = program.Process.Kill() // ip has become the program
		_ = program.Wait()
	})
	return program, in
}

func (n *network) await(what string, is func() bool) time.Duration {
	n.Helper()
	begin := time.Now()
	for !is() {
		if time.Since(begin) > long {
			n.Log(n.within("switch", "vtysh", "--vty_socket", n.dir, "-c", "show bgp summary", "-c", "show bfd peers brief", "-c", "show bgp all"), n.within("switch", "ip", n.family(), "route"))
			n.Fatalf("not within %v: %s", long, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}

// next returns the servers that the switch's route to a prefix has as next hops.
func (n *network) next(side int, to netip.Prefix) (servers []int) {
	text := n.within("switch", "ip", n.family(), "route", "show", to.String())
	for server := 1; server <= 2; server++ {
		if strings.Contains(text, fmt.Sprintf("via %v ", n.address(side, server, 2))) {
			servers = append(servers, server)
		}
	}
	return servers
}

func (n *network) family() string {
	if n.is6 {
		return "-6"
	}
	return "-4"
}

// goTo returns true if both directions' packets go to these servers.
func (n *network) goTo(servers ...int) bool {
	return slices.Equal(n.next(0, n.inside), servers) && slices.Equal(n.next(1, n.outside), servers)
}

// speaker is a speaker's process.
type speaker struct {
	*network
	process *exec.Cmd
	in      io.Writer
}

func (n *network) speak(server int) *speaker {
	n.Helper()
	config := routes.Config{ASN: 65001, RouterID: netip.AddrFrom4([4]byte{10, 0, 1, byte(server)}), Interval: 50 * time.Millisecond, Multiplier: 3}
	for side, prefix := range []netip.Prefix{n.inside, n.outside} {
		name := []string{"access", "internet"}[side]
		config.Neighbors = append(config.Neighbors, routes.Neighbor{Device: name, Side: name, Local: n.address(side, server, 2),
			Address: n.address(side, server, 1), ASN: 65000, Password: password, Prefixes: []netip.Prefix{prefix}})
	}
	text, err := json.Marshal(config)
	n.must(err)
	self, err := os.Executable()
	n.must(err)
	process, in := n.start(fmt.Sprint("server", server), []string{"MILLRACE_TEST_SPEAKER=" + string(text)}, self)
	return &speaker{n, process, in}
}

func (s *speaker) announce(is string) {
	s.Helper()
	_, err := io.WriteString(s.in, is+"\n")
	s.must(err)
}

func (s *speaker) signal(signal syscall.Signal) {
	s.Helper()
	s.must(s.process.Process.Signal(signal))
}

func TestSpeakerIPv4(t *testing.T) { trySpeakers(newNetwork(t, false)) }

func TestSpeakerIPv6(t *testing.T) { trySpeakers(newNetwork(t, true)) }

func trySpeakers(n *network) {
	one, two := n.speak(1), n.speak(2)
	one.announce("on")
	n.Logf("the first route is there after %v", n.await("the first route", func() bool { return n.goTo(1) }))
	two.announce("on")
	n.Logf("both are there after %v more", n.await("two routes of equal cost", func() bool { return n.goTo(1, 2) }))

	// A server is silent: its process is stopped.
	one.signal(syscall.SIGSTOP)
	n.Logf("after one is stopped packets go to the other in %v", n.await("the other's route", func() bool { return n.goTo(2) }))
	one.signal(syscall.SIGCONT)
	n.Logf("after it goes on packets go there, too, in %v", n.await("two routes of equal cost", func() bool { return n.goTo(1, 2) }))

	// One side's link of a server goes down: both sides' routes go.
	n.within("switch", "ip", "link", "set", "internet2", "down")
	n.Logf("after one link is down packets go to the other on both sides in %v", n.await("the other's route", func() bool { return n.goTo(1) }))
	n.within("switch", "ip", "link", "set", "internet2", "up")
	n.Logf("after it is up again packets go there, too, in %v", n.await("two routes of equal cost", func() bool { return n.goTo(1, 2) }))

	// One leaves, and one is killed.
	two.announce("off")
	n.Logf("after a withdrawal packets go to the other in %v", n.await("the other's route", func() bool { return n.goTo(1) }))
	one.signal(syscall.SIGKILL)
	n.Logf("after it is killed there is no route in %v", n.await("no route", func() bool { return n.goTo() }))
}
