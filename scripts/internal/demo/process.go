package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
)

// process is a mini-broker of the demo's own.
type process struct {
	name, addr, props, log string
	cmd                    *exec.Cmd
	exited                 chan error
}

// configure writes the properties file of a mini-broker.
func (d *demo) configure(ctx context.Context, name, roles string, more ...string) (*process, error) {
	addr, err := node.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	p := &process{
		name: name, addr: addr,
		props: filepath.Join(d.dir, name+".properties"), log: filepath.Join(d.dir, name+".log"),
	}
	lines := append([]string{
		"process.roles=" + roles,
		"node.id=0",
		"listeners=PLAINTEXT://" + addr,
		"log.dirs=" + filepath.Join(d.dir, name),
		"transaction.max.timeout.ms=2147483647",
	}, more...)
	return p, os.WriteFile(p.props, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// start runs the mini-broker and waits until it is ready.
func (d *demo) start(ctx context.Context, p *process, flags ...string) error {
	ready := filepath.Join(d.dir, p.name+".ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, d.minibroker, append([]string{p.props, "--ready-file", ready}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.exited = cmd, make(chan error, 1)
	go func() { p.exited <- cmd.Wait() }()
	d.processes = append(d.processes, p)
	deadline := time.Now().Add(30 * time.Second)
	for {
		if _, err := os.Stat(ready); err == nil {
			return nil
		}
		select {
		case err := <-p.exited:
			return fmt.Errorf("%s ended before it was ready: %w\n%s", p.name, err, tail(p.log))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s was not ready in 30 s\n%s", p.name, tail(p.log))
		}
	}
}

// waitKilled waits until the process has been ended by SIGKILL.
func (p *process) waitKilled(ctx context.Context) error {
	select {
	case err := <-p.exited:
		exit := new(exec.ExitError)
		if errors.As(err, &exit) {
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
				return nil
			}
		}
		return fmt.Errorf("%s ended otherwise than by SIGKILL: %w\n%s", p.name, err, tail(p.log))
	case <-ctx.Done():
		return fmt.Errorf("%s was not killed: %w", p.name, ctx.Err())
	}
}

// stopAll ends the demo's own processes, politely first.
func (d *demo) stopAll() {
	for _, p := range d.processes {
		if p.cmd.ProcessState != nil {
			continue
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
		}
	}
	d.processes = nil
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range d.kafka {
		if err := c.Down(ctx); err != nil {
			d.say("could not stop %s: %v", c.Name, err)
		}
	}
	d.kafka = nil
}

func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b[max(0, len(b)-2000):])
}

// startEmbedded brings up the mini-broker with the role, and a second cluster.
func (d *demo) startEmbedded(ctx context.Context) (coordinator *process, us, eu string, err error) {
	second, err := d.configure(ctx, "eu", "broker", "cluster.id=demo-eu")
	if err != nil {
		return nil, "", "", err
	}
	first, err := d.configure(ctx, "us", "broker,gtc", "cluster.id=demo-us", "gtc.clusters=us,eu",
		"gtc.cluster.eu.bootstrap.servers="+second.addr)
	if err != nil {
		return nil, "", "", err
	}
	f, err := os.OpenFile(first.props, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, "", "", err
	}
	if _, err := fmt.Fprintf(f, "gtc.cluster.us.bootstrap.servers=%s\n", first.addr); err != nil {
		return nil, "", "", err
	}
	if err := f.Close(); err != nil {
		return nil, "", "", err
	}
	if err := d.start(ctx, second); err != nil {
		return nil, "", "", err
	}
	d.say("cluster us: a mini-broker with process.roles=broker,gtc on %s", first.addr)
	d.say("cluster eu: a mini-broker with process.roles=broker on %s", second.addr)
	return first, first.addr, second.addr, nil
}

// startKafka brings up two real clusters, and the mini-broker as coordinator.
func (d *demo) startKafka(profile cluster.Profile) func(context.Context) (*process, string, string, error) {
	return func(ctx context.Context) (*process, string, string, error) {
		var addrs []string
		for _, name := range []string{"demo-us", "demo-eu"} {
			c, err := cluster.Ensure(ctx, name, profile)
			if err != nil {
				return nil, "", "", err
			}
			d.kafka = append(d.kafka, c)
			addrs = append(addrs, c.Bootstrap)
			d.say("cluster %s: Apache Kafka %s on %s, cluster id %s", name[len("demo-"):], c.Version, c.Bootstrap, c.ID)
		}
		// A data directory for each round: the first one's log says nothing
		// of the second one's clusters.
		d.rounds++
		p, err := d.configure(ctx, fmt.Sprintf("coordinator-%d", d.rounds), "broker,gtc", "gtc.clusters=us,eu",
			"gtc.cluster.us.bootstrap.servers="+addrs[0], "gtc.cluster.eu.bootstrap.servers="+addrs[1])
		if err != nil {
			return nil, "", "", err
		}
		d.say("coordinator: a mini-broker with process.roles=broker,gtc on %s", p.addr)
		return p, addrs[0], addrs[1], nil
	}
}
