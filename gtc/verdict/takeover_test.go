package verdict

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// A transaction that is open under (7, 3) and that EndTxn by (7, 3) does not end was
// kept for somebody (KIP-939). The coordinator takes it over, and ends it only if it
// is the one decided about.
func TestAKeptTransactionIsTakenOver(t *testing.T) {
	open := View{Ongoing, 7, 3, Unlimited, 1000, "t", 0}
	next := View{Ongoing, 7, 4, Unlimited, 2000, "t", 0}
	pair, ours, none := Pair{9, 0}, Pair{7, 3}, Pair{-1, -1}
	take := []Ask{AskBroker, AskEnd, AskBrokerAnew, AskEnd, AskState, AskPair}
	for _, tc := range []struct {
		name    string
		version int16
		keeps   bool
		code    *kerr.Error // of EndTxn by (7, 3)
		seen    View
		kept    int16 // code of InitProducerId
		ongoing Pair
		asks    []Ask
		want    gtc.EndOutcome
	}{
		{"ours", EndTxnBumps, true, kerr.ProducerFenced, open, 0, ours, append(slices.Clone(take), AskEnd), gtc.EndDone},
		{"in the words of other brokers", EndTxnBumps, true, kerr.InvalidProducerEpoch, open, 0, ours, append(slices.Clone(take), AskEnd), gtc.EndDone},
		{"the next one has begun meanwhile", EndTxnBumps, true, kerr.ProducerFenced, open, 0, Pair{7, 4}, take, gtc.EndRetry},
		{"ended meanwhile", EndTxnBumps, true, kerr.ProducerFenced, open, 0, none, take, gtc.EndRetry},
		{"Kafka 4.1 to 4.4", EndTxnBumps, true, kerr.ProducerFenced, open, kerr.UnsupportedVersion.Code, none, take, gtc.EndRetry},
		{"without the right", EndTxnBumps, true, kerr.ProducerFenced, open, kerr.TransactionalIDAuthorizationFailed.Code, none, take, gtc.EndRetry},
		{"not offered", EndTxnBumps, false, kerr.ProducerFenced, open, 0, ours, take[:5], gtc.EndRetry},
		{"not fenced", EndTxnBumps, true, kerr.InvalidTxnState, open, 0, ours, take[:5], gtc.EndRetry},
		// Whoever writes there would be fenced for nothing.
		{"another one is open", EndTxnBumps, true, kerr.ProducerFenced, next, 0, ours, append(slices.Clone(take[:5]), AskMarkers), gtc.EndDone},
		{"version 4", EndTxnKeeps, true, kerr.ProducerFenced, open, 0, ours, []Ask{AskBroker, AskEnd, AskBrokerAnew, AskState, AskEnd, AskState}, gtc.EndRetry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := Voted(1000, 1)
			e := NewEnding(gtc.EndTxn{ID: "tid", Sequence: 1, Commit: true, Participant: branch(tc.version)}, &at)
			var asks []Ask
			for e.Next() != AskNothing {
				asks = append(asks, e.Next())
				switch e.Next() {
				case AskBroker, AskBrokerAnew:
					e.Connected(1, tc.version, EndTxnBumps, tc.keeps)
				case AskEnd:
					if e.Pair() == pair {
						e.Answered(0, 7, 4)
					} else {
						e.Answered(tc.code.Code, -1, -1)
					}
				case AskState:
					e.Seen(tc.seen)
				case AskPair:
					e.Kept(tc.kept, pair, tc.ongoing)
				case AskMarkers:
					e.Audited(true, nil)
				case AskNothing:
				}
			}
			if got := e.Answer(); !slices.Equal(asks, tc.asks) || got.Outcome != tc.want {
				t.Errorf("asked %v, outcome %d (%s), want %v and %d", asks, got.Outcome, got.Detail, tc.asks, tc.want)
			}
		})
	}
}

// A pair that was taken is used again, until somebody has taken the transaction over
// in turn.
func TestATakenPairIsRemembered(t *testing.T) {
	open := View{Ongoing, 7, 3, Unlimited, 1000, "t", 0}
	at := Voted(1000, 1)
	at.Took, at.Taken = true, Pair{9, 0}
	order := gtc.EndTxn{ID: "tid", Sequence: 1, Commit: true, Participant: branch(EndTxnBumps)}
	e := NewEnding(order, &at)
	e.Connected(1, EndTxnBumps, EndTxnBumps, true)
	if e.Next() != AskEnd || e.Pair() != at.Taken {
		t.Fatalf("asks %d by %v, want EndTxn by the pair taken", e.Next(), e.Pair())
	}
	e.Answered(kerr.ProducerFenced.Code, -1, -1)
	e.Connected(1, EndTxnBumps, EndTxnBumps, true)
	e.Answered(kerr.ProducerFenced.Code, -1, -1)
	e.Seen(open)
	if e.Next() != AskPair {
		t.Fatalf("asks %d, want it taken over once more", e.Next())
	}
	e.Kept(0, Pair{9, 2}, Pair{7, 3})
	if e.Next() != AskEnd || e.Pair() != (Pair{9, 2}) {
		t.Errorf("asks %d by %v, want EndTxn by the new pair", e.Next(), e.Pair())
	}
	// Once in a try: two who take it from each other do so at the pace of the back-off.
	e.Answered(kerr.ProducerFenced.Code, -1, -1)
	e.Seen(open)
	if e.Next() != AskNothing || e.Answer().Outcome != gtc.EndRetry {
		t.Errorf("asks %d, outcome %d, want to be asked again later", e.Next(), e.Answer().Outcome)
	}
}
