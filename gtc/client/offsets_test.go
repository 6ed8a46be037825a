package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

const group = "g"

func at(offset int64) map[string]map[int32]kgo.EpochOffset {
	return map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}}
}

func plain(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func standalone(t *testing.T, addr string) Group {
	t.Helper()
	g, err := StandaloneGroup(deadline(t, patience), plain(t, addr), group)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// committedAt asks the cluster for the group's offset, and fails while a
// transaction may still change it; -1: none.
func committedAt(t *testing.T, addr string) int64 {
	t.Helper()
	adm := kadm.NewClient(plain(t, addr))
	offsets, err := adm.FetchOffsetsForTopics(deadline(t, patience), group, topic)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := offsets.Lookup(topic, 0)
	if !ok || o.Err != nil {
		t.Fatalf("offset of the group: %+v, %v", o, ok)
	}
	return o.At
}

func commitOffsets(t *testing.T, txn *Txn, g Group, offset int64) {
	t.Helper()
	if err := txn.CommitOffsets(deadline(t, patience), g, at(offset)); err != nil {
		t.Fatalf("CommitOffsets: %v", err)
	}
}

// below2 makes a client behave as on a cluster below transaction.version 2.
func below2() kgo.Opt {
	v := kversion.Stable()
	v.SetMaxKeyVersion(keyProduce, 11)
	v.SetMaxKeyVersion(keyEndTxn, 4)
	v.SetMaxKeyVersion(keyTxnOffsetCommit, 4)
	return kgo.MaxVersions(v)
}

// Records and offsets on the same cluster, offsets alone, records alone, in
// every order, on both kinds of transactions: what is committed is there, and
// no participant is initialised again in between.
func TestOffsetsCommitWithTheTransaction(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"transaction.version 2": nil, "below": {below2()}} {
		t.Run(name, func(t *testing.T) {
			us, eu := newKfake(t, "us"), newKfake(t, "eu")
			us.transactionV1, eu.transactionV1 = opts != nil, opts != nil
			e := env{newFakeCoordinator(t, us, eu), us, eu}
			var adds atomic.Int64
			count(us.fake, 25, &adds)
			o := e.options()
			for name, c := range o.Clusters {
				c.ClientOpts = append(c.ClientOpts, opts...)
				o.Clusters[name] = c
			}
			cl := open(t, o)
			g := standalone(t, us.addr)
			var usWant, euWant []string
			for i, what := range []string{"offsets", "both", "offsets", "offsets", "records", "offsets", "both"} {
				txn := begin(t, cl)
				if what != "offsets" {
					produce(t, txn, "us", what)
					usWant = append(usWant, what)
				}
				if what != "records" {
					commitOffsets(t, txn, g, int64(i))
				}
				produce(t, txn, "eu", what)
				euWant = append(euWant, what)
				r := commit(t, txn)
				if len(r.Participants) != 2 {
					t.Errorf("participants %+v, want two", r.Participants)
				}
				if what != "records" {
					if got := committedAt(t, us.addr); got != int64(i) {
						t.Errorf("%d, %s: the group stands at %d", i, what, got)
					}
				}
			}
			for _, c := range []participantCluster{us, eu} {
				if got := c.inits.Load(); got != 1 {
					t.Errorf("%s got %d InitProducerId, want 1", c.name, got)
				}
			}
			if got := us.endTxns.Load(); got != 7 {
				t.Errorf("us got %d EndTxn, want 7, all from the coordinator", got)
			}
			if explicit := adds.Load() > 0; explicit != (opts != nil) {
				t.Errorf("%d AddOffsetsToTxn", adds.Load())
			}
			if got := visible(t, us.addr); !slices.Equal(got, usWant) {
				t.Errorf("us shows %q, want %q", got, usWant)
			}
			if got := visible(t, eu.addr); !slices.Equal(got, euWant) {
				t.Errorf("eu shows %q, want %q", got, euWant)
			}
		})
	}
}

// One participant, with offsets alone; and nothing of an abort stays, also for
// whoever asks for stable offsets at once.
func TestOffsetsAlone(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"transaction.version 2": nil, "below": {below2()}} {
		t.Run(name, func(t *testing.T) {
			us := newKfake(t, "us")
			us.transactionV1 = opts != nil
			e := env{newFakeCoordinator(t, us), us, us}
			o := e.options()
			o.Clusters = map[string]Cluster{"us": {ClientOpts: append(opts, kgo.SeedBrokers(us.addr))}}
			cl := open(t, o)
			g := standalone(t, us.addr)
			for _, step := range []struct {
				offset int64
				commit bool
				want   int64
			}{{1, true, 1}, {2, false, 1}, {3, false, 1}, {4, true, 4}, {5, false, 4}} {
				txn := begin(t, cl)
				commitOffsets(t, txn, g, step.offset)
				if step.commit {
					commit(t, txn)
				} else if r, err := txn.Abort(deadline(t, patience)); err != nil || !r.Complete() {
					t.Fatalf("Abort = %+v, %v", r, err)
				}
				if got := committedAt(t, us.addr); got != step.want {
					t.Errorf("after %+v the group stands at %d", step, got)
				}
			}
			if got := us.inits.Load(); got != 1 {
				t.Errorf("%d InitProducerId, want 1", got)
			}
		})
	}
}

func TestOffsetsOfAnotherClusterAreRefused(t *testing.T) {
	e := newEnv(t)
	other := newKfake(t, "other")
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	var wrong *WrongClusterError
	if err := txn.CommitOffsets(t.Context(), standalone(t, other.addr), at(1)); !errors.As(err, &wrong) || wrong.ClusterID != other.id {
		t.Errorf("CommitOffsets = %v, want a WrongClusterError", err)
	}
	var aborted *AbortedError
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, &aborted) || !errors.As(err, &wrong) {
		t.Errorf("Commit = %v, want an AbortedError because of it", err)
	}
	if n := e.count(wire.KeyEndGlobalTxn); n != 0 {
		t.Errorf("the coordinator was asked %d times", n)
	}
	if got := visible(t, e.us.addr); len(got) != 0 {
		t.Errorf("us shows %q", got)
	}
}

// member consumes in the group with the classic protocol and has a place in it.
func member(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl := plain(t, addr, append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(100*time.Millisecond))...)
	waitMember(t, cl)
	return cl
}

func waitMember(t *testing.T, cl *kgo.Client) {
	t.Helper()
	ctx := deadline(t, patience)
	for {
		_, err := GroupOf(ctx, cl)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNotMember) || pause(ctx, time.Millisecond) != nil {
			t.Fatalf("GroupOf: %v", err)
		}
	}
}

// The fence of KIP-447: after a rebalance the generation of before is refused,
// the transaction aborts on both clusters, and the error says why.
func TestOffsetsOfAStaleGenerationAbort(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	first := member(t, e.us.addr, kgo.InstanceID("one"))
	g, err := GroupOf(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	txn := begin(t, cl)
	commitOffsets(t, txn, g, 1)
	commit(t, txn)
	second := member(t, e.us.addr)
	for {
		if now, nowErr := GroupOf(t.Context(), first); nowErr == nil && now.generation > g.generation {
			break
		}
		if err = pause(deadline(t, patience), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	txn = begin(t, cl)
	produce(t, txn, "eu", "x")
	var stale *StaleGroupError
	if err = txn.CommitOffsets(deadline(t, patience), g, at(2)); !errors.As(err, &stale) || stale.Cluster != "us" || stale.Group != group {
		t.Fatalf("CommitOffsets = %v, want a StaleGroupError", err)
	}
	if _, err = txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) || !errors.As(err, &stale) {
		t.Fatalf("Commit = %v, want an AbortedError because of it", err)
	}
	if got := committedAt(t, e.us.addr); got != 1 {
		t.Errorf("the group stands at %d, want 1", got)
	}
	if g, err = GroupOf(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	txn = begin(t, cl)
	commitOffsets(t, txn, g, 3)
	commit(t, txn)
	if got := committedAt(t, e.us.addr); got != 3 {
		t.Errorf("the group stands at %d, want 3", got)
	}
	if got := visible(t, e.eu.addr); len(got) != 0 {
		t.Errorf("eu shows %q", got)
	}
}

func TestGroupOfANonMember(t *testing.T) {
	us := newKfake(t, "us")
	if _, err := GroupOf(t.Context(), plain(t, us.addr)); err == nil {
		t.Error("GroupOf a client without a group succeeded")
	}
	cl := member(t, us.addr)
	if g, err := GroupOf(t.Context(), cl); err != nil || g.clusterID != us.id || g.id != group || g.generation < 1 || g.memberID == "" {
		t.Errorf("GroupOf = %+v, %v", g, err)
	}
	waiting := plain(t, us.addr, kgo.ConsumerGroup("other"), kgo.ConsumeTopics("not-there")) // and so does not join
	if _, err := GroupOf(t.Context(), waiting); !errors.Is(err, ErrNotMember) {
		t.Errorf("GroupOf before joining = %v, want ErrNotMember", err)
	}
}

// offsetsFail makes us answer TxnOffsetCommit or AddOffsetsToTxn with code, the
// given number of times.
func offsetsFail(c participantCluster, code int16, times int) (asked *atomic.Int64) {
	asked = new(atomic.Int64)
	c.fake.ControlKey(keyTxnOffsetCommit, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		if asked.Add(1) > int64(times) {
			return nil, nil, false
		}
		req := kreq.(*kmsg.TxnOffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.TxnOffsetCommitResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return asked
}

func TestOffsetsAreTriedAgain(t *testing.T) {
	for _, code := range []*kerr.Error{
		kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.ConcurrentTransactions,
		kerr.CoordinatorLoadInProgress, kerr.UnknownTopicOrPartition,
	} {
		t.Run(code.Message, func(t *testing.T) {
			e := newEnv(t)
			cl := e.open(t)
			g := standalone(t, e.us.addr)
			asked := offsetsFail(e.us, code.Code, 3)
			txn := begin(t, cl)
			commitOffsets(t, txn, g, 7)
			commit(t, txn)
			if asked.Load() < 4 {
				t.Errorf("asked %d times", asked.Load())
			}
			if got := committedAt(t, e.us.addr); got != 7 {
				t.Errorf("the group stands at %d, want 7", got)
			}
		})
	}
}

func TestOffsetsRefusedForGoodAbort(t *testing.T) {
	for code, staleGroup := range map[*kerr.Error]bool{
		kerr.IllegalGeneration: true, kerr.UnknownMemberID: true, kerr.FencedInstanceID: true, kerr.RebalanceInProgress: true,
		kerr.GroupAuthorizationFailed: false, kerr.InvalidProducerEpoch: false, kerr.OffsetMetadataTooLarge: false,
	} {
		t.Run(code.Message, func(t *testing.T) {
			e := newEnv(t)
			cl := e.open(t)
			g := standalone(t, e.us.addr)
			offsetsFail(e.us, code.Code, 1)
			txn := begin(t, cl)
			produce(t, txn, "eu", "x")
			err := txn.CommitOffsets(deadline(t, patience), g, at(7))
			if !errors.Is(err, code) || errors.As(err, new(*StaleGroupError)) != staleGroup || errors.As(err, new(*OffsetsError)) == staleGroup {
				t.Errorf("CommitOffsets = %v (%T)", err, err)
			}
			if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) || !errors.Is(err, code) {
				t.Errorf("Commit = %v", err)
			}
			txn = begin(t, cl)
			produce(t, txn, "eu", "y")
			commitOffsets(t, txn, g, 8)
			commit(t, txn)
			if got := committedAt(t, e.us.addr); got != 8 {
				t.Errorf("the group stands at %d, want 8", got)
			}
			if got, want := visible(t, e.eu.addr), []string{"y"}; !slices.Equal(got, want) {
				t.Errorf("eu shows %q, want %q", got, want)
			}
		})
	}
}

// A request about offsets whose fate is unknown may still arrive: the producer
// is initialised again, so that it cannot come into the next transaction.
func TestOffsetsOfUnknownFate(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	g := standalone(t, e.us.addr)
	asked := offsetsFail(e.us, kerr.ConcurrentTransactions.Code, 1<<30)
	txn := begin(t, cl)
	if err := txn.CommitOffsets(expiresWhen(t, func() bool { return asked.Load() > 1 }), g, at(7)); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kerr.ConcurrentTransactions) {
		t.Errorf("CommitOffsets = %v", err)
	}
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) {
		t.Errorf("Commit = %v", err)
	}
	produce(t, begin(t, cl), "us", "a")
	if got := e.us.inits.Load(); got != 2 {
		t.Errorf("%d InitProducerId, want 2", got)
	}
	if err := txn.CommitOffsets(t.Context(), g, at(1)); !errors.Is(err, ErrTxnEnded) {
		t.Errorf("CommitOffsets after the end = %v", err)
	}
}

// Records and offsets from many goroutines at once.
func TestOffsetsAndRecordsAtOnce(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	g := standalone(t, e.us.addr)
	want := map[string]bool{}
	for round := range 3 {
		txn := begin(t, cl)
		done := make(chan struct{})
		for i := range 8 {
			v := string(rune('a'+i)) + string(rune('0'+round))
			want[v] = true
			go func() {
				defer func() { done <- struct{}{} }()
				if err := txn.CommitOffsets(t.Context(), g, at(int64(round))); err != nil {
					t.Error(err)
				}
				produce(t, txn, "us", v)
				produce(t, txn, "eu", v)
			}()
		}
		for range 8 {
			<-done
		}
		commit(t, txn)
	}
	for _, c := range []participantCluster{e.us, e.eu} {
		if got := visible(t, c.addr); len(got) != len(want) || !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(maps.Keys(want))) {
			t.Errorf("%s shows %q", c.name, got)
		}
	}
}
