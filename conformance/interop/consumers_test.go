//go:build kafka

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// longer is for how long a consumer that has come to the end is watched for
// what it must not see, as in the agents.
const longer = 300 * time.Millisecond

// consumer reads partition 0 of a topic from the start to the last stable
// offset, read_committed, and then for a while longer.
type consumer struct {
	name string
	read func(ctx context.Context, addr, topic string) ([]string, error)
}

func consumers(t *testing.T) []consumer {
	t.Helper()
	foreign := func(name string, a *agent) consumer {
		return consumer{name, func(ctx context.Context, addr, topic string) ([]string, error) {
			ans, err := a.ask(ctx, "read", addr, topic)
			return ans.Values, err
		}}
	}
	return []consumer{
		foreign("Apache Kafka", newJava(t)),
		foreign("librdkafka", newPython(t, "librdkafka")),
		foreign("aiokafka", newPython(t, "aiokafka")),
		{"kafka-go", readKafkaGo},
		{"franz-go", readFranzGo},
	}
}

// readKafkaGo reads with kafka-go's protocol layer: its Reader hands out aborted
// records and markers too (package readback).
func readKafkaGo(ctx context.Context, addr, topic string) ([]string, error) {
	r := readback.NewReader(addr)
	defer r.Close()
	for until := time.Now().Add(longer); ; {
		p, err := r.Partition(ctx, topic, 0, 0)
		if err != nil || time.Now().After(until) {
			return values(p.Records), err
		}
	}
}

func readFranzGo(ctx context.Context, addr, topic string) ([]string, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // or the position would stay before a marker at the end
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	end, _ := ends.Lookup(topic, 0)
	var vs []string
	take := func(ctx context.Context) (next int64, err error) {
		fetches := cl.PollFetches(ctx)
		for _, rec := range fetches.Records() {
			next = rec.Offset + 1
			if !rec.Attrs.IsControl() {
				vs = append(vs, string(rec.Value))
			}
		}
		return next, fetches.Err0()
	}
	for next := int64(0); next < end.Offset; {
		if next, err = take(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, longer)
	defer cancel()
	for err == nil {
		_, err = take(ctx)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return vs, nil
}

// global is a global transaction on both clusters: before it a was written, in
// it t1 and t2, and z behind it while it was open.
type global struct {
	*client.Client
	*client.Txn
	topic string
}

func (r *rig) writeGlobal(t *testing.T, name string, timeout time.Duration) global {
	t.Helper()
	id := r.name(name)
	o := client.Options{
		GlobalTransactionalID: id, Coordinator: []string{r.gtc.Addr}, Clusters: map[string]client.Cluster{},
		TransactionTimeout: timeout, AskTimeout: time.Second, // after which a pending end is told
	}
	for _, s := range r.sites() {
		o.Clusters[s.name] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(s.addr)}}
	}
	cl, err := client.Open(deadline(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close(context.Background()) })
	g := global{Client: cl, topic: r.topic(t, id)}
	r.writePlain(t, g.topic, "a")
	if g.Txn, err = cl.Begin(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.sites() {
		for _, v := range []string{"t1", "t2"} {
			if err := g.ProduceSync(deadline(t), s.name, &kgo.Record{Topic: g.topic, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.writePlain(t, g.topic, "z")
	return g
}

// writePlain writes a record outside of transactions to both clusters.
func (r *rig) writePlain(t *testing.T, topic, value string) {
	t.Helper()
	for _, s := range r.sites() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := cl.ProduceSync(deadline(t), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// row is what all consumers saw of one topic.
type row struct {
	what, cluster string
	want          []string
	got           [][]string // by consumer
}

// settled waits until nothing is open on the topic and returns it.
func (r *rig) settled(t *testing.T, topic string) string {
	t.Helper()
	for _, s := range r.sites() {
		s.visible(t, topic)
	}
	return topic
}

// look reads a topic of both clusters with all consumers.
func look(t *testing.T, r *rig, cs []consumer, what, topic string, want ...string) []row {
	t.Helper()
	var rows []row
	for _, s := range r.sites() {
		rows = append(rows, row{what, s.name, want, make([][]string, len(cs))})
	}
	var reading sync.WaitGroup
	for i, c := range cs {
		reading.Go(func() {
			for j, s := range r.sites() {
				vs, err := c.read(deadline(t), s.addr, topic)
				if err != nil {
					t.Errorf("%s, %s, %s: %v", what, s.name, c.name, err)
				}
				rows[j].got[i] = vs
			}
		})
	}
	reading.Wait()
	return rows
}

// testConsumers: five implementations agree on what is visible.
func testConsumers(t *testing.T, r *rig) {
	cs := consumers(t)
	// A client that dies, so that nobody but the coordinator is left. Its timeout
	// must let even a busy machine write, and passes while the next rows are read.
	abandoned := r.writeGlobal(t, "abandoned", 15*time.Second)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	_ = abandoned.Close(dead)

	committed := r.writeGlobal(t, "committed", patience)
	if _, err := committed.Commit(deadline(t)); err != nil {
		t.Fatal(err)
	}
	aborted := r.writeGlobal(t, "aborted", patience)
	if _, err := aborted.Abort(deadline(t)); err != nil {
		t.Fatal(err)
	}
	rows := look(t, r, cs, "committed", r.settled(t, committed.topic), "a", "t1", "t2", "z")
	rows = append(rows, look(t, r, cs, "aborted", r.settled(t, aborted.topic), "a", "z")...)
	rows = append(rows, look(t, r, cs, "client died, aborted by timeout", r.settled(t, abandoned.topic), "a", "z")...)
	rows = append(rows, doubt(t, r, cs)...)
	t.Log("\n" + table(cs, rows))
	for _, row := range rows {
		for i, c := range cs {
			if !slices.Equal(row.got[i], row.want) {
				t.Errorf("%s, %s: %s sees %v, want %v", row.what, row.cluster, c.name, row.got[i], row.want)
			}
		}
	}
}

// doubt commits while no EndTxn gets through, kills the coordinator, and starts
// it again: in between the decision is durable and no cluster knows it.
func doubt(t *testing.T, r *rig, cs []consumer) []row {
	t.Helper()
	g := r.writeGlobal(t, "doubt", patience)
	r.hold(true)
	res, err := g.Commit(deadline(t))
	if err != nil || !slices.Equal(res.Pending(), []string{"eu", "us"}) {
		t.Fatalf("Commit = %+v, %v, want committed and pending on both", res, err)
	}
	for _, s := range r.sites() { // that it is told as pending does not mean that its EndTxn has left
		for ctx := deadline(t); s.held.Load() == 0; time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("no EndTxn was kept from %s", s.name)
			}
		}
	}
	if err := r.gtc.Kill(); err != nil {
		t.Fatal(err)
	}
	rows := look(t, r, cs, "decided, in doubt", g.topic, "a")
	r.hold(false)
	if err := r.gtc.Start(context.Background()); err != nil { // it ends after t.Context does
		t.Fatal(err)
	}
	if _, err := g.WaitVisible(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return append(rows, look(t, r, cs, "recovered, committed", g.topic, "a", "t1", "t2", "z")...)
}

func (r *rig) hold(on bool) {
	for _, s := range r.sites() {
		s.holding.Store(on)
	}
}

// table is for people.
func table(cs []consumer, rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	header := []string{"transaction", "cluster", "right"}
	for _, c := range cs {
		header = append(header, c.name)
	}
	_, _ = fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		cells := []string{row.what, row.cluster, strings.Join(row.want, " ")}
		for _, got := range row.got {
			cells = append(cells, strings.Join(got, " "))
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush()
	return b.String()
}
