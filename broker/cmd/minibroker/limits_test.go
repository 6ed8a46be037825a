package main

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

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
