// Package cluster brings up real Apache Kafka clusters on this machine, for
// tests that must not take an emulation's word for what Kafka does.
//
// It drives scripts/kafka, which owns the processes: a cluster outlives the
// test that asked for it, the next one that asks for the same name and profile
// gets it at once, and `scripts/kafka down --all` ends them. Tests that share
// a name share the cluster and keep apart by their own topics and ids; a test
// that kills or freezes a cluster takes a name that nobody else uses.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cluster is a running cluster, or one more broker of another (Profile.Join),
// for which "cluster" below is to be read as "broker". Its address and id stay
// the same through Kill and Start.
type Cluster struct {
	Name      string
	Bootstrap string // host:port
	ID        string // the cluster id that the brokers report
	Version   string // of Apache Kafka
}

// Up returns the named cluster, started with the profile and answering. It
// fails the test when the name is taken by a cluster with another profile.
func Up(tb testing.TB, name string, p Profile) *Cluster {
	tb.Helper()
	c, err := Ensure(tb.Context(), name, p)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Ensure is Up for those who are not a test.
func Ensure(ctx context.Context, name string, p Profile) (*Cluster, error) {
	args := []string{"up", name, "--version", p.Version}
	if p.Join != "" {
		args = append(args, "--join", p.Join)
	}
	for _, feature := range p.Features {
		args = append(args, "--feature", feature)
	}
	for _, line := range p.Config {
		args = append(args, "--config", line)
	}
	out, err := run(ctx, args...)
	if err != nil {
		return nil, err
	}
	return parse(out)
}

// Kill ends the cluster's process at once, as a power cut would; what it wrote
// stays.
func (c *Cluster) Kill(ctx context.Context) error { return c.do(ctx, "kill") }

// Stop ends the cluster in an orderly way; what it wrote stays.
func (c *Cluster) Stop(ctx context.Context) error { return c.do(ctx, "stop") }

// Start starts a killed or stopped cluster again and waits until it answers.
// After Kill that takes a broker session longer (5 s): until then the
// controller takes the new process for a second broker with the same id.
func (c *Cluster) Start(ctx context.Context) error { return c.do(ctx, "start") }

// Pause freezes the cluster: connections stay open and nothing answers.
func (c *Cluster) Pause(ctx context.Context) error { return c.do(ctx, "pause") }

// Resume lets a paused cluster go on. It does not wait: after a pause longer
// than its session the broker has to register again before it leads anything.
func (c *Cluster) Resume(ctx context.Context) error { return c.do(ctx, "resume") }

// Copy copies the cluster's data as they are at one instant, for Restore. It
// takes the place of an earlier copy.
func (c *Cluster) Copy(ctx context.Context) error { return c.do(ctx, "copy") }

// Restore puts the copy in place of the data of a cluster that is killed or
// stopped: started again, it has forgotten the records and the transactions that
// came after the copy, and knows the topics. The copy stays, and can be restored
// again.
func (c *Cluster) Restore(ctx context.Context) error { return c.do(ctx, "restore") }

// Down ends the cluster and deletes its data.
func (c *Cluster) Down(ctx context.Context) error { return c.do(ctx, "down") }

func (c *Cluster) do(ctx context.Context, verb string) error {
	_, err := run(ctx, verb, c.Name)
	return err
}

// run calls scripts/kafka and returns what it printed.
func run(ctx context.Context, args ...string) (string, error) {
	script, err := script()
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// Not the default SIGKILL: the script clears a half-made cluster away.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("cluster: scripts/kafka %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// script finds scripts/kafka in the module that holds the working directory,
// which go test sets to the directory of the package under test.
func script() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cluster: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		path := filepath.Join(at, "scripts", "kafka")
		_, modErr := os.Stat(filepath.Join(at, "go.mod"))
		_, scriptErr := os.Stat(path)
		if modErr == nil && scriptErr == nil {
			return path, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("cluster: %s is not inside a checkout that has scripts/kafka: %w", dir, os.ErrNotExist)
		}
	}
}

var errLine = errors.New("scripts/kafka printed no cluster")

// parse reads the line that scripts/kafka up prints:
// NAME bootstrap=127.0.0.1:PORT cluster.id=ID version=V pid=PID.
func parse(out string) (*Cluster, error) {
	words := strings.Fields(out)
	if len(words) == 0 {
		return nil, fmt.Errorf("cluster: %w, but %q", errLine, out)
	}
	c := &Cluster{Name: words[0]}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "bootstrap":
			c.Bootstrap = value
		case "cluster.id":
			c.ID = value
		case "version":
			c.Version = value
		}
	}
	if c.Bootstrap == "" || c.ID == "" || c.Version == "" {
		return nil, fmt.Errorf("cluster: %w, but %q", errLine, out)
	}
	return c, nil
}
