package main

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// API keys that tests answer in a participant's stead.
const (
	keyInitProducerID = 22
	keyEndTxn         = 26
)

// scripted is a participant whose answers a test can give.
type scripted struct {
	participantCluster
	fake *kfake.Cluster
	// ends and inits count EndTxn and InitProducerId, whoever answers them.
	ends, inits atomic.Int64
	// endTxn is what to answer EndTxn with, by code; notScripted lets the
	// cluster answer.
	endTxn atomic.Int32
	// held, when set, keeps the next EndTxn until it is closed; then the
	// cluster carries it out.
	held atomic.Pointer[chan struct{}]
}

const notScripted = 1 << 20

// newScripted starts a participant on transaction.version 1 or 2.
func newScripted(t *testing.T, name string, transactionVersion int16) *scripted {
	t.Helper()
	f, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("cluster-"+name),
		kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "2147483647"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	s := &scripted{participantCluster: participantCluster{addr: f.ListenAddrs()[0], id: "cluster-" + name}, fake: f}
	s.endTxn.Store(notScripted)
	if transactionVersion != 2 {
		s.setTransactionVersion(t, transactionVersion)
	}
	f.ControlKey(keyInitProducerID, func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		s.inits.Add(1)
		return nil, nil, false
	})
	f.ControlKey(keyEndTxn, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		s.ends.Add(1)
		if release := s.held.Swap(nil); release != nil {
			f.SleepControl(func() { <-*release })
			return nil, nil, false
		}
		code := s.endTxn.Load()
		if code == notScripted {
			return nil, nil, false
		}
		req := kreq.(*kmsg.EndTxnRequest)
		// (The check's probe, of producer id -1, is v4 everywhere.)
		if want := map[int16]int16{1: 4, 2: 5}[transactionVersion]; req.Version != want && req.ProducerID >= 0 {
			t.Errorf("%s got EndTxn v%d, want v%d", name, req.Version, want)
		}
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = int16(code), -1, -1
		return resp, nil, true
	})
	return s
}

func (s *scripted) setTransactionVersion(t *testing.T, level int16) {
	t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis = 10_000
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = "transaction.version", level, 3, true
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	resp, err := req.RequestWith(t.Context(), kgoClient(t, s.addr))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatalf("transaction.version=%d: %v", level, err)
	}
}

// outsider initialises a producer of the id, which aborts what is open.
func (s *scripted) outsider(t *testing.T, id string) {
	t.Helper()
	if _, _, err := kgoClient(t, s.addr, kgo.TransactionalID(id)).ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// asClusters names participants as the rig does.
func asClusters(us, eu *scripted) map[string]participantCluster {
	return map[string]participantCluster{"us": us.participantCluster, "eu": eu.participantCluster}
}

// shows compares what a reader sees on each cluster with the values given.
func shows(t *testing.T, clusters map[string]participantCluster, topic string, want map[string][]string) {
	t.Helper()
	for name, c := range clusters {
		if got := visibleOn(t, c, topic); fmt.Sprint(got) != fmt.Sprint(want[name]) {
			t.Errorf("%s shows %v, want %v", name, got, want[name])
		}
	}
}
