// Package config reads the file of a server's agent, in TOML. The commands of an operator read it, too.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"millrace/control/cluster/internal/routes"
	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/etcd"
	"millrace/control/cluster/internal/store/zookeeper"
	"millrace/control/internal/api"
)

// Config is the file. docs/cluster.md describes it.
type Config struct {
	Cluster  string  `toml:"cluster"` // name: several clusters may share a store
	Name     string  `toml:"name"`    // of this server
	Rack     string  `toml:"rack"`
	Capacity float64 `toml:"capacity"` // packets a second
	Socket   string  `toml:"socket"`
	// Elasticity is whether the manager takes servers in and out of use by load: off, dry-run (it only logs what it would do), or on.
	Elasticity string `toml:"elasticity"`
	// ElasticityIn is for how many seconds the load must have been high until a server is taken into use; ElasticityOut, low until one is taken out.
	ElasticityIn  int `toml:"elasticity_in_s"`
	ElasticityOut int `toml:"elasticity_out_s"`

	Store  Store   `toml:"store"`
	Etcd   *Etcd   `toml:"etcd"`
	Routes *Routes `toml:"routes"`
}

// Store says where the store is.
type Store struct {
	Etcd      []string `toml:"etcd"`      // URLs
	ZooKeeper []string `toml:"zookeeper"` // addresses with ports
	Cert      string   `toml:"cert"`
	Key       string   `toml:"key"`
	CA        string   `toml:"ca"`
	// Session is how long an agent may be silent until it counts as lost.
	Session int `toml:"session_s"`
}

// Etcd is a server of etcd within the agent's process.
type Etcd struct {
	Dir     string            `toml:"dir"`
	Clients string            `toml:"clients"` // URL
	Cluster map[string]string `toml:"cluster"` // URLs for each other, by name of the server
}

// Routes are what is announced to switches.
type Routes struct {
	ASN           uint32         `toml:"asn"`
	RouterID      netip.Addr     `toml:"router_id"`
	BFDInterval   int            `toml:"bfd_interval_ms"`
	BFDMultiplier int            `toml:"bfd_multiplier"`
	Prefixes      []netip.Prefix `toml:"prefixes"` // for neighbours that have no list of their own
	Neighbors     []Neighbor     `toml:"neighbor"`
}

// Neighbor is a switch.
type Neighbor struct {
	Device      string         `toml:"device"`
	Local       netip.Addr     `toml:"local"`
	Address     netip.Addr     `toml:"address"`
	ASN         uint32         `toml:"asn"`
	Side        string         `toml:"side"`
	Password    string         `toml:"password"`
	TTLSecurity bool           `toml:"ttl_security"`
	Prefixes    []netip.Prefix `toml:"prefixes"` // in place of those of [routes]
}

// Path is where the file is unless it is named.
const Path = "/etc/millrace/cluster/agent.toml"

// Read reads the file. ErrWrong: it can be read, and is wrong; the error then has a line for each problem.
func Read(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w (--config names another file; millctl cluster init makes one)", err)
	}
	c := &Config{Cluster: "one", Capacity: 1e6, Socket: api.DefaultSocket(), Elasticity: "off", ElasticityIn: 60, ElasticityOut: 1800, Store: Store{Session: 2}}
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrWrong, explain(path, err))
	}
	// A file that is copied with its certificates to another folder stays right.
	for _, name := range []*string{&c.Store.Cert, &c.Store.Key, &c.Store.CA} {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(filepath.Dir(path), *name)
		}
	}
	if problems := c.problems(); len(problems) > 0 {
		for n := range problems {
			problems[n] = path + ": " + problems[n]
		}
		return nil, fmt.Errorf("%w: %s", ErrWrong, strings.Join(problems, "\n"))
	}
	return c, nil
}

// ErrWrong is the error of a file that is wrong.
var ErrWrong = errors.New("the agent's configuration is wrong")

func explain(path string, err error) string {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var lines []string
		for _, one := range unknown.Errors {
			row, _ := one.Position()
			lines = append(lines, fmt.Sprintf("%s:%d: %s is no key", path, row, strings.Join(one.Key(), ".")))
		}
		return strings.Join(lines, "\n")
	}
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		row, column := wrong.Position()
		return fmt.Sprintf("%s:%d:%d: %s", path, row, column, strings.TrimPrefix(wrong.Error(), "toml: "))
	}
	return path + ": " + err.Error()
}

func (c *Config) problems() (problems []string) {
	say := func(format string, values ...any) { problems = append(problems, fmt.Sprintf(format, values...)) }
	if c.Cluster == "" || strings.Contains(c.Cluster, "/") {
		say("cluster is %q: give a name without a slash", c.Cluster)
	}
	if c.Name == "" {
		say("name is missing: give this server's, such as its host name")
	}
	if !(c.Capacity > 0) || c.Capacity > 1e12 {
		say("capacity is %v: give the packets a second that this server can serve, such as 1000000", c.Capacity)
	}
	if !slices.Contains([]string{"off", "dry-run", "on"}, c.Elasticity) {
		say("elasticity is %q: give off, dry-run or on", c.Elasticity)
	}
	if c.ElasticityIn < 10 || c.ElasticityIn > 86400 || c.ElasticityOut < 10 || c.ElasticityOut > 86400 {
		say("elasticity_in_s is %d, elasticity_out_s is %d: give 10 to 86400", c.ElasticityIn, c.ElasticityOut)
	}
	if (len(c.Store.Etcd) == 0) == (len(c.Store.ZooKeeper) == 0) {
		say("store: give etcd = [\"https://...\"], or zookeeper = [\"ADDRESS:PORT\"]")
	}
	for _, at := range c.Store.Etcd {
		if to, err := url.Parse(at); err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" {
			say("store.etcd: %q is no URL, such as https://192.0.2.1:2379", at)
		}
	}
	for _, at := range c.Store.ZooKeeper {
		if _, err := netip.ParseAddrPort(at); err != nil && !strings.Contains(at, ":") {
			say("store.zookeeper: %q is no address with a port, such as 192.0.2.1:2281", at)
		}
	}
	if set := []bool{c.Store.Cert != "", c.Store.Key != "", c.Store.CA != ""}; slices.Contains(set, true) && slices.Contains(set, false) {
		say("store: cert, key and ca go together")
	}
	if c.Store.Session < 1 || c.Store.Session > 60 {
		say("store.session_s is %d: give 1 to 60", c.Store.Session)
	}
	if c.Etcd != nil {
		c.Etcd.check(c.Name, say)
	}
	if c.Routes != nil {
		c.Routes.check(say)
	}
	return problems
}

func (e *Etcd) check(name string, say func(string, ...any)) {
	if e.Dir == "" {
		e.Dir = "/var/lib/millrace/etcd"
	}
	if e.Clients == "" {
		say("etcd.clients is missing: give the URL at which other servers reach this one's etcd, such as https://192.0.2.1:2379")
	} else if !hasPort(e.Clients) {
		say("etcd.clients: %q is no URL with a port, such as https://192.0.2.1:2379", e.Clients)
	}
	for _, of := range slices.Sorted(maps.Keys(e.Cluster)) {
		if !hasPort(e.Cluster[of]) {
			say("etcd.cluster: %s has %q, which is no URL with a port, such as https://192.0.2.1:2380", of, e.Cluster[of])
		}
	}
	if e.Cluster[name] == "" {
		say("etcd.cluster lacks this server's name, %s", name)
	}
}

// hasPort returns true for a URL with a host and a port.
func hasPort(text string) bool {
	is, err := url.Parse(text)
	return err == nil && (is.Scheme == "https" || is.Scheme == "http") && is.Hostname() != "" && is.Port() != ""
}

func (r *Routes) check(say func(string, ...any)) {
	if r.ASN == 0 {
		say("routes.asn is missing: the AS number of all servers, such as 65001")
	}
	if r.BFDInterval == 0 {
		r.BFDInterval = 50
	}
	if r.BFDMultiplier == 0 {
		r.BFDMultiplier = 3
	}
	if r.BFDInterval < 10 || r.BFDInterval > 10_000 || r.BFDMultiplier < 2 || r.BFDMultiplier > 50 {
		say("routes: bfd_interval_ms must be 10 to 10000, and bfd_multiplier 2 to 50")
	}
	if len(r.Neighbors) == 0 {
		say("routes: no [[routes.neighbor]] is named")
	}
	for n := range r.Neighbors {
		at := &r.Neighbors[n]
		if at.Device == "" || at.ASN == 0 || !at.Local.IsValid() || !at.Address.IsValid() {
			say("routes.neighbor %d: needs device, local, address and asn", n+1)
			continue
		}
		if at.Local.Is4() != at.Address.Is4() {
			say("routes.neighbor %v: local must be of the same family", at.Address)
		}
		if at.Prefixes == nil {
			at.Prefixes = slices.DeleteFunc(slices.Clone(r.Prefixes), func(p netip.Prefix) bool { return p.Addr().Is4() != at.Address.Is4() })
		}
		for _, prefix := range at.Prefixes {
			if prefix != prefix.Masked() || prefix.Addr().Is4() != at.Address.Is4() {
				say("routes.neighbor %v: %v is no prefix of the neighbour's family, such as 203.0.113.10/32", at.Address, prefix)
			}
		}
		if len(at.Prefixes) == 0 {
			say("routes.neighbor %v: no prefixes of its family, here or in [routes]", at.Address)
		}
		if !r.RouterID.IsValid() && at.Local.Is4() {
			r.RouterID = at.Local
		}
	}
	if len(r.Neighbors) > 0 && !r.RouterID.Is4() {
		say("routes.router_id is missing: an IPv4 address of this server's own, as no neighbour has one")
	}
}

func (c *Config) tls() store.TLS {
	return store.TLS{Cert: c.Store.Cert, Key: c.Store.Key, CA: c.Store.CA}
}

// Open returns a client of the store.
func (c *Config) Open(log *slog.Logger) (store.Store, error) {
	session := time.Duration(c.Store.Session) * time.Second
	if len(c.Store.ZooKeeper) > 0 {
		return zookeeper.Open(zookeeper.Config{Servers: c.Store.ZooKeeper, Root: "/millrace/" + c.Cluster, TLS: c.tls(), Session: session, Log: log})
	}
	return etcd.Open(etcd.Config{Endpoints: c.Store.Etcd, Prefix: "/millrace/" + c.Cluster + "/", TLS: c.tls(), Session: session, Log: log})
}

// Server returns the settings of this process's etcd; false if it has none.
func (c *Config) Server() (etcd.ServerConfig, bool) {
	if c.Etcd == nil {
		return etcd.ServerConfig{}, false
	}
	return etcd.ServerConfig{Name: c.Name, Dir: c.Etcd.Dir, Clients: c.Etcd.Clients, Peers: c.Etcd.Cluster[c.Name], Cluster: c.Etcd.Cluster, TLS: c.tls()}, true
}

// Speaker returns the settings of routes.
func (c *Config) Speaker(log *slog.Logger) routes.Config {
	if c.Routes == nil {
		return routes.Config{Interval: time.Second, Log: log}
	}
	speaker := routes.Config{ASN: c.Routes.ASN, RouterID: c.Routes.RouterID, Interval: time.Duration(c.Routes.BFDInterval) * time.Millisecond,
		Multiplier: c.Routes.BFDMultiplier, Log: log}
	for _, at := range c.Routes.Neighbors {
		speaker.Neighbors = append(speaker.Neighbors, routes.Neighbor{Device: at.Device, Local: at.Local, Address: at.Address, ASN: at.ASN,
			Password: at.Password, TTLSecurity: at.TTLSecurity, Side: at.Side, Prefixes: at.Prefixes})
	}
	return speaker
}
