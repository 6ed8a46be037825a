package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// exitTorn is how a process of the application ends when it was told a heuristic
// outcome, which nothing in an example may cause.
const exitTorn = 3

// transactionTimeout of the examples' clients is short, so that what a killed
// one has left open ends soon also when it does not come back.
const transactionTimeout = 10 * time.Second

// instance is a process of the application, in all its lives.
type instance struct {
	name  string
	log   string
	args  []string
	heard func(line string) // called for each line that it prints
	*node.Process
	read chan struct{} // closed when the output of this life has been read
}

// spawn starts an instance.
func (w *world) spawn(name string, heard func(string), args ...string) (*instance, error) {
	i := &instance{name: name, log: filepath.Join(w.dir, name+".log"), heard: heard, args: append(args, w.flags()...)}
	return i, i.start(w.self)
}

func (i *instance) start(binary string) error {
	log, err := os.OpenFile(i.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	r, out, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), binary, i.args...) // ended by kill and end
	cmd.Stdout, cmd.Stderr = out, log
	i.Process, err = node.Spawn(cmd)
	_ = out.Close()
	if err != nil {
		_ = r.Close()
		return err
	}
	i.read = make(chan struct{})
	go i.listen(r, i.read)
	return nil
}

func (i *instance) listen(r io.ReadCloser, done chan struct{}) {
	defer close(done)
	defer func() { _ = r.Close() }()
	for s := bufio.NewScanner(r); s.Scan(); {
		i.heard(s.Text())
	}
}

// kill ends this life at once.
func (i *instance) kill() error {
	err := i.Kill()
	<-i.read
	return err
}

// end lets it finish what it is at.
func (i *instance) end() {
	i.Stop()
	<-i.read
}

// disturbed runs until progress has reached total, and meanwhile kills what the
// options say when progress reaches points drawn at random; whatever was killed
// is started again at once. It restarts instances that ended by themselves.
func (w *world) disturbed(ctx context.Context, instances []*instance, total int, progress func(context.Context) (int, error)) error {
	plan := w.plan(total)
	killed := map[string]int{}
	last, since, said := -1, time.Now(), time.Now()
	var still time.Duration
	for {
		now, failed := progress(ctx)
		if failed != nil {
			now = last // asked again, as long as something moves
		}
		if now > last {
			still = max(still, time.Since(since))
			last, since = now, time.Now()
		}
		for len(plan) > 0 && now >= plan[0].at {
			if err := w.strike(ctx, plan[0], instances, killed); err != nil {
				return err
			}
			plan = plan[1:]
		}
		if now >= total && len(plan) == 0 {
			w.say("%d of %d; killed: %d instances, %d times the coordinator; it stood still for %.1fs at most", now, total, killed["instance"], killed["gtc"], still.Seconds())
			return nil
		}
		if err := w.revive(instances); err != nil {
			return err
		}
		switch {
		case time.Since(since) > patience:
			return errors.Join(fmt.Errorf("no progress for %v, at %d of %d", patience, now, total), failed)
		case time.Since(said) > 2*time.Second:
			said = time.Now()
			w.say("%d of %d; killed so far: %d instances, %d times the coordinator", now, total, killed["instance"], killed["gtc"])
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// patience is how long nothing may move.
const patience = 4 * time.Minute

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// blow is one SIGKILL.
type blow struct {
	at  int // progress
	gtc bool
}

func (w *world) plan(total int) []blow {
	var plan []blow
	for i := range w.kills + (w.kills+3)/4 {
		plan = append(plan, blow{at: total/50 + w.rng.IntN(max(1, total*9/10)), gtc: i >= w.kills})
	}
	slices.SortFunc(plan, func(a, b blow) int { return a.at - b.at })
	return plan
}

func (w *world) strike(ctx context.Context, b blow, instances []*instance, killed map[string]int) error {
	// Somewhere in the transactions that are under way.
	if err := sleep(ctx, time.Duration(w.rng.IntN(200))*time.Millisecond); err != nil {
		return err
	}
	if b.gtc {
		killed["gtc"]++
		if err := w.gtc.Kill(); err != nil {
			return err
		}
		return w.gtc.Start(context.WithoutCancel(ctx))
	}
	killed["instance"]++
	i := instances[w.rng.IntN(len(instances))]
	if err := i.kill(); err != nil {
		return err
	}
	return i.start(w.self)
}

// revive starts instances again that ended by themselves, as a supervisor does.
func (w *world) revive(instances []*instance) error {
	for _, i := range instances {
		if i.Running() {
			continue
		}
		<-i.read
		if code := i.ExitCode(); code == exitTorn {
			return fmt.Errorf("%s was told a heuristic outcome (its log: %s)", i.name, i.log)
		}
		w.say("%s has ended by itself and is started again: %s", i.name, lastLine(i.log))
		if err := i.start(w.self); err != nil {
			return err
		}
	}
	return nil
}

// lastLine is what a process said at its end.
func lastLine(path string) string {
	b, _ := os.ReadFile(path) // nothing to be said is no reason to stop
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// participants are the flags of a process of the application.
type participants struct {
	id          string
	coordinator []string
	clusters    map[string]string
	ring        int
}

func (p *participants) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.id, "id", "", "global transactional id")
	flags.StringArrayVar(&p.coordinator, "coordinator", nil, "address of a node of the coordinator")
	flags.StringToStringVar(&p.clusters, "cluster", nil, "name=address of a cluster")
	flags.IntVar(&p.ring, "ring", 1, "ids that are taken in turn")
}

func (p *participants) options() client.Options {
	o := client.Options{
		GlobalTransactionalID: p.id, Coordinator: p.coordinator, Ring: p.ring,
		Clusters: map[string]client.Cluster{}, TransactionTimeout: transactionTimeout,
	}
	for name, addr := range p.clusters {
		o.Clusters[name] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(addr)}}
	}
	return o
}

// torn gives an error of the library the exit code that the example looks for.
func torn(err error) error {
	if _, ok := errors.AsType[*client.HeuristicError](err); ok || errors.Is(err, wire.HeuristicOutcome) {
		return &exitError{code: exitTorn, err: err}
	}
	return err
}

// orderly bounds the end of a process that was told to end.
func orderly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Second)
}
