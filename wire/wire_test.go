package wire

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func TestRequestForKey(t *testing.T) {
	for _, api := range APIs() {
		for version := api.MinVersion - 1; version <= api.MaxVersion+1; version++ {
			req, ok := RequestForKey(api.Key, version)
			if want := api.MinVersion <= version && version <= api.MaxVersion; ok != want {
				t.Errorf("%s v%d: known %t, want %t", api.Name, version, ok, want)
			}
			if !ok {
				continue
			}
			resp := req.ResponseKind()
			back := resp.RequestKind()
			for _, m := range []message{req, resp, back} {
				if m.Key() != api.Key || m.GetVersion() != version {
					t.Errorf("%s: %T has key %d, version %d", api.Name, m, m.Key(), m.GetVersion())
				}
			}
		}
	}
	if _, ok := RequestForKey(int16(kmsg.Metadata), 0); ok {
		t.Error("a request of Kafka's own was given")
	}
}

func TestAPIsAreAscendingAndTheCallersToChange(t *testing.T) {
	ascending := func(a, b API) int { return int(a.Key) - int(b.Key) }
	if !slices.IsSortedFunc(APIs(), ascending) {
		t.Errorf("keys are not ascending: %+v", APIs())
	}
	APIs()[0].Key = -1
	if APIs()[0].Key == -1 {
		t.Error("APIs hands out the package's own table")
	}
}

func TestNameForKey(t *testing.T) {
	for key, want := range map[int16]string{
		KeyEndGlobalTxn:      "EndGlobalTxn",
		KeyInitProducerID:    "InitProducerId",
		int16(kmsg.Metadata): "Metadata",
		999:                  "Unknown",
	} {
		if got := NameForKey(key); got != want {
			t.Errorf("%d is %q, want %q", key, got, want)
		}
	}
}

func TestVersionsAddOursToKafkas(t *testing.T) {
	got := Versions()
	ours := make(map[int16]int16)
	for _, api := range APIs() {
		ours[api.Key] = api.MaxVersion
	}
	kversion.Stable().EachMaxKeyVersion(func(key, version int16) {
		if _, changed := ours[key]; changed {
			return
		}
		if v, ok := got.LookupMaxKeyVersion(key); !ok || v != version {
			t.Errorf("%s is %d, want Kafka's %d", kmsg.NameForKey(key), v, version)
		}
	})
	for key, version := range ours {
		if v, ok := got.LookupMaxKeyVersion(key); !ok || v != version {
			t.Errorf("%s is %d, want %d", NameForKey(key), v, version)
		}
	}
	got.SetMaxKeyVersion(KeyEndGlobalTxn, -1)
	if !Versions().HasKey(KeyEndGlobalTxn) {
		t.Error("Versions hands out one shared value")
	}
}

// InitGlobalTxn's timeout is that of the transactions: kgo would otherwise wait
// an hour for the answer of a coordinator that died.
func TestOnlyEndGlobalTxnHoldsItsAnswer(t *testing.T) {
	for _, api := range APIs() {
		req, _ := RequestForKey(api.Key, api.MaxVersion)
		timeout, ok := req.(kmsg.TimeoutRequest)
		if want := api.Key == KeyEndGlobalTxn; ok != want {
			t.Errorf("%s is a kmsg.TimeoutRequest: %t, want %t", api.Name, ok, want)
		}
		if ok {
			req.(kmsg.SetTimeoutRequest).SetTimeout(1234)
			if timeout.Timeout() != 1234 || req.(*EndGlobalTxnRequest).TimeoutMillis != 1234 {
				t.Errorf("%s: timeout %d, want 1234", api.Name, timeout.Timeout())
			}
		}
	}
}

func TestEveryResponseCanBeThrottled(t *testing.T) {
	for _, api := range APIs() {
		req, _ := RequestForKey(api.Key, api.MaxVersion)
		resp := req.ResponseKind()
		resp.(kmsg.SetThrottleResponse).SetThrottle(55)
		if millis, after := resp.(kmsg.ThrottleResponse).Throttle(); millis != 55 || !after {
			t.Errorf("%s: throttle %d, after the response %t", api.Name, millis, after)
		}
	}
}

func TestErrorCodes(t *testing.T) {
	want := []struct {
		code      int16
		name      string
		retriable bool
		err       *Error
	}{
		{1000, "PARTICIPANT_NOT_AVAILABLE", true, ParticipantNotAvailable},
		{1001, "UNKNOWN_PARTICIPANT", false, UnknownParticipant},
		{1002, "PARTICIPANT_CLUSTER_ID_MISMATCH", false, ParticipantClusterIDMismatch},
		{1003, "PARTICIPANT_NOT_ENABLED", false, ParticipantNotEnabled},
		{1004, "HEURISTIC_OUTCOME", false, HeuristicOutcome},
		{1005, "GLOBAL_TRANSACTION_TOO_OLD", false, GlobalTransactionTooOld},
		{1006, "CORRUPT_GLOBAL_TRANSACTION_LOG", false, CorruptGlobalTransactionLog},
	}
	if got := len(Errors()); got != len(want) {
		t.Fatalf("%d codes, want %d", got, len(want))
	}
	shape := regexp.MustCompile(`^[A-Z][^.]+\. .+\.$`) // what happened, then what to do
	for i, w := range want {
		e := Errors()[i]
		if e != w.err || e.Code != w.code || e.Name != w.name || e.Retriable != w.retriable {
			t.Errorf("%+v, want %+v", e, w)
		}
		if !shape.MatchString(e.Description) {
			t.Errorf("%s: the description has no remedy: %q", e.Name, e.Description)
		}
		if kerr.TypedErrorForCode(e.Code) != kerr.UnknownServerError {
			t.Errorf("%s: Kafka has a code %d too", e.Name, e.Code)
		}
		wrapped := fmt.Errorf("init: %w", ErrorForCode(w.code))
		if !errors.Is(wrapped, w.err) || IsRetriable(wrapped) != w.retriable {
			t.Errorf("ErrorForCode(%d) is %v, retriable %t", w.code, wrapped, IsRetriable(wrapped))
		}
	}
}

func TestErrorForCodeKnowsKafkasCodes(t *testing.T) {
	if err := ErrorForCode(0); err != nil {
		t.Errorf("0 is %v", err)
	}
	for _, want := range []*kerr.Error{kerr.ProducerFenced, kerr.UnknownServerError, kerr.NotCoordinator} {
		got := ErrorForCode(want.Code)
		if !errors.Is(got, want) || IsRetriable(got) != want.Retriable {
			t.Errorf("%d is %v, retriable %t, want %v", want.Code, got, IsRetriable(got), want)
		}
	}
	for _, code := range []int16{999, 1007, -2} {
		err := ErrorForCode(code)
		var unknown *UnknownErrorCodeError
		if !errors.As(err, &unknown) || unknown.Code != code || IsRetriable(err) {
			t.Errorf("%d is %v", code, err)
		}
	}
}

// Below version 4 FindCoordinator has another layout, which the types of this
// package do not write.
func TestFindCoordinatorTakesNoVersionOfAnotherLayout(t *testing.T) {
	for _, m := range []message{NewPtrFindCoordinatorRequest(), NewPtrFindCoordinatorResponse()} {
		for version, want := range map[int16]int16{0: 4, 3: 4, 4: 4, 6: 6, 7: 7} {
			if m.SetVersion(version); m.GetVersion() != want {
				t.Errorf("%T: version %d became %d, want %d", m, version, m.GetVersion(), want)
			}
		}
	}
}
