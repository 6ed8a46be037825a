//go:build kafka

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Case 4 on Kafka: the producer epochs of us run out while global transactions
// go on, and the answer to the last EndTxn, which names another producer id and
// epoch 0, is lost. The coordinator asks again in the same version, is told the
// same, and the client goes on with the new producer id.
func TestTransactionsGoOnWhenProducerEpochsRunOutOnKafka(t *testing.T) {
	us := kafkaCluster(t, "v44", cluster.V44)
	clusters := map[string]participantCluster{"us": us, "eu": embeddedCluster(t, optedIn, "cluster.id=cluster-eu")}
	id, topic := uniqueID(t), newTopic(t, clusters)
	last := &lastEndTxn{}
	link, err := proxy.Listen(t.Context(), "127.0.0.1:0", us.addr, proxy.Hooks{Answer: last.answer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	seenByCoordinator := maps.Clone(clusters)
	seenByCoordinator["us"] = participantCluster{addr: link.Addr(), id: us.id}
	rig := newCoordinator(t, seenByCoordinator)

	used := bumpEpochs(t, us, id, lastProducerEpoch-3)
	cl := openClient(t, rig, id, clusters) // one more
	var want []string
	epochs := map[int64][]int16{}
	for i := range 5 {
		value := fmt.Sprint("v", i)
		want = append(want, value)
		txn := write(t, cl, topic, value, "us", "eu")
		p := openProducer(t, us, id)
		epochs[p.ProducerID] = append(epochs[p.ProducerID], p.ProducerEpoch)
		if r, err := txn.Commit(t.Context()); err != nil || r.Outcome != client.OutcomeCommitted || !r.Complete() {
			t.Fatalf("transaction %d: %+v, %v", i, r, err)
		}
		shows(t, clusters, topic, map[string][]string{"us": want, "eu": want})
	}
	if got := epochs[used]; len(epochs) != 2 || !slices.Equal(got, []int16{lastProducerEpoch - 2, lastProducerEpoch - 1, lastProducerEpoch}) {
		t.Errorf("epochs by producer id %v, want the last three of %d and then another producer id", epochs, used)
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	if !slices.Equal(last.versions, []int16{5, 5}) || last.answers[0] != last.answers[1] {
		t.Errorf("the end of the last epoch was asked for in versions %v and answered %v, want 5 twice and the same answer", last.versions, last.answers)
	}
}

// lastProducerEpoch is the highest that a producer is given.
const lastProducerEpoch = math.MaxInt16 - 1

// lastEndTxn notes the EndTxn of the last epoch, and loses its first answer.
type lastEndTxn struct {
	mu       sync.Mutex
	versions []int16
	answers  []string
}

func (l *lastEndTxn) answer(x *proxy.Exchange) {
	req, isEnd := x.Request.(*kmsg.EndTxnRequest)
	resp, answered := x.Response.(*kmsg.EndTxnResponse)
	if !isEnd || !answered || req.ProducerEpoch != lastProducerEpoch || resp.ErrorCode == kerr.ConcurrentTransactions.Code {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.versions = append(l.versions, req.Version)
	l.answers = append(l.answers, fmt.Sprintf("code %d, producer %d, epoch %d", resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch))
	if len(l.versions) == 1 {
		x.Cut()
	}
}

// bumpEpochs initialises the producer of id until it has the epoch. Several
// requests are on their way at a time, because each costs the broker less than
// the way; it carries them out one after the other.
func bumpEpochs(t *testing.T, c participantCluster, id string, epoch int16) (producerID int64) {
	t.Helper()
	cl := kgoClient(t, c.addr, kgo.RequestTimeoutOverhead(patience)) // a repeat would be one epoch more
	var left atomic.Int32
	left.Store(int32(epoch))
	producerID = initProducer(t, cl, id).ProducerID
	var sending sync.WaitGroup
	for range 16 {
		sending.Go(func() {
			for left.Add(-1) > 0 && !t.Failed() {
				initProducer(t, cl, id)
			}
		})
	}
	sending.Wait()
	if p := initProducer(t, cl, id); p.ProducerID != producerID || p.ProducerEpoch != epoch {
		t.Fatalf("producer %d, epoch %d, want %d, %d", p.ProducerID, p.ProducerEpoch, producerID, epoch)
	}
	return producerID
}

func initProducer(t *testing.T, cl *kgo.Client, id string) *kmsg.InitProducerIDResponse {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, math.MaxInt32
	for {
		resp, err := req.RequestWith(t.Context(), cl)
		if err == nil && resp.ErrorCode != kerr.ConcurrentTransactions.Code {
			err = kerr.ErrorForCode(resp.ErrorCode)
		} else if err == nil {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		return resp
	}
}
