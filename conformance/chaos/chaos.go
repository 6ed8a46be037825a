// Package chaos puts the whole system under load and breaks it, round after
// round, from outside: real Kafka clusters as participants, the coordinator and
// every client a process of its own, and a proxy on every link between them.
//
// In each round one thing goes wrong (a process is killed or frozen, a link is
// cut, silent, deaf, slow or reset) and is mended again. Then the clients rest,
// and within ten seconds nothing may be in doubt anywhere and no reader held
// back. What the clients were told and what readers saw goes to package
// history, which must find no anomaly, neither after the round nor, when all is
// read once more, at the end.
//
// Two kinds of faults are outside the promises: an operator gives a cluster up and
// forgets, and a cluster is restored from a copy an instant old. They are in the
// history too, with what the coordinator reports. It must report what it can know,
// and nothing else.
package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
)

// Options configure Run.
type Options struct {
	Rounds  int
	Seed    uint64
	Clients int
	// Nodes is 1 for a coordinator with its log on its own disk, more for
	// nodes that share a log on a cluster of its own.
	Nodes int
	// Minibroker is the path of the binary.
	Minibroker string
	// Fault, if not empty, is the name of the fault of every round.
	Fault string
	// Settle is how long after the fault nothing may be in doubt any more, ten
	// seconds when it is 0. A machine that does many other things needs longer.
	Settle time.Duration
	// KeepGoing goes on after a round with anomalies.
	KeepGoing bool
	Out       io.Writer
}

// ErrAnomalies says that the run has found what must not happen.
var ErrAnomalies = errors.New("anomalies were found")

// Run is one run. What the processes wrote is kept when it fails.
func Run(ctx context.Context, o Options) (err error) {
	o.Settle = cmp.Or(o.Settle, 10*time.Second)
	dir, err := os.MkdirTemp("", "kafka-gtc-chaos-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
			return
		}
		err = fmt.Errorf("%w\nlogs and histories: %s", err, dir)
	}()
	r, err := newRig(ctx, o, dir)
	if err != nil {
		return err
	}
	d := &driver{rig: r, began: time.Now(), known: map[history.Anomaly]bool{}}
	err = d.run(ctx)
	return errors.Join(err, r.stop(), d.traffic(ctx))
}

// driver runs the rounds.
type driver struct {
	*rig
	audit   *auditor
	reports *reports
	began   time.Time
	found   int
	// Of the rounds so far.
	txns   history.Outcomes
	judged history.Verdict
	known  map[history.Anomaly]bool
}

func (d *driver) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.o.Out, "%7.2fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *driver) run(ctx context.Context) (err error) {
	addrs, names := map[string]string{}, map[string]string{}
	for name, c := range d.participants() {
		addrs[name], names[c.ID] = c.Bootstrap, name
	}
	var nodes []string
	for _, n := range d.nodes {
		nodes = append(nodes, n.Addr)
	}
	if d.audit, err = newAuditor(nodes, addrs); err != nil {
		return err
	}
	defer d.audit.close()
	d.operator, d.reports = newOperator(d.audit.gtc, names, d.o.Seed), newReports(names)
	d.reader = follow(ctx, addrs)
	defer d.reader.close()
	defer func() { err = errors.Join(err, d.keep()) }()
	faults := d.faults()
	if d.o.Fault != "" {
		if faults = only(append(faults, d.outsider()), d.o.Fault); len(faults) == 0 {
			return fmt.Errorf("chaos: no fault %q", d.o.Fault)
		}
	}
	if err := d.warm(ctx); err != nil {
		return err
	}
	d.say("seed %d, %d coordinator nodes, %d clients, %d kinds of faults", d.o.Seed, d.o.Nodes, d.o.Clients, len(faults))
	rounds := 0
	for i, r := range schedule(d.o.Seed, faults, d.o.Rounds) {
		if err := d.round(ctx, i+1, r); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		if rounds++; d.found > 0 && !d.o.KeepGoing {
			break
		}
	}
	if err := d.whole(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(d.o.Out, "%d transactions were not whole and reported, for what operators and restored clusters had done; %d were lost by restored clusters, which nobody could know\n",
		d.judged.Reported, d.judged.Lost)
	_, _ = fmt.Fprintf(d.o.Out, "%d rounds: %d transactions, %d anomalies\n", rounds, d.txns.Total(), d.found)
	if d.found > 0 {
		return fmt.Errorf("chaos: %w; the same faults again: scripts/chaos --rounds %d --seed %d --nodes %d", ErrAnomalies, d.o.Rounds, d.o.Seed, d.o.Nodes)
	}
	return nil
}

// warm runs the load until every client has had a transaction committed, so
// that no fault meets a cluster that is still starting.
func (d *driver) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("chaos: a client has committed nothing within five minutes"))
	defer cancel()
	for _, w := range d.workers {
		w.run()
	}
	for _, w := range d.workers {
		for !w.committed() {
			if sleep(ctx, 50*time.Millisecond); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func only(faults []fault, name string) []fault {
	for _, f := range faults {
		if f.name == name {
			return []fault{f}
		}
	}
	return nil
}

// round is one fault under load, its healing, and the verdict.
func (d *driver) round(ctx context.Context, number int, r round) error {
	for _, w := range d.workers {
		if !w.Running() {
			if err := w.start(ctx); err != nil {
				return err
			}
		}
		w.run()
	}
	sleep(ctx, r.before)
	if err := r.fault.inject(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.fault.name, err)
	}
	sleep(ctx, r.during)
	if err := r.fault.heal(ctx); err != nil {
		return fmt.Errorf("after %s: %w", r.fault.name, err)
	}
	sleep(ctx, r.after)
	for _, w := range d.workers {
		w.say("rest")
	}
	left, took := d.settle(ctx, r.fault.tears)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.verdict(number, r, left, took)
}

// settle waits until nothing is open, and returns what still is.
func (d *driver) settle(ctx context.Context, tears bool) (left []string, took time.Duration) {
	began := time.Now()
	for ctx.Err() == nil {
		if tears {
			d.operator.forgetAll(ctx)
		}
		left = nil
		for _, w := range d.workers {
			if !w.idle() {
				left = append(left, fmt.Sprintf("client %s waits for the end of its transaction", w.options.ID))
			}
		}
		// Also while a client is busy: it tells what that one waits for.
		left = append(left, d.audit.open(ctx, d.reader)...)
		if took = time.Since(began); len(left) == 0 || took > d.o.Settle {
			return left, took
		}
		sleep(ctx, 50*time.Millisecond)
	}
	return left, took
}

// verdict judges the history so far and prints the line of the round.
func (d *driver) verdict(number int, r round, left []string, took time.Duration) error {
	h, err := d.history()
	if err != nil {
		return err
	}
	h.Final = d.reader.visible()
	anomalies := d.check(h)
	before, n := d.txns, history.Count(h)
	d.txns = n
	d.found += len(left)
	d.say("round %3d: %-36s %4d committed, %3d aborted, %2d unknown, settled in %.1fs, %d anomalies",
		number, r.fault.name, n.Committed-before.Committed, n.Aborted-before.Aborted, n.Unknown-before.Unknown, took.Seconds(), len(anomalies)+len(left))
	for _, a := range anomalies {
		d.say("  %v", a)
	}
	for _, l := range left {
		d.say("  still open after %v: %s", d.o.Settle, l)
	}
	return nil
}

// check returns the anomalies that were not there before.
func (d *driver) check(h history.History) []history.Anomaly {
	d.judged = history.Check(h)
	var found []history.Anomaly
	for _, a := range d.judged.Anomalies {
		if !d.known[a] {
			d.known[a] = true
			found = append(found, a)
		}
	}
	d.found += len(found)
	return found
}

// history is all that was done, said and seen so far.
func (d *driver) history() (history.History, error) {
	h := history.History{Events: d.operator.history(), Polled: d.reader.all()}
	for _, n := range d.nodes {
		if err := d.reports.follow(n.Log()); err != nil {
			return h, err
		}
	}
	h.Events = append(h.Events, d.reports.events...)
	for _, w := range d.workers {
		events, err := w.history()
		if err != nil {
			return h, err
		}
		h.Events = append(h.Events, events...)
	}
	return h, nil
}

// keep writes the history to a file, for those who look for a cause.
func (d *driver) keep() error {
	h, err := d.history()
	if err != nil {
		return err
	}
	h.Final = d.reader.visible()
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, "history.json"), text, 0o600)
}

// whole judges the history against what is read from the start at the end.
func (d *driver) whole(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	h, err := d.history()
	if err != nil {
		return err
	}
	if h.Final, err = d.reader.readAll(reading); err != nil {
		return err
	}
	anomalies := d.check(h)
	d.say("read again from the start: %d records, %d anomalies more", len(h.Final), len(anomalies))
	for _, a := range anomalies {
		d.say("  %v", a)
	}
	return nil
}

// traffic makes sure that every link carried the traffic of its name; it needs
// all connections to be closed.
func (d *driver) traffic(ctx context.Context) error {
	if idle := d.links.awaitTraffic(ctx); len(idle) > 0 {
		return fmt.Errorf("chaos: nothing passed through %v: the faults of these links prove nothing", idle)
	}
	return nil
}
