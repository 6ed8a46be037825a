package main

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc/participant"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

func TestLimitsOfGlobalTransactions(t *testing.T) {
	clusters := twoEmbedded(t)
	us, eu := clusters["us"].id, clusters["eu"].id
	a := newAsker(t, newCoordinator(t, clusters, "global.transaction.max.participants=1", "global.transactional.ids.max.per.partition=2"))
	r := a.init("both", 1, us, eu)
	wantError(t, "two participants", r.ErrorCode, r.ErrorMessage, kerr.InvalidRequest, "global.transaction.max.participants")

	admitted := map[string]*wire.InitGlobalTxnResponse{}
	for i := range 40 {
		id := fmt.Sprint("id", i)
		if r := a.init(id, 1, us); r.ErrorCode == 0 {
			admitted[id] = r
		} else {
			wantError(t, id, r.ErrorCode, r.ErrorMessage, kerr.PolicyViolation, "global.transactional.ids.max.per.partition")
		}
	}
	if len(admitted) != 8 { // 4 partitions of 2
		t.Errorf("%d ids were admitted, want 8", len(admitted))
	}
	for id, before := range admitted {
		if r := a.init(id, 2, us); r.ErrorCode != 0 || r.GlobalEpoch != before.GlobalEpoch+1 {
			t.Errorf("%s, which is there, begins another session: %+v", id, r)
		}
	}
}

// Ids expire after a look at as many clusters as there are, the node's own among
// them: a number that is too small would forget what is open on one that is away.
func TestTheCoreCountsTheConfiguredClusters(t *testing.T) {
	cfg := testConfig(t, "process.roles=broker,gtc", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="+t.TempDir(),
		"gtc.clusters=us,eu", "gtc.cluster.us.bootstrap.servers=127.0.0.1:1", "gtc.cluster.eu.bootstrap.servers=127.0.0.1:1")
	participants, err := openParticipants(cfg, service.SystemClock(), quiet(), participant.Config{Alias: "this cluster"})
	if err != nil {
		t.Fatal(err)
	}
	defer participants.Close()
	if got := coreConfig(cfg, participants).Clusters; got != 3 {
		t.Errorf("%d clusters, want 3", got)
	}
}
