package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Consume, transform, produce: orders are read on a, in a consumer group of a.
// Each becomes a bill on b, and every tenth a receipt on a as well. The group's
// offsets, bills and receipts are one global transaction.
const (
	orders        = "orders"
	bills         = "bills"
	receipts      = "receipts"
	ctpGroup      = "billing"
	ctpPartitions = 6
	receiptEach   = 10
)

func ctpCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "ctp",
		Short: "Consume on cluster a, transform, produce to b and a, with a's group offsets in the same transaction",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.in(cmd.Context(), []string{"a", "b"}, runCTP)
		},
	}
}

func runCTP(ctx context.Context, w *world) error {
	w.say("seed %d", w.seed)
	if err := w.createTopics(ctx, "a", ctpPartitions, orders, receipts); err != nil {
		return err
	}
	if err := w.createTopics(ctx, "b", ctpPartitions, bills); err != nil {
		return err
	}
	if err := fill(ctx, w.clusters["a"], w.records); err != nil {
		return err
	}
	w.say("%d orders written to a", w.records)
	instances, err := w.spawnCTP()
	defer func() {
		for _, i := range instances {
			i.end()
		}
	}()
	if err != nil {
		return err
	}
	source, err := kgo.NewClient(kgo.SeedBrokers(w.clusters["a"]))
	if err != nil {
		return err
	}
	defer source.Close()
	adm := kadm.NewClient(source)
	err = w.disturbed(ctx, instances, w.records, func(ctx context.Context) (int, error) { return committed(ctx, adm) })
	if err != nil {
		return err
	}
	for _, i := range instances {
		i.end()
	}
	instances = nil
	return w.judgeCTP(ctx, adm)
}

// spawnCTP starts the instances: every third one comes back as a new member of
// the group, the others under the name of before (KIP-345).
func (w *world) spawnCTP() ([]*instance, error) {
	var instances []*instance
	for n := range w.instances {
		id := fmt.Sprintf("billing-%d", n+1)
		args := []string{"ctp-instance", "--id", id, "--batch", strconv.Itoa(w.batch())}
		if n%3 != 2 {
			args = append(args, "--static")
		}
		i, err := w.spawn(id, func(string) {}, args...)
		if err != nil {
			return instances, err
		}
		instances = append(instances, i)
	}
	w.say("%d instances, each with a global transactional id of its own", w.instances)
	return instances, nil
}

// batch is how many orders an instance takes at a time: so few that most kills
// fall between the first and the last.
func (w *world) batch() int { return max(5, min(500, w.records/200)) }

// fill writes n orders, numbered, with an ordinary producer.
func fill(ctx context.Context, addr string, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(orders))
	if err != nil {
		return err
	}
	defer cl.Close()
	var once sync.Once
	var failed error
	for i := range n {
		v := strconv.Itoa(i)
		cl.Produce(ctx, &kgo.Record{Key: []byte(v), Value: []byte(v)}, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	return errors.Join(cl.Flush(ctx), failed)
}

// committed is how many orders the group has left behind.
func committed(ctx context.Context, adm *kadm.Client) (int, error) {
	offsets, err := adm.FetchOffsets(ctx, ctpGroup)
	if errors.Is(err, kerr.GroupIDNotFound) || kerr.IsRetriable(err) {
		return 0, nil // nobody has joined yet, or it cannot be asked now
	}
	if err != nil {
		return 0, err
	}
	sum := 0
	offsets.Each(func(o kadm.OffsetResponse) { sum += int(max(0, o.At)) })
	return sum, nil
}

// judgeCTP compares what went in with what is there.
func (w *world) judgeCTP(ctx context.Context, adm *kadm.Client) error {
	var v verdict
	want := map[string]int{}
	for i := range w.records {
		want["bill for "+strconv.Itoa(i)] = 1
	}
	v.add(w.compare(ctx, "b", bills, want))
	want = map[string]int{}
	for i := 0; i < w.records; i += receiptEach {
		want["receipt for "+strconv.Itoa(i)] = 1
	}
	v.add(w.compare(ctx, "a", receipts, want))

	ends, err := adm.ListEndOffsets(ctx, orders)
	if err != nil {
		return err
	}
	offsets, err := adm.FetchOffsets(ctx, ctpGroup)
	if err != nil {
		return err
	}
	behind := 0
	ends.Each(func(end kadm.ListedOffset) {
		if o, ok := offsets.Lookup(orders, end.Partition); !ok || o.At != end.Offset {
			behind++
			w.say("  a, %s-%d: the group stands at %d, the log ends at %d", orders, end.Partition, o.At, end.Offset)
		}
	})
	w.say("a's group %q: %d of %d partitions at the end of the log", ctpGroup, ctpPartitions-behind, ctpPartitions)
	if behind > 0 {
		v.add(fmt.Errorf("the group is not at the end of %d partitions", behind))
	}
	return v.err(w)
}

// verdict collects the differences.
type verdict struct{ errs []error }

func (v *verdict) add(err error) {
	if err != nil {
		v.errs = append(v.errs, err)
	}
}

func (v *verdict) err(w *world) error {
	if len(v.errs) == 0 {
		w.say("exactly once")
	}
	return errors.Join(v.errs...)
}

// readTimeout bounds the wait for what a killed process has left open.
const readTimeout = 3 * time.Minute

// compare reads a topic back and counts what is missing, there too often, or not
// expected.
func (w *world) compare(ctx context.Context, cluster, topic string, want map[string]int) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	reader := readback.NewReader(w.clusters[cluster])
	defer reader.Close()
	values, err := reader.Values(ctx, topic)
	if err != nil {
		return fmt.Errorf("read %s on %s: %w", topic, cluster, err)
	}
	d := differ(values, want)
	w.say("read_committed on %s, %s: %d records, %v", cluster, topic, len(values), d)
	if d != (difference{}) {
		return fmt.Errorf("%s on %s: %v", topic, cluster, d)
	}
	return nil
}

// difference is what a topic has too little and too much.
type difference struct{ missing, repeated, alien int }

func (d difference) String() string {
	return fmt.Sprintf("%d missing, %d repeated, %d not expected", d.missing, d.repeated, d.alien)
}

// differ compares values with how often each is wanted.
func differ(values []string, want map[string]int) difference {
	seen := map[string]int{}
	for _, v := range values {
		seen[v]++
	}
	var d difference
	for v, n := range want {
		d.missing += max(0, n-seen[v])
		d.repeated += max(0, seen[v]-n)
	}
	for v, n := range seen {
		if want[v] == 0 {
			d.alien += n
		}
	}
	return d
}

func ctpInstanceCommand() *cobra.Command {
	var p participants
	var static bool
	var batch int
	cmd := &cobra.Command{
		Use: "ctp-instance", Short: "One process of the application of ctp", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return ctpInstance(cmd.Context(), p, static, batch) },
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&static, "static", false, "keep the place in the group over a restart")
	cmd.Flags().IntVar(&batch, "batch", 250, "orders of one transaction at most")
	return cmd
}

// ctpInstance works until ctx ends.
func ctpInstance(ctx context.Context, p participants, static bool, batch int) error {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(ctpGroup), kgo.ConsumeTopics(orders),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if static {
		opts = append(opts, kgo.InstanceID(p.id))
	}
	s, err := client.NewGroupSession(ctx, client.GroupSessionOptions{Client: p.options(), Cluster: "a", ConsumerOpts: opts})
	if err != nil {
		return torn(err)
	}
	for ctx.Err() == nil && err == nil {
		err = bill(ctx, s, batch)
	}
	end, cancel := orderly()
	defer cancel()
	return errors.Join(torn(err), s.Close(end))
}

// bill processes one batch of orders.
func bill(ctx context.Context, s *client.GroupSession, batch int) error {
	fetches := s.Poll(ctx, batch)
	switch told := ctx.Err() != nil; { // told to end
	case !told && fetches.Err0() != nil:
		return fetches.Err0()
	case told || fetches.NumRecords() == 0:
		return nil
	}
	// From here on the batch is finished, also when the process is told to end.
	ctx = context.WithoutCancel(ctx)
	txn, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	fetches.EachRecord(func(r *kgo.Record) {
		order := string(r.Value)
		txn.Produce(ctx, "b", &kgo.Record{Topic: bills, Key: r.Key, Value: []byte("bill for " + order)}, nil)
		if n, bad := strconv.Atoi(order); bad == nil && n%receiptEach == 0 {
			txn.Produce(ctx, "a", &kgo.Record{Topic: receipts, Key: r.Key, Value: []byte("receipt for " + order)}, nil)
		}
	})
	_, _, err = s.End(ctx, true)
	if _, aborted := errors.AsType[*client.AbortedError](err); aborted {
		return nil // nothing is visible, and the orders are read again
	}
	return err
}
