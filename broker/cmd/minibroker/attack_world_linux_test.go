package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/broker/internal/attacktest"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// The attackers: who may nothing; who may write to the topic that is looked at,
// and do all in a corner of its own; who may everything by ACLs, but is not told
// of what is looked at, because it may delete it.
var attackers = []string{"nobody", "some", "all"}

const (
	keptTopic, keptGroup, keptID = "kept", "kept-group", "kept-txn"
	canaryTopic, canaryID        = "canary", "canary-id"
	keptPartitions               = 3
	offsetsTopic                 = "__consumer_offsets"
)

// attackWorld is the node that is attacked, and what has to be there.
type attackWorld struct {
	t      *testing.T
	node   *process
	addr   string
	args   []string
	binary string
	eu     participantCluster
	apis   []kmsg.ApiVersionsResponseApiKey

	admin     *kgo.Client
	canary    *canary
	producers map[string]attacktest.Producer // by transactional id
	claims    []attacktest.Producer

	ledger map[place]uint64 // of the batch at its place; 0: not known which
	ids    map[[16]byte]string
	kept   string // how what nobody may change looked at first
	log    map[int32][]logged

	longestStart time.Duration
	peak         int
	records      int
}

// place is where an acknowledged batch is, or began.
type place struct {
	partition int32
	offset    int64
}

// logged is one record of the coordinator's log.
type logged struct {
	offset int64
	sum    uint64
}

func newAttackWorld(t *testing.T) *attackWorld {
	t.Helper()
	w := &attackWorld{
		t: t, addr: freeAddr(t), eu: embeddedCluster(t, optedIn, "cluster.id=cluster-eu"),
		producers: make(map[string]attacktest.Producer), ledger: make(map[place]uint64), log: make(map[int32][]logged),
	}
	for _, o := range []string{
		"process.roles=broker,gtc", "cluster.id=cluster-own", optedIn, "log.dirs=" + t.TempDir(),
		"listeners=SASL_PLAINTEXT://" + w.addr, "sasl.enabled.mechanisms=SCRAM-SHA-256", initialUsers(attackers...),
		"authorizer.class.name=" + config.StandardAuthorizer, "super.users=User:admin",
		"transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true",
		"global.transaction.state.log.num.partitions=4", "gtc.clusters=eu", "gtc.cluster.eu.bootstrap.servers=" + w.eu.addr,
	} {
		w.args = append(w.args, "--override", o)
	}
	w.binary = filepath.Join(t.TempDir(), "minibroker") // its memory is measured: without the race detector
	if out, err := exec.Command("go", "build", "-o", w.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	must(t, w.start())
	w.populate()
	w.canary = &canary{w: w}
	w.restore()
	must(t, w.canary.commit())
	if err := w.look(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *attackWorld) as(user string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(w.addr), kgo.MaxVersions(wire.Versions()),
		kgo.SASL(scram.Auth{User: user, Pass: passwordOf(user)}.AsSha256Mechanism()),
	}
}

// start starts the node and waits until it serves.
func (w *attackWorld) start() error {
	ready := filepath.Join(w.t.TempDir(), "ready")
	began := time.Now()
	w.node = startBinary(w.t, w.binary, append(w.args, "--ready-file", ready, "--log-level", "warn")...)
	for deadline := began.Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			w.admin = kgoClient(w.t, w.addr, w.as("admin")...) // without the connections of before
			w.longestStart = max(w.longestStart, time.Since(began))
			return nil
		}
		select {
		case <-w.node.done:
			return fmt.Errorf("it ends with %v before it serves", w.node.cmd.ProcessState)
		default:
		}
		if time.Now().After(deadline) {
			return errors.New("it does not serve")
		}
	}
}

// again ends the node by a signal and starts it.
func (w *attackWorld) again(how os.Signal) error {
	w.peak = max(w.peak, peakMemory(w.t, w.node))
	if w.peak > attackMemory {
		w.t.Errorf("the node has taken %d MB", w.peak>>20)
	}
	if err := w.node.cmd.Process.Signal(how); err != nil {
		return err
	}
	select {
	case <-w.node.done:
	case <-time.After(patience):
		return errors.New("it does not end")
	}
	return w.start()
}

// populate makes what attackers may name, and what is looked at.
func (w *attackWorld) populate() {
	t, adm := w.t, kadm.NewClient(w.admin)
	t.Helper()
	for topic, partitions := range map[string]int32{keptTopic: keptPartitions, canaryTopic: 1} {
		created, err := adm.CreateTopic(t.Context(), partitions, 1, map[string]*string{"max.message.bytes": kmsg.StringPtr("1048588")}, topic)
		must(t, errors.Join(err, created.Err))
	}
	eu := kgoClient(t, w.eu.addr)
	_, err := kadm.NewClient(eu).CreateTopic(t.Context(), 1, 1, nil, canaryTopic)
	must(t, err)
	must(t, adm.CommitAllOffsets(t.Context(), keptGroup, kadm.OffsetsFromRecords(kgo.Record{Topic: keptTopic, Offset: 41})))
	open := kgoClient(t, w.addr, append(w.as("admin"), kgo.TransactionalID(keptID), kgo.TransactionTimeout(time.Hour))...)
	must(t, open.BeginTransaction())
	must(t, open.ProduceSync(t.Context(), &kgo.Record{Topic: keptTopic, Value: []byte("open")}).FirstErr())
	pid, epoch, err := open.ProducerID(t.Context())
	must(t, err)
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = keptID, pid, epoch, keptGroup
	added, err := add.RequestWith(t.Context(), w.admin)
	must(t, errors.Join(err, kerr.ErrorForCode(added.ErrorCode)))
	commit := kmsg.NewPtrTxnOffsetCommitRequest() // which makes the topic of offsets
	commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch = keptID, keptGroup, pid, epoch
	topics, err := adm.ListTopics(t.Context(), keptTopic)
	must(t, err)
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: keptTopic, TopicID: topics[keptTopic].ID, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 99}}}}
	committed, err := commit.RequestWith(t.Context(), w.admin)
	must(t, errors.Join(err, kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)))
}

// restore gives the attackers what they may have lost by themselves.
func (w *attackWorld) restore() {
	t, adm := w.t, kadm.NewClient(w.admin)
	t.Helper()
	literal := func() *kadm.ACLBuilder { return kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral) }
	for _, acls := range []*kadm.ACLBuilder{
		literal().Topics(keptTopic).Operations(kadm.OpRead, kadm.OpWrite, kadm.OpDescribe).Allow("User:some"),
		kadm.NewACLs().ResourcePatternType(kadm.ACLPatternPrefixed).Topics("some-").Groups("some-").TransactionalIDs("some-").Operations(kadm.OpAll).Allow("User:some"),
		literal().Topics("*").Groups("*").TransactionalIDs("*").Clusters().Operations(kadm.OpAll).Allow("User:all"),
	} {
		results, err := adm.CreateACLs(t.Context(), acls.AllowHosts())
		must(t, err)
		for _, r := range results {
			must(t, r.Err)
		}
	}
	_, err := adm.CreateTopics(t.Context(), 3, 1, nil, "some-a", "some-b", "all-a", "all-b")
	must(t, err)
	if settings, describeErr := adm.DescribeBrokerConfigs(t.Context(), 0); describeErr == nil {
		var back []kadm.AlterConfig
		for _, c := range settings[0].Configs {
			if c.Source == kmsg.ConfigSourceDynamicBrokerConfig || c.Source == kmsg.ConfigSourceDynamicDefaultBrokerConfig {
				back = append(back, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: c.Key})
			}
		}
		if len(back) > 0 {
			_, _ = adm.AlterBrokerConfigs(t.Context(), back, 0)
			_, _ = adm.AlterBrokerConfigs(t.Context(), back)
		}
	}
	for _, id := range []string{"some-txn", "all-txn", ""} {
		init := kmsg.NewPtrInitProducerIDRequest()
		init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = 60_000, -1, -1
		if id != "" {
			init.TransactionalID = &id
		}
		resp, askErr := init.RequestWith(t.Context(), w.admin)
		must(t, askErr)
		if resp.ErrorCode == 0 { // the id's may be a prepared transaction of an attacker
			w.producers[id] = attacktest.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
		}
	}
	if w.apis == nil {
		versions := kmsg.NewPtrApiVersionsRequest()
		versions.ClientSoftwareName, versions.ClientSoftwareVersion = "test", "1"
		resp, askErr := versions.RequestWith(t.Context(), w.admin)
		must(t, askErr)
		w.apis = resp.ApiKeys
	}
}

// seenBy is what an attacker names.
func (w *attackWorld) seenBy(user string) attacktest.World {
	t := w.t
	t.Helper()
	topics := []string{"some-a", "some-b", "all-a", "all-b", "missing", txnlog.Topic, offsetsTopic, "__transaction_state"}
	of := attacktest.World{
		Groups: []string{"some-group", "all-group", "some-other", "__gtc-coordinators"},
		TxnIDs: []string{"some-txn", "all-txn", "some-txn", "all-txn", "__gtc-0", "__gtc-3"},
		Users:  []string{"User:victim", "victim", "User:*"}, Clusters: []string{"cluster-own", "cluster-eu", "kafka-cluster", "0"},
		Producers: append([]attacktest.Producer{w.producers["some-txn"], w.producers["all-txn"], w.producers[""]}, w.claims...),
	}
	if user != "all" {
		topics = append(topics, keptTopic, keptTopic, keptTopic, keptTopic, keptTopic, keptTopic, keptTopic, keptTopic, canaryTopic)
		of.Groups = append(of.Groups, keptGroup)
		of.TxnIDs = append(of.TxnIDs, keptID, canaryID)
		of.Users = append(of.Users, "User:admin", "admin", "User:some", "all")
		of.Producers = append(of.Producers, w.producers[keptID], w.producers[canaryID])
	}
	ids, err := kadm.NewClient(w.admin).ListTopicsWithInternal(t.Context())
	must(t, err)
	for _, name := range topics {
		of.Topics = append(of.Topics, attacktest.Topic{Name: name, ID: ids[name].ID})
	}
	return of
}

// produced keeps what was acknowledged of the topic that is looked at.
func (w *attackWorld) produced(user string, req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) error {
	given := make(map[int32][][]byte)
	for _, topic := range req.Topics {
		if topic.Topic == keptTopic || w.ids[topic.TopicID] == keptTopic && topic.Topic == "" {
			for _, p := range topic.Partitions {
				given[p.Partition] = append(given[p.Partition], p.Records)
			}
		}
	}
	for _, topic := range resp.Topics {
		kept := topic.Topic == keptTopic || w.ids[topic.TopicID] == keptTopic && topic.Topic == ""
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				continue
			}
			if user == "nobody" {
				return fmt.Errorf("somebody without rights has written to %s %x", topic.Topic, topic.TopicID)
			}
			if !kept || p.BaseOffset < 0 {
				continue
			}
			at, sum := place{p.Partition, p.BaseOffset}, uint64(0)
			if records := given[p.Partition]; len(records) == 1 && len(records[0]) > 61 && int64(producerOf(records[0])) < 0 {
				sum = sumOf(records[0])
			} // another attempt of an idempotent producer is told where the first is
			if before, there := w.ledger[at]; there && before != 0 && before != sum {
				return fmt.Errorf("%v is given out twice", at)
			}
			w.ledger[at] = sum
		}
	}
	return nil
}

// sumOf is of what a broker may not change in a batch.
func sumOf(batch []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(batch[21:])
	return h.Sum64() | 1
}

func producerOf(batch []byte) (id uint64) {
	for _, b := range batch[43:51] {
		id = id<<8 | uint64(b)
	}
	return id
}

// look compares all that has to be there.
func (w *attackWorld) look() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return errors.Join(w.lookAtKept(ctx), w.lookAtLedger(ctx), w.lookAtLog(ctx), w.canary.look(ctx))
}

// lookAtKept compares what nobody who attacks may change.
func (w *attackWorld) lookAtKept(ctx context.Context) error {
	adm := kadm.NewClient(w.admin)
	topics := []string{keptTopic, canaryTopic, txnlog.Topic, offsetsTopic}
	metadata := kmsg.NewPtrMetadataRequest() // kadm may answer from memory
	for _, topic := range topics {
		metadata.Topics = append(metadata.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(topic)})
	}
	details, errDetails := metadata.RequestWith(ctx, w.admin)
	starts, errStarts := adm.ListStartOffsets(ctx, topics...)
	settings, errSettings := adm.DescribeTopicConfigs(ctx, topics...)
	offsets, errOffsets := adm.FetchOffsets(ctx, keptGroup)
	open, errOpen := adm.DescribeTransactions(ctx, append([]string{keptID, canaryID}, claimIDs...)...)
	if err := errors.Join(errDetails, errStarts, errSettings, errOffsets, errOpen); err != nil {
		return err
	}
	var b strings.Builder
	w.ids = make(map[[16]byte]string)
	for _, topic := range details.Topics {
		w.ids[topic.TopicID] = *topic.Topic
		fmt.Fprintf(&b, "%s %x %d partitions, code %d, begin", *topic.Topic, topic.TopicID, len(topic.Partitions), topic.ErrorCode)
		for p := range int32(len(topic.Partitions)) {
			o, _ := starts.Lookup(*topic.Topic, p)
			fmt.Fprintf(&b, " %d", o.Offset)
		}
		rc, _ := settings.On(*topic.Topic, nil)
		slices.SortFunc(rc.Configs, func(x, y kadm.Config) int { return strings.Compare(x.Key, y.Key) })
		for _, c := range rc.Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				fmt.Fprintf(&b, " %s=%s", c.Key, c.MaybeValue())
			}
		}
		b.WriteByte('\n')
	}
	for _, o := range offsets.Sorted() {
		fmt.Fprintf(&b, "%s %s/%d: %d\n", keptGroup, o.Topic, o.Partition, o.At)
	}
	of := open[keptID]
	fmt.Fprintf(&b, "%s %s %d/%d %v\n", keptID, of.State, of.ProducerID, of.ProducerEpoch, of.Topics.Sorted())
	producer := func(id string) attacktest.Producer {
		return attacktest.Producer{ID: open[id].ProducerID, Epoch: open[id].ProducerEpoch}
	}
	w.producers[keptID], w.producers[canaryID] = producer(keptID), producer(canaryID)
	w.claims = nil
	for _, id := range claimIDs {
		w.claims = append(w.claims, producer(id))
	}
	if w.kept == "" {
		w.kept = b.String()
	}
	if w.kept != b.String() {
		return fmt.Errorf("changed from\n%s\nto\n%s", w.kept, b.String())
	}
	return nil
}

var claimIDs = []string{"__gtc-0", "__gtc-3"}

// lookAtLedger reads the topic from its beginning, and finds every batch that
// was acknowledged.
func (w *attackWorld) lookAtLedger(ctx context.Context) error {
	missing := maps.Clone(w.ledger)
	w.records = 0
	for p := range int32(keptPartitions) {
		records, err := w.readAll(ctx, w.as("admin"), keptTopic, p)
		if err != nil {
			return err
		}
		w.records += len(records)
		at := make(map[int64]bool)
		for _, r := range records {
			at[r.Offset] = true
		}
		for i := range int64(len(records)) {
			if !at[i] {
				return fmt.Errorf("%s/%d has no record at %d of %d", keptTopic, p, i, len(records))
			}
		}
		err = w.batches(ctx, p, int64(len(records)), func(base int64, batch []byte) error {
			at := place{p, base}
			if want := missing[at]; want != 0 && want != sumOf(batch) {
				return fmt.Errorf("%s/%d has another batch at %d than was acknowledged", keptTopic, p, base)
			}
			delete(missing, at)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d acknowledged batches are not there: %v", len(missing), len(w.ledger), missing)
	}
	return nil
}

// batches goes through those of a partition of the topic that is looked at.
func (w *attackWorld) batches(ctx context.Context, partition int32, end int64, each func(base int64, batch []byte) error) error {
	for offset := int64(0); offset < end; {
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.MaxWaitMillis = 50<<20, 100
		ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = partition, offset, 50<<20
		ft.Topic, ft.Partitions = keptTopic, append(ft.Partitions, fp)
		for id, name := range w.ids {
			if name == keptTopic {
				ft.TopicID = id
			}
		}
		req.Topics = append(req.Topics, ft)
		resp, err := w.admin.Broker(0).Request(ctx, req)
		if err != nil {
			return err
		}
		fetched := resp.(*kmsg.FetchResponse)
		if fetched.ErrorCode != 0 || len(fetched.Topics) == 0 || fetched.Topics[0].Partitions[0].ErrorCode != 0 {
			return fmt.Errorf("fetching %s/%d at %d: %+v", keptTopic, partition, offset, fetched)
		}
		before, raw := offset, fetched.Topics[0].Partitions[0].RecordBatches
		for len(raw) > 61 {
			var b kmsg.RecordBatch
			if err = b.ReadFrom(raw); err != nil {
				return err
			}
			size := 12 + int(b.Length)
			if err = each(b.FirstOffset, raw[:size]); err != nil {
				return err
			}
			offset, raw = b.FirstOffset+int64(b.LastOffsetDelta)+1, raw[size:]
		}
		if offset == before {
			return fmt.Errorf("nothing of %s/%d is there at %d", keptTopic, partition, offset)
		}
	}
	return nil
}

// readAll reads a partition as a consumer does, control records too.
func (w *attackWorld) readAll(ctx context.Context, as []kgo.Opt, topic string, partition int32) ([]*kgo.Record, error) {
	cl, err := kgo.NewClient(append(as, kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	end, _ := ends.Lookup(topic, partition)
	if end.Err != nil {
		return nil, end.Err
	}
	var records []*kgo.Record
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(ctx)
		if err = fetches.Err(); err != nil {
			return nil, fmt.Errorf("reading %s/%d at %d of %d: %w", topic, partition, next, end.Offset, err)
		}
		for _, r := range fetches.Records() {
			records, next = append(records, r), r.Offset+1
		}
	}
	return records, nil
}

// lookAtLog finds every record of the coordinator's log that was there before.
func (w *attackWorld) lookAtLog(ctx context.Context) error {
	for p := range int32(4) {
		records, err := w.readAll(ctx, w.as("admin"), txnlog.Topic, p)
		if err != nil {
			return err
		}
		var now []logged
		for _, r := range records {
			h := fnv.New64a()
			_, _ = fmt.Fprintf(h, "%q %q", r.Key, r.Value)
			now = append(now, logged{r.Offset, h.Sum64()})
		}
		before := w.log[p]
		if len(now) < len(before) || !slices.Equal(now[:len(before)], before) {
			return fmt.Errorf("the coordinator's log has changed in partition %d: %d records, there were %d", p, len(now), len(before))
		}
		w.log[p] = now
	}
	return nil
}

// canary commits global transactions, one after the other, on both clusters.
type canary struct {
	w       *attackWorld
	cl      *client.Client
	commits int
	longest time.Duration
}

// sing commits until it is stopped, and then tells what went wrong.
func (c *canary) sing() (stop func() error) {
	over, result := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			if err := c.commit(); err != nil {
				result <- err
				return
			}
			select {
			case <-over:
				result <- c.commit() // the last one is after the attack
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() error {
		close(over)
		return <-result
	}
}

// commit commits one global transaction in time.
func (c *canary) commit() error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.w.t.Context(), attackPatience)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- c.one(ctx) }()
	var err error
	select {
	case err = <-result:
	case <-time.After(attackPatience + time.Second): // a record whose fate is not known is not given up
		err = ctx.Err()
	}
	took := time.Since(began)
	c.longest = max(c.longest, took)
	if err != nil {
		return fmt.Errorf("the canary after %d commits, in %v: %w", c.commits, took.Round(time.Millisecond), err)
	}
	return nil
}

// one is one global transaction.
func (c *canary) one(ctx context.Context) (err error) {
	if c.cl == nil {
		c.cl, err = client.Open(ctx, client.Options{
			GlobalTransactionalID: canaryID, Coordinator: []string{c.w.addr}, CoordinatorOpts: c.w.as("admin"),
			Clusters: map[string]client.Cluster{"own": {ClientOpts: c.w.as("admin")}, "eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.w.eu.addr)}}},
		})
		if err != nil {
			return err
		}
		c.w.t.Cleanup(func() {
			last, cancelLast := context.WithTimeout(context.Background(), attackPatience)
			defer cancelLast()
			_ = c.cl.Close(last)
		})
	}
	txn, err := c.cl.Begin(ctx)
	if err != nil {
		return err
	}
	for _, cluster := range []string{"own", "eu"} {
		if err = txn.ProduceSync(ctx, cluster, &kgo.Record{Topic: canaryTopic, Value: fmt.Append(nil, c.commits)}).FirstErr(); err != nil {
			return err
		}
	}
	r, err := txn.Commit(ctx)
	if err != nil {
		return err
	}
	if r.Outcome != client.OutcomeCommitted {
		return fmt.Errorf("outcome %v", r.Outcome)
	}
	c.commits++
	_, err = txn.WaitVisible(ctx)
	return err
}

// look finds each commit once on both clusters, and the last decision.
func (c *canary) look(ctx context.Context) error {
	for name, as := range map[string][]kgo.Opt{"own": c.w.as("admin"), "eu": {kgo.SeedBrokers(c.w.eu.addr)}} {
		records, err := c.w.readAll(ctx, append(as, kgo.FetchIsolationLevel(kgo.ReadCommitted())), canaryTopic, 0)
		if err != nil {
			return err
		}
		n := 0
		for _, r := range records {
			if r.Attrs.IsControl() {
				continue
			}
			if string(r.Value) != fmt.Sprint(n) {
				return fmt.Errorf("commit %d on %s shows %s", n, name, r.Value)
			}
			n++
		}
		if n != c.commits {
			return fmt.Errorf("%d of %d commits are visible on %s", n, c.commits, name)
		}
	}
	for { // after a start the coordinator tells the last decision again
		d, describeErr := described(ctx, c.w.admin, canaryID)
		if describeErr == nil && d.State == "CompleteCommit" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the canary's id is described as %+v: %w", d, describeErr)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
