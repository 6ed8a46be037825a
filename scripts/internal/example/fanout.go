package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Fan-out: every transaction writes the same price to every cluster, and orders
// that are routed to one cluster each. It is on all of them or on none.
const (
	prices = "prices" // to all
	routed = "routed" // to one
	// perTxn is how many routed records are in a transaction.
	perTxn = 9
)

var fanoutClusters = []string{"a", "b", "c"}

func fanoutCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "fanout",
		Short: "The same record to three clusters, and others routed to one of them each: all or none",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.in(cmd.Context(), fanoutClusters, runFanout)
		},
	}
}

// told is what the processes were told about their transactions, by name.
type told struct {
	mu      sync.Mutex
	outcome map[string]string // "" for one that was begun and of which nothing was heard
	commits int
}

// hear takes a line: begin NAME, committed NAME, aborted NAME.
func (t *told) hear(line string) {
	verb, name, ok := strings.Cut(line, " ")
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch verb {
	case "begin":
		t.outcome[name] = ""
	case "committed":
		t.commits++
		fallthrough
	default:
		t.outcome[name] = verb
	}
}

func runFanout(ctx context.Context, w *world) error {
	w.say("seed %d", w.seed)
	for _, name := range fanoutClusters {
		if err := w.createTopics(ctx, name, 3, prices, routed); err != nil {
			return err
		}
	}
	t := &told{outcome: map[string]string{}}
	var instances []*instance
	defer func() {
		for _, i := range instances {
			i.end()
		}
	}()
	for n := range w.instances {
		id := fmt.Sprintf("fanout-%d", n+1)
		i, err := w.spawn(id, t.hear, "fanout-instance", "--id", id, "--ring", "3")
		if err != nil {
			return err
		}
		instances = append(instances, i)
	}
	perCommit := perTxn + len(fanoutClusters)
	w.say("%d instances, each with a ring of three global transactional ids; every transaction writes %d records; each fifth is aborted", w.instances, perCommit)
	err := w.disturbed(ctx, instances, w.records, func(context.Context) (int, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.commits * perCommit, nil
	})
	if err != nil {
		return err
	}
	for _, i := range instances {
		i.end()
	}
	instances = nil
	return w.judgeFanout(ctx, t)
}

// judgeFanout compares what was told with what each cluster shows.
func (w *world) judgeFanout(ctx context.Context, t *told) error {
	seen, err := w.readFanout(ctx)
	if err != nil {
		return err
	}
	var v verdict
	counts, errs := allOrNone(seen, t.outcome)
	for _, err := range errs {
		v.add(err)
	}
	w.say("%d transactions: %d told committed, %d told aborted, %d killed before they were told; each on all clusters or on none",
		len(t.outcome), counts["committed"], counts["aborted"], counts[""])
	return v.err(w)
}

// allOrNone checks what is visible, by CLUSTER/TOPIC/VALUE, against what was
// told of each transaction, and counts the transactions by that.
func allOrNone(seen map[string]int, told map[string]string) (counts map[string]int, errs []error) {
	counts = map[string]int{}
	left := maps.Clone(seen)
	for name, outcome := range told {
		counts[outcome]++
		want := fanoutRecords(name)
		found := 0
		for _, r := range want {
			if seen[r] > 1 {
				errs = append(errs, fmt.Errorf("%q is there %d times", r, seen[r]))
			}
			found += min(1, seen[r])
			delete(left, r)
		}
		whole, none := found == len(want), found == 0
		switch {
		case !whole && !none:
			errs = append(errs, fmt.Errorf("%s is torn: %d of its %d records are visible", name, found, len(want)))
		case outcome == "committed" && none, outcome == "aborted" && whole:
			errs = append(errs, fmt.Errorf("%s was told %s, and %d records are visible", name, outcome, found))
		}
	}
	for r := range left {
		errs = append(errs, fmt.Errorf("%q is of no transaction", r))
	}
	return counts, errs
}

// readFanout counts every visible record of every cluster, as CLUSTER/TOPIC/VALUE.
func (w *world) readFanout(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	seen := map[string]int{}
	for _, cluster := range fanoutClusters {
		reader := readback.NewReader(w.clusters[cluster])
		defer reader.Close()
		n := 0
		for _, topic := range []string{prices, routed} {
			values, err := reader.Values(ctx, topic)
			if err != nil {
				return nil, fmt.Errorf("read %s on %s: %w", topic, cluster, err)
			}
			n += len(values)
			for _, v := range values {
				seen[cluster+"/"+topic+"/"+v]++
			}
		}
		w.say("read_committed on %s: %d records", cluster, n)
	}
	return seen, nil
}

// fanoutRecords are the records of a transaction, as CLUSTER/TOPIC/VALUE.
func fanoutRecords(name string) []string {
	var records []string
	for _, cluster := range fanoutClusters {
		records = append(records, cluster+"/"+prices+"/"+name)
	}
	for i := range perTxn {
		v := name + "#" + strconv.Itoa(i)
		h := fnv.New32a()
		_, _ = h.Write([]byte(v)) // never fails, says package hash
		records = append(records, fanoutClusters[h.Sum32()%uint32(len(fanoutClusters))]+"/"+routed+"/"+v)
	}
	return records
}

func fanoutInstanceCommand() *cobra.Command {
	var p participants
	cmd := &cobra.Command{
		Use: "fanout-instance", Short: "One process of the application of fanout", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return fanoutInstance(cmd.Context(), p) },
	}
	p.flags(cmd)
	return cmd
}

// fanoutInstance works until ctx ends.
func fanoutInstance(ctx context.Context, p participants) error {
	cl, err := client.Open(ctx, p.options())
	if err != nil {
		return torn(err)
	}
	life := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := 0; ctx.Err() == nil && err == nil; i++ {
		// A transaction is finished, also when the process is told to end.
		err = fanOut(context.WithoutCancel(ctx), cl, fmt.Sprintf("%s-%s-%d", p.id, life, i), i%5 != 4)
	}
	end, cancel := orderly()
	defer cancel()
	return errors.Join(torn(err), cl.Close(end))
}

// fanOut runs one transaction, and prints what it is told.
func fanOut(ctx context.Context, cl *client.Client, name string, commit bool) error {
	txn, err := cl.Begin(ctx)
	if err != nil {
		return err
	}
	print := func(verb string) { fmt.Fprintln(os.Stdout, verb, name) }
	print("begin")
	for _, r := range fanoutRecords(name) {
		parts := strings.SplitN(r, "/", 3)
		txn.Produce(ctx, parts[0], &kgo.Record{Topic: parts[1], Value: []byte(parts[2])}, nil)
	}
	if !commit {
		_, err = txn.Abort(ctx)
	} else {
		_, err = txn.Commit(ctx)
	}
	_, aborted := errors.AsType[*client.AbortedError](err)
	switch {
	case err == nil && commit:
		print("committed")
	case err == nil || aborted:
		print("aborted")
	default:
		return err
	}
	return nil
}
