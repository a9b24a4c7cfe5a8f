// Package node is a server's part of a cluster, as long as its process runs: etcd if it is embedded, and, for each process of millrace that there is
// meanwhile, an agent, a manager, and routes.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/config"
	"millrace/control/cluster/internal/dataplane"
	"millrace/control/cluster/internal/manager"
	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/routes"
	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/etcd"
)

const (
	again      = 500 * time.Millisecond // until the next try
	answer     = 10 * time.Second       // for millrace to give everything up
	withdrawal = 300 * time.Millisecond // until no switch sends packets any more
	leaving    = 5 * time.Second        // for others to take the shards over, and for the store to hear that nobody is here any more
)

// ErrNotLeft is returned by Run if the server should have left the cluster, and others may still wait for it.
var ErrNotLeft = errors.New("the server has not left the cluster")

// ErrEtcd is returned by Run if the etcd in this process does not start, or has ended. Then the server does not leave the cluster: its millrace goes on
// as after the death of an agent.
var ErrEtcd = errors.New("this server's etcd does not run")

// Run serves until ctx ends; then the server leaves the cluster. It returns an error only if another try would not help.
func Run(ctx context.Context, c *config.Config, log *slog.Logger) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if server, is := c.Server(); is {
		log.Info("etcd waits for most of its cluster", "cluster", server.Cluster)
		running, err := etcd.Serve(ctx, server)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrEtcd, err)
		}
		defer running.Close()
		log.Info("etcd serves", "endpoint", running.Endpoint)
		go func() {
			select {
			case err := <-running.Ended:
				end(fmt.Errorf("%w: %w", ErrEtcd, err))
			case <-ctx.Done():
			}
		}()
	}
	for said := ""; ctx.Err() == nil; pause(ctx, again) {
		err := serve(ctx, c, log)
		if errors.Is(err, agent.ErrMisfit) || errors.Is(err, ErrNotLeft) {
			return err
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.Warn("the server is not part of the cluster until millrace answers", "error", err)
		}
	}
	return lostEtcd(ctx)
}

// lostEtcd returns why ctx has ended, if that is because the etcd in this process has.
func lostEtcd(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, ErrEtcd) {
		return err
	}
	return nil
}

// Lock keeps a second agent from running with a file. The file is unlocked when the process ends.
func Lock(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%s: another agent runs with this file", path)
	}
	locked = append(locked, file)
	return nil
}

var locked []*os.File // open, so that they stay locked

// serve follows one process of millrace.
func serve(ctx context.Context, c *config.Config, log *slog.Logger) error {
	limited, cancel := context.WithTimeout(ctx, answer)
	plane, err := dataplane.Open(limited, c.Socket)
	cancel()
	if err != nil {
		return err
	}
	client, err := c.Open(log)
	if err != nil {
		return err
	}
	defer client.Close()
	is := plane.Identity()
	log.Info("millrace has given everything up, and the server registers", "server", is.Server, "instance", is.Instance, "address", is.Address)
	self, err := agent.Register(ctx, client, is, agent.About{Name: c.Name, Rack: c.Rack, Capacity: c.Capacity})
	if err != nil {
		return err
	}
	log = log.With("member", self)
	log.Info("registered")
	if c.Routes == nil {
		log.Warn("the agent's configuration has no [routes]: switches are not told of this server")
	}
	speaker, err := routes.Open(ctx, c.Speaker(log))
	if err != nil {
		return err
	}
	defer speaker.Close()
	if err := run(ctx, c, self, plane, speaker, client, log); ctx.Err() == nil {
		return err
	}
	if err := lostEtcd(ctx); err != nil {
		return err
	}
	_ = client.Close() // so that others know, and take the shards over; this millrace goes on meanwhile
	if err := leave(context.WithoutCancel(ctx), c, self, plane, log); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeft, err)
	}
	return nil
}

// run lets the agent and the manager work until the agent ends. Then the routes are withdrawn.
func run(ctx context.Context, c *config.Config, self records.Member, plane *dataplane.Dataplane, speaker *routes.Speaker, client store.Store, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	var managing sync.WaitGroup
	defer managing.Wait()
	defer cancel()
	settings := manager.Config{Rules: placement.Default}
	if c.Elasticity != "off" {
		day := placement.Day
		day.In, day.Out = time.Duration(c.ElasticityIn)*time.Second, time.Duration(c.ElasticityOut)*time.Second
		settings.Elasticity, settings.DryRun = &day, c.Elasticity == "dry-run"
	}
	managing.Go(func() { _ = manager.New(self, settings, log).Run(ctx, client) })
	return agent.New(self, agent.Default, plane, speaker, log).Run(ctx, client)
}

// leave waits until no switch sends packets, and other servers have the shards. Then millrace gives everything up.
func leave(ctx context.Context, c *config.Config, self records.Member, plane *dataplane.Dataplane, log *slog.Logger) error {
	log.Info("leaving")
	client, err := c.Open(log)
	if err != nil {
		return err
	}
	defer client.Close()
	pause(ctx, withdrawal)
	waiting, cancel := context.WithTimeout(ctx, leaving)
	defer cancel()
	for has := true; has && waiting.Err() == nil; pause(waiting, withdrawal/3) {
		view, err := client.Read(waiting)
		if err != nil {
			break
		}
		if state, err := records.Parse(view, nil); err == nil {
			has = isMaster(state, self)
		}
	}
	if err := giveUp(ctx, plane); err != nil {
		return fmt.Errorf("millrace may not have given everything up: %w", err)
	}
	last, cancel := context.WithTimeout(ctx, leaving)
	defer cancel()
	if err := agent.Leave(last, client, self); err != nil {
		return err
	}
	log.Info("left")
	return nil
}

func giveUp(ctx context.Context, plane *dataplane.Dataplane) error {
	limited, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	return plane.GiveUp(limited)
}

func isMaster(state *records.State, self records.Member) bool {
	for _, shard := range state.Shards {
		if shard.Value.Master == self {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}
