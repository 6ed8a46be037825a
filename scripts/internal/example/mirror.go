package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror/config"
)

// Mirror: an ordinary producer writes orders on each cluster in transactions,
// some of which it aborts. Mirrors bring a's to b and b's to a. A consumer group
// reads a's on a, and at some moment moves to b.
const (
	mirrorPartitions = 4
	mirrorTxn        = 50 // records of one transaction of the producer
	readersGroup     = "readers"
)

func mirrorCommand(o *options) *cobra.Command {
	identity := false
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "Mirror a to b and b to a, with a consumer group that moves from a to b",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			run := runMirrorAliases
			if identity {
				run = runMirrorIdentity
			}
			return o.in(cmd.Context(), []string{"a", "b"}, run)
		},
	}
	cmd.Flags().BoolVar(&identity, "identity", false, "topics keep their names; the group, whose offsets are then moved conservatively, stays out")
	return cmd
}

// mirroring is a run of the example.
type mirroring struct {
	*world
	identity bool
	adm      map[string]*kadm.Client
	// sent are the orders of each cluster that its producer has committed, by
	// partition in their order.
	sent map[string]*[mirrorPartitions][]string
	// writing are producers that are not done.
	writing atomic.Int32
}

func runMirrorAliases(ctx context.Context, w *world) error  { return runMirror(ctx, w, false) }
func runMirrorIdentity(ctx context.Context, w *world) error { return runMirror(ctx, w, true) }

func runMirror(ctx context.Context, w *world, identity bool) error {
	m := &mirroring{world: w, identity: identity, adm: map[string]*kadm.Client{}, sent: map[string]*[mirrorPartitions][]string{}}
	m.say("seed %d", w.seed)
	for name, addr := range w.clusters {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			return err
		}
		defer cl.Close()
		m.adm[name], m.sent[name] = kadm.NewClient(cl), new([mirrorPartitions][]string)
		if err = w.createTopics(ctx, name, mirrorPartitions, orders); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	start := func(f func(context.Context) error) {
		background.Go(func() {
			if failed := f(ctx); failed != nil && ctx.Err() == nil {
				cancel(failed)
			}
		})
	}
	instances, err := m.spawnMirrors()
	defer func() {
		for _, i := range instances {
			i.end()
		}
	}()
	if err != nil {
		return err
	}
	for name := range w.clusters {
		m.writing.Add(1)
		start(func(ctx context.Context) error {
			defer m.writing.Add(-1)
			return m.write(ctx, name)
		})
	}
	r := &readers{m: m, moveAt: w.records/10 + w.rng.IntN(max(1, w.records/4))}
	if !identity {
		start(r.run)
	}
	if err := w.disturbed(ctx, instances, w.records, m.progress); err != nil {
		return err
	}
	if err := m.untilDone(ctx, r); err != nil {
		return err
	}
	if err := m.judge(ctx, r); err != nil {
		return fmt.Errorf("%w (%w)", err, errDifferent)
	}
	return nil
}

var errDifferent = errors.New("the clusters are not as they should be")

// spawnMirrors starts the processes that share both directions.
func (m *mirroring) spawnMirrors() ([]*instance, error) {
	class := "default"
	if m.identity {
		class = "identity"
	}
	var instances []*instance
	for n := range m.instances {
		id := fmt.Sprintf("mirror-%d", n+1)
		path := filepath.Join(m.dir, id+".properties")
		lines := []string{
			"clusters=a,b", "a.bootstrap.servers=" + m.clusters["a"], "b.bootstrap.servers=" + m.clusters["b"],
			"gtc.bootstrap.servers=" + m.gtc.Addr, "a->b.enabled=true", "b->a.enabled=true",
			"topics=" + orders, "groups=" + readersGroup, "replication.policy.class=" + class, "instance.id=" + id,
			"sync.group.offsets.enabled=true", "sync.group.offsets.interval.seconds=1", "refresh.topics.interval.seconds=2",
			fmt.Sprintf("global.transaction.timeout.ms=%d", transactionTimeout.Milliseconds()),
			fmt.Sprintf("batch.max.records=%d", max(20, min(2000, m.records/100))),
			"consumer.session.timeout.ms=6000", "progress.interval.seconds=2",
		}
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return instances, err
		}
		i, err := m.spawn(id, func(string) {}, "mirror-instance", "--properties", path)
		if err != nil {
			return instances, err
		}
		instances = append(instances, i)
	}
	m.say("%d mirrors share a->b and b->a, replication policy %s", m.instances, class)
	return instances, nil
}

// mirrorInstanceCommand is kafka-global-mirror in this binary.
func mirrorInstanceCommand() *cobra.Command {
	var p participants
	var path string
	cmd := &cobra.Command{
		Use: "mirror-instance", Short: "One mirror", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(path, nil)
			if err != nil {
				return err
			}
			o := cfg.Mirror
			o.Clock, o.Logger = mirror.SystemClock(), zerolog.New(os.Stderr).With().Timestamp().Logger()
			mi, err := mirror.New(o)
			if err != nil {
				return err
			}
			return torn(mi.Run(cmd.Context()))
		},
	}
	p.flags(cmd) // the properties say the same
	cmd.Flags().StringVar(&path, "properties", "", "path of the properties file")
	return cmd
}

// write is the ordinary producer of one cluster. It writes half of the records
// and aborts every tenth transaction besides.
func (m *mirroring) write(ctx context.Context, name string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.clusters[name]), kgo.DefaultProduceTopic(orders), kgo.TransactionalID("producer"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for n, txn := 0, 0; n < m.records/2; txn++ {
		aborts := txn%10 == 7
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		var values [mirrorPartitions][]string
		var failed atomic.Pointer[error]
		for i := range min(mirrorTxn, m.records/2-n) {
			v := fmt.Sprintf("%s-%d", name, n+i)
			if aborts {
				v = fmt.Sprintf("%s-aborted-%d", name, n+i)
			}
			part := (n + i) % mirrorPartitions
			values[part] = append(values[part], v)
			r := &kgo.Record{Partition: int32(part), Key: []byte(v), Value: []byte(v)}
			cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
				}
			})
		}
		if err := errors.Join(cl.Flush(ctx), cl.EndTransaction(ctx, kgo.TransactionEndTry(!aborts))); err != nil {
			return err
		}
		if err := failed.Load(); err != nil {
			return *err
		}
		if aborts {
			continue
		}
		for part, vs := range values {
			m.sent[name][part] = append(m.sent[name][part], vs...)
			n += len(vs)
		}
	}
	return nil
}

// behind is how many offsets of one direction are still to be mirrored, and how
// many have been.
func (m *mirroring) behind(ctx context.Context, source, target string) (done, left int64, err error) {
	offsets, err := m.adm[source].FetchOffsets(ctx, mirror.Flow{Source: source, Target: target}.GroupID())
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return 0, 0, err
	}
	ends, err := m.adm[source].ListEndOffsets(ctx, orders)
	if err != nil {
		return 0, 0, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(0)
		if o, ok := offsets.Lookup(orders, end.Partition); ok {
			at = max(0, o.At)
		}
		done += at
		left += end.Offset - at
	})
	return done, left, nil
}

// progress is about how many records have been mirrored, and all of them only
// when nothing is left.
func (m *mirroring) progress(ctx context.Context) (int, error) {
	writing := m.writing.Load() > 0
	var done, left int64
	for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
		d, l, err := m.behind(ctx, way[0], way[1])
		if kerr.IsRetriable(err) {
			return 0, nil // a cluster that was just started has no coordinator of groups
		}
		if err != nil {
			return 0, err
		}
		done, left = done+d, left+l
	}
	if !writing && left == 0 {
		return m.records, nil
	}
	// Aborted records and markers are offsets too.
	const offsetsPerRecord = 1.2
	return min(m.records-1, int(float64(done)/offsetsPerRecord)), nil
}

// untilDone waits for the group that has moved.
func (m *mirroring) untilDone(ctx context.Context, r *readers) error {
	for since := time.Now(); !m.identity && !r.finished.Load(); {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if time.Since(since) > patience {
			return fmt.Errorf("the group %q has not read everything: %v", readersGroup, r)
		}
	}
	return nil
}
