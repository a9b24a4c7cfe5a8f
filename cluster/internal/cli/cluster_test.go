package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/control/cluster/internal/cli"
	"millrace/control/cluster/internal/dataplane/dataplanetest"
	"millrace/control/cluster/internal/records"
)

const long = time.Minute

var names = []string{"one", "two", "three"}

// rig is three agents with embedded etcd, as init has made them, and dataplanes that do nothing.
type rig struct {
	*testing.T
	dir    string
	planes []*dataplanetest.Plane
	stop   []func()
	starts int
	status int // with which agents end now
}

const whatever = -1 // the last servers of etcd's cluster cannot leave

// run runs a command line.
func run(t *testing.T, args ...string) (status int, out, err string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var o, e bytes.Buffer
	status = cli.Run(ctx, args, &o, &e)
	return status, o.String(), e.String()
}

func free(t *testing.T, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, dir: filepath.Join(t.TempDir(), "cluster")}
	args := []string{"init", r.dir}
	var ports []string
	for n, name := range names {
		address := fmt.Sprint("127.0.0.", n+1)
		args = append(args, name+"="+address)
		ports = append(ports, address+":2379", free(t, address), address+":2380", free(t, address))
		r.planes = append(r.planes, dataplanetest.New(t, n+1))
	}
	r.ok(args...)
	for n, name := range names {
		path := r.path(name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.NewReplacer(append(ports, `# socket = "/run/millrace.sock"`, fmt.Sprintf("socket = %q", r.planes[n].Socket),
			"/var/lib/millrace/etcd", filepath.Join(r.dir, name, "etcd"))...).Replace(string(text))
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		r.stop = append(r.stop, nil)
		r.start(n)
	}
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name, "agent.toml") }

func (r *rig) start(n int) {
	// A file stays locked as long as this process runs, so each agent has one of its own.
	r.starts++
	text, err := os.ReadFile(r.path(names[n]))
	if err != nil {
		r.Fatal(err)
	}
	path := filepath.Join(r.dir, names[n], fmt.Sprint("agent", r.starts, ".toml"))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() {
		status := cli.Run(ctx, []string{"agent", "--config", path}, r.Output(), r.Output())
		if r.status != whatever && status != r.status {
			r.Errorf("the agent of %s ends with %d", names[n], status)
		}
	})
	r.stop[n] = func() { cancel(); ends.Wait() }
	r.Cleanup(func() { r.status = whatever; r.stop[n]() })
}

// at runs a command with the configuration of a server.
func (r *rig) at(name string, args ...string) (int, string, string) {
	r.Helper()
	return run(r.T, append(args, "--config", r.path(name))...)
}

func (r *rig) ok(args ...string) string {
	r.Helper()
	status, out, err := r.at("one", args...)
	if status != 0 {
		r.Fatalf("%v: %d, %s", args, status, err)
	}
	return out
}

type status struct {
	Leader   int
	Troubles []string
	Servers  []struct {
		Name, State, Instance string
		Masters, Slaves       int
	}
	Shards []struct {
		Master, Slave int
		InSync        bool `json:"in_sync"`
		Settled       bool
		Troubles      []string
	}
}

// await waits until the status is as it should be.
func (r *rig) await(what string, is func(status) bool) {
	r.Helper()
	var last string
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		code, out, err := r.at("one", "status", "--json")
		last = out + err
		var now status
		if code == 0 && json.Unmarshal([]byte(out), &now) == nil && is(now) {
			return
		}
	}
	r.Fatalf("not within %v: %s: %s", long, what, last)
}

// well returns a condition: all shards have two copies in sync, and those servers have some, the others none.
func well(states ...string) func(status) bool {
	return func(is status) bool {
		if len(is.Servers) != len(states) || is.Leader == 0 || len(is.Shards) != dataplanetest.Shards {
			return false
		}
		for n, want := range states {
			has := is.Servers[n].Masters+is.Servers[n].Slaves > 0
			if is.Servers[n].State != want || has != (want == "up") {
				return false
			}
		}
		return inSync(is)
	}
}

func inSync(is status) bool {
	for _, shard := range is.Shards {
		if !shard.InSync || !shard.Settled || len(shard.Troubles) > 0 {
			return false
		}
	}
	return true
}

// awaitGrants waits until both servers of each shard have half of its grants.
func (r *rig) awaitGrants() {
	r.await("both servers of each shard have half of its grants", func(is status) bool {
		for shard, has := range is.Shards {
			all := map[uint32]bool{}
			for _, server := range []int{has.Master, has.Slave} {
				if server == 0 || len(r.planes[server-1].Grants(shard)) != dataplanetest.Wanted {
					return false
				}
				for _, number := range r.planes[server-1].Grants(shard) {
					all[number] = true
				}
			}
			if len(all) != records.GrantCount {
				return false
			}
		}
		return inSync(is)
	})
}

func TestCluster(t *testing.T) {
	r := newRig(t)
	r.await("all are up, and have shards", well("up", "up", "up"))
	r.awaitGrants()
	r.await("shards are spread", func(is status) bool {
		return is.Servers[0].Masters > 30 && is.Servers[1].Masters > 30 && is.Servers[2].Masters > 30
	})

	if text := r.ok("status", "--shards"); !strings.Contains(text, "all 128 shards have two copies in sync") || !strings.Contains(text, "two") {
		t.Errorf("status: %s", text)
	}
	// A shard goes to a server that has no copy of it.
	r.await("shard 7 moves", func(is status) bool {
		target := 6 - is.Shards[7].Master - is.Shards[7].Slave
		r.ok("move", "7", names[target-1])
		status, out, _ := r.at("two", "status", "--json")
		return status == 0 && json.Unmarshal([]byte(out), &is) == nil && is.Shards[7].Master == target
	})

	r.planes[1].Differ(1, "customers differ")
	r.await("two servers disagree", func(is status) bool {
		return slices.Equal(is.Troubles, []string{"servers 1 and 2 disagree: customers differ, so nothing is copied between them"})
	})
	if text := r.ok("status"); !strings.Contains(text, "\nservers 1 and 2 disagree: customers differ, so nothing is copied between them\n") {
		t.Errorf("status: %s", text)
	}
	r.planes[1].Differ(0, "")

	if text := r.ok("drain", "two"); !strings.HasSuffix(text, "two is out of use, and has no shards\n") {
		t.Errorf("drain: %s", text)
	}
	r.await("two has nothing", well("up", "drains", "up"))
	if !r.planes[1].HasNothing() {
		t.Error("the dataplane of two has copies")
	}
	if code, _, err := r.at("two", "gone", "two"); code != 1 || !strings.Contains(err, "two is present") {
		t.Errorf("gone: %d %s", code, err)
	}
	r.ok("return", "two")

	// millrace alone is restarted, on one server after the other.
	before := r.planes[0].Instance()
	text := r.ok("upgrade", "--restart", fmt.Sprintf(`case $MILLRACE_NAME in one) touch %s;; three) touch %s;; esac`, r.planes[0].Marker, r.planes[2].Marker), "one", "three")
	if r.planes[0].Instance() == before || !strings.Contains(text, "three is in use") {
		t.Errorf("upgrade: %s", text)
	}
	r.planes[0].Restart()
	r.await("the new process is known", func(is status) bool {
		return is.Servers[0].Instance == r.planes[0].Instance() && is.Servers[0].State == "up"
	})
	r.await("all shards are in sync", inSync)

	// A server does not answer, and comes back; another one leaves.
	r.planes[1].Silence(true)
	r.await("two is lost", func(is status) bool { return is.Servers[1].State == "lost" })
	r.planes[1].Silence(false)
	r.await("two is back", func(is status) bool { return is.Servers[1].State == "up" })
	// Nobody takes a server for gone whose dataplane has not given everything up.
	r.planes[2].TakeTime(long)
	r.status = 1
	r.stop[2]()
	r.status = 0
	r.await("three is lost", func(is status) bool { return is.Servers[2].State == "lost" })
	r.planes[2].TakeTime(time.Second)
	r.start(2)
	r.await("three is back", func(is status) bool { return is.Servers[2].State == "up" })
	r.stop[2]()
	r.await("the others have all shards, and nobody waits for three", well("up", "up", "gone"))
	r.awaitGrants()
	if !r.planes[2].HasNothing() {
		t.Error("the dataplane of three has copies after its agent has left")
	}
	if code, _, err := r.at("one", "upgrade", "three"); code != 2 || !strings.Contains(err, "three is not present") {
		t.Errorf("upgrade: %d %s", code, err)
	}
	for n, plane := range r.planes {
		t.Logf("%s was told %d orders", names[n], plane.Puts)
	}
}

// Each mistake gets one line, and the documented exit status.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := "name = \"one\"\n[store]\netcd = [\"http://127.0.0.1:1\"]\n"
	for _, one := range []struct {
		text   string
		args   []string
		status int
		err    string
	}{
		{good, nil, 2, "a command is needed"},
		{good, []string{"drian", "x"}, 2, "the nearest is drain"},
		{good, []string{"drain"}, 2, "give SERVER"},
		{good, []string{"move", "x", "one"}, 2, `"x" is no number: millctl cluster status --shards`},
		{good, []string{"status"}, 3, "the store has not answered for 5s"},
		{good, []string{"status", "--config", filepath.Join(dir, "none")}, 3, "no such file"},
		{good, []string{"init", filepath.Join(dir, "c"), "one=127.0.0.1", "two=127.0.0.2"}, 2, "2 servers are too few"},
		{good, []string{"init", filepath.Join(dir, "c"), "one=127.0.0.1", "two=127.0.0.1", "three=127.0.0.3"}, 2, "a name and an address of its own"},
		{good, []string{"init", filepath.Join(dir, "c"), "one", "two=127.0.0.1", "three=127.0.0.3"}, 2, "give NAME=ADDRESS"},
		{good, []string{"init", filepath.Join(dir, "c"), "--prefix", "10.0.0.1/8", "a=127.0.0.1", "b=127.0.0.2", "c=127.0.0.3"}, 2, "--prefix 10.0.0.1/8"},
		{good, []string{"init", dir, "a=127.0.0.1", "b=127.0.0.2", "c=127.0.0.3"}, 3, "file exists: give the name of a new folder"},
		{good, []string{"join", filepath.Join(dir, "none"), "d=127.0.0.1"}, 3, "give the folder that millctl cluster init has made"},
		{"x = 1\n" + good, []string{"status"}, 2, "agent.toml:1: x is no key"},
		{"name = \n", []string{"status"}, 2, "agent.toml:1:8: "},
		{"name = \"one\"\n", []string{"status"}, 2, "store: give etcd"},
		{good + "session_s = 0\n", []string{"status"}, 2, "session_s is 0"},
		{"capacity = -1\n" + good, []string{"status"}, 2, "capacity is -1"},
		{"elasticity_in_s = 5\n" + good, []string{"status"}, 2, "elasticity_in_s is 5"},
		{good + "cert = \"x\"\n", []string{"agent"}, 2, "cert, key and ca go together"},
		{good + "[etcd]\nclients = \"http://127.0.0.1:1\"\n", []string{"agent"}, 2, "etcd.cluster lacks this server's name, one"},
		{good + "[routes]\nasn = 1\n", []string{"agent"}, 2, "no [[routes.neighbor]] is named"},
		{good + "[routes]\nasn = 1\n[[routes.neighbor]]\ndevice = \"x\"\nlocal = \"10.0.0.1\"\naddress = \"10.0.0.2\"\nasn = 2\n", []string{"agent"}, 2, "no prefixes of its family"},
	} {
		write(one.text)
		args := one.args
		if !slices.Contains(args, "--config") {
			args = append(args, "--config", file)
		}
		status, _, err := run(t, args...)
		if status != one.status || !strings.Contains(err, one.err) || strings.Count(err, "\n") != 1 || !strings.HasPrefix(err, "millctl: ") {
			t.Errorf("%v with %q: %d, %q", args, one.text, status, err)
		}
	}
}
