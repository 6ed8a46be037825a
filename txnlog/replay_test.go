package txnlog

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"pgregory.net/rapid"
)

// script feeds records at rising offsets and keeps what replay says of them.
type script struct {
	t       testing.TB
	replay  Replay
	next    int64
	got     []string // ids, "-id" for a tombstone
	skipped []error
}

func newScript(tb testing.TB) *script {
	tb.Helper()
	s := &script{t: tb, next: 100}
	s.replay = Replay{
		Partition: 3,
		Entry: func(e Entry) error {
			id := e.GlobalTransactionalID
			if e.Value == nil {
				id = "-" + id
			}
			s.got = append(s.got, id)
			return nil
		},
		Skipped: func(err error) { s.skipped = append(s.skipped, err) },
	}
	return s
}

func (s *script) feed(pid int64, epoch int16, k, v []byte) error {
	s.t.Helper()
	s.next++
	return s.replay.Feed(RawRecord{Offset: s.next - 1, ProducerID: pid, ProducerEpoch: epoch, Key: k, Value: v})
}

func (s *script) claim(pid int64, epoch int16) {
	s.t.Helper()
	c := Claim{ProducerID: pid, ProducerEpoch: epoch}
	if err := s.feed(pid, epoch, AppendClaimKey(nil), AppendClaim(nil, &c)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) put(pid int64, epoch int16, id string) {
	s.t.Helper()
	if err := s.feed(pid, epoch, key(s.t, id), AppendValue(nil, &GlobalTransaction{})); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) want(ids ...string) {
	s.t.Helper()
	if !slices.Equal(s.got, ids) {
		s.t.Fatalf("replayed %q, want %q", s.got, ids)
	}
}

func (s *script) wantForeign(offsets ...int64) {
	s.t.Helper()
	var got []int64
	for _, err := range s.skipped {
		if foreign, ok := errors.AsType[*ForeignRecordError](err); ok {
			got = append(got, foreign.Offset)
		}
	}
	if !slices.Equal(got, offsets) {
		s.t.Fatalf("foreign records at %v, want %v", got, offsets)
	}
}

func TestAfterAClaimOnlyItsOwnersRecordsCount(t *testing.T) {
	s := newScript(t)
	s.put(1, 0, "before") // 100
	s.claim(1, 0)         // 101
	s.put(1, 0, "mine")
	s.put(2, 0, "stranger") // 103
	s.claim(1, 1)
	s.put(1, 0, "old epoch") // 105
	s.put(1, 1, "new epoch")
	s.want("before", "mine", "new epoch")
	s.wantForeign(103, 105)
}

// Compaction in the middle of a replay: the first claim is read, then the part
// behind it is cleaned, so that of the two claims there only the last is left.
func TestAClaimThatCompactionRemovedDuringTheReplayIsNotMissed(t *testing.T) {
	s := newScript(t)
	s.claim(1, 5)
	s.put(1, 5, "a")
	// s.claim(1, 6) is gone
	s.put(1, 6, "decided by the second")
	s.put(1, 5, "refused by the broker in truth") // 103
	s.claim(1, 7)
	s.put(1, 7, "b")
	s.want("a", "decided by the second", "b")
	s.wantForeign(103)
}

func TestAClaimOfAnotherProducerNeedsTheSealOfTheOwner(t *testing.T) {
	s := newScript(t)
	s.claim(1, 32766) // 100
	s.claim(2, 0)     // 101: takes no effect, producer 1 is not fenced by it
	s.put(1, 32766, "old owner, acknowledged")
	s.put(2, 0, "too early") // 103
	s.claim(1, ProducerEpochSealed)
	s.claim(2, 0)
	s.put(2, 0, "new owner")
	s.put(1, 32766, "refused by the broker in truth") // 107
	s.want("old owner, acknowledged", "new owner")
	s.wantForeign(101, 103, 107)
}

// What neighbours have in common is taken from the one before. A list of clusters
// that begins like that one, or a damaged one between the two, must not be.
func TestARecordIsReadAsIfThereWereNoOthers(t *testing.T) {
	const listAt = 52 // where the list of clusters begins in a value
	cluster := rapid.SampledFrom([]string{"", "eu", "us"})
	participants := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) Participant {
		return Participant{ClusterID: cluster.Draw(rt, "participant"), AuditTopic: rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "topic")}
	}), 1, 3)
	rapid.Check(t, func(rt *rapid.T) {
		var got *GlobalTransaction
		r := Replay{Entry: func(e Entry) error { got = e.Value; return nil }}
		for range rapid.IntRange(1, 10).Draw(rt, "records") {
			raw := AppendValue(nil, &GlobalTransaction{
				ClusterIDs:   rapid.SliceOfN(cluster, 0, 2).Draw(rt, "clusters"),
				Participants: participants.Draw(rt, "participants"),
			})
			if rapid.Bool().Draw(rt, "damaged") {
				raw = raw[:rapid.IntRange(listAt, listAt+8).Draw(rt, "length")]
			}
			want, wantErr := DecodeValue(raw)
			got = nil
			err := errors.Join(r.Feed(RawRecord{Key: key(t, "a"), Value: raw}), r.Finish())
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				err = joined.Unwrap()[0]
			}
			if wantCorrupt, ok := errors.AsType[*CorruptError](wantErr); ok {
				wantCorrupt.GlobalTransactionalID = "a"
			}
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err, wantErr) {
				rt.Fatalf("read %+v, %v, and alone %+v, %v", got, err, want, wantErr)
			}
		}
	})
}

// A hundred thousand ids that use the same two clusters have one list of them.
func TestNeighboursShareTheirListsOfClusters(t *testing.T) {
	var session, former []*string
	r := Replay{Entry: func(e Entry) error {
		session, former = append(session, &e.Value.ClusterIDs[0]), append(former, &e.Value.FormerClusterIDs[0])
		return nil
	}}
	for _, clusters := range [][]string{{"us", "eu"}, {"us", "eu"}, {"us"}, {"us"}} {
		v := &GlobalTransaction{ClusterIDs: clusters, FormerClusterIDs: append(clusters, "asia")}
		if err := r.Feed(RawRecord{Key: key(t, "a"), Value: AppendValue(nil, v)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, lists := range [][]*string{session, former} {
		if lists[0] != lists[1] || lists[1] == lists[2] || lists[2] != lists[3] {
			t.Errorf("lists at %v, want two", lists)
		}
	}
}

func TestATombstoneOfAClaimGivesThePartitionToNobody(t *testing.T) {
	s := newScript(t)
	s.claim(1, 5)
	if err := s.feed(1, 5, AppendClaimKey(nil), nil); err != nil {
		t.Fatal(err)
	}
	s.put(2, 0, "stranger")
	s.want()
	s.wantForeign(102)
}

// Compaction keeps the last record of each key in the stretch that it has
// cleaned. Whatever the stretch, the last record of each id must be the same.
func TestCompactionChangesNothingThatCounts(t *testing.T) {
	type rec struct {
		raw   RawRecord
		claim bool
		id    string
	}
	rapid.Check(t, func(rt *rapid.T) {
		var log []rec
		pid, epoch := int64(1), int16(0)
		add := func(k, v []byte, p int64, e int16, isClaim bool, id string) {
			log = append(log, rec{RawRecord{int64(len(log)), p, e, k, v}, isClaim, id})
		}
		claim := func(p int64, e int16) {
			add(AppendClaimKey(nil), AppendClaim(nil, &Claim{ProducerID: p, ProducerEpoch: e}), p, e, true, "")
		}
		claim(pid, epoch)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0: // keep-alive
				claim(pid, epoch)
			case 1: // take-over or re-init
				epoch++
				claim(pid, epoch)
			case 2: // a new producer id
				claim(pid, ProducerEpochSealed)
				pid, epoch = pid+1, 0
				claim(pid, epoch)
			default:
				id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "id")
				v := &GlobalTransaction{Sequence: int64(len(log))}
				k, err := AppendKey(nil, id)
				if err != nil {
					rt.Fatal(err)
				}
				add(k, AppendValue(nil, v), pid, epoch, false, id)
			}
		}
		state := func(log []rec) map[string]int64 {
			m := map[string]int64{}
			r := Replay{
				Entry:   func(e Entry) error { m[e.GlobalTransactionalID] = e.Value.Sequence; return nil },
				Skipped: func(err error) { rt.Fatalf("left out: %v", err) },
			}
			for _, x := range log {
				if err := r.Feed(x.raw); err != nil {
					rt.Fatal(err)
				}
			}
			return m
		}
		cleaned := rapid.IntRange(0, len(log)).Draw(rt, "cleaned")
		last := map[string]int{}
		for i, x := range log[:cleaned] {
			last[string(x.raw.Key)] = i
		}
		var compacted []rec
		for i, x := range log {
			if i >= cleaned || last[string(x.raw.Key)] == i {
				compacted = append(compacted, x)
			}
		}
		if got, want := state(compacted), state(log); !reflect.DeepEqual(got, want) {
			rt.Fatalf("after compaction of %d of %d records the state is %v, want %v", cleaned, len(log), got, want)
		}
	})
}

func TestUnknownTypesAreSkippedWithAWarning(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	if err := s.feed(1, 0, kbin.AppendInt16(nil, 77), []byte("whatever")); err != nil {
		t.Fatal(err)
	}
	if err := s.feed(1, 0, kbin.AppendInt16(nil, 78), nil); err != nil {
		t.Fatal(err)
	}
	s.put(1, 0, "a")
	s.want("a")
	if len(s.skipped) != 2 {
		t.Fatalf("skipped %v, want two records", s.skipped)
	}
	unknown, ok := errors.AsType[*UnknownTypeError](s.skipped[0])
	if !ok || unknown.Type != 77 || unknown.Partition != 3 || unknown.Offset != 101 {
		t.Fatalf("got %v, want type 77 at partition 3, offset 101", s.skipped[0])
	}
}

func TestATombstoneOfAnUnknownIDIsReplayed(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	if err := s.feed(1, 0, key(t, "never seen"), nil); err != nil {
		t.Fatal(err)
	}
	s.want("-never seen")
}

func newerVersion() []byte {
	b := AppendValue(nil, &GlobalTransaction{State: StatePrepareCommit})
	b[1] = 1
	return b
}

func TestAnUnknownVersionOfALiveIDRefusesThePartition(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	s.put(1, 0, "live")
	if err := s.feed(1, 0, key(t, "live"), newerVersion()); err != nil { // 102
		t.Fatal(err)
	}
	s.put(1, 0, "other")
	unknown, ok := errors.AsType[*UnknownVersionError](s.replay.Finish())
	want := &UnknownVersionError{GlobalTransactionalID: "live", Partition: 3, Offset: 102, Version: 1}
	if !ok || *unknown != *want {
		t.Fatalf("got %v, want %v", unknown, want)
	}
	for _, part := range []string{`"live"`, "offset 102", "version 1"} {
		if !strings.Contains(unknown.Error(), part) {
			t.Errorf("%q does not name %s", unknown, part)
		}
	}
}

// Compaction would keep the stranger's record and remove the decision before it.
func TestAForeignRecordThatIsTheLastOfItsIDRefusesThePartition(t *testing.T) {
	for name, value := range map[string][]byte{
		"a record": AppendValue(nil, &GlobalTransaction{}), "a tombstone": nil, "garbage": {0xff},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.claim(1, 0)
			s.put(1, 0, "a")
			if err := s.feed(-1, -1, key(t, "a"), value); err != nil { // 102
				t.Fatal(err)
			}
			s.put(1, 0, "b")
			s.want("a", "b")
			err := s.replay.Finish()
			foreign, ok := errors.AsType[*ForeignRecordError](err)
			if !ok || foreign.GlobalTransactionalID != "a" || foreign.Offset != 102 || !Refuses(err) {
				t.Fatalf("got %v, want the partition refused because of id a at offset 102", err)
			}
			s.put(1, 0, "a")
			if err := s.replay.Finish(); err != nil {
				t.Fatalf("superseded by the owner's: %v", err)
			}
		})
	}
}

// A record that is no claim's, or of a type that is not known, wins over nothing
// that is told of an id. A claim under no producer fences nobody.
func TestForeignRecordsThatAreAboutNoIDRefuseNothing(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	s.put(1, 0, "a")
	for _, k := range [][]byte{AppendClaimKey(nil), kbin.AppendInt16(nil, 77), nil} {
		for _, v := range [][]byte{AppendClaim(nil, &Claim{}), nil} {
			if err := s.feed(-1, -1, k, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.put(1, 0, "b")
	s.want("a", "b")
	if err := s.replay.Finish(); err != nil {
		t.Fatal(err)
	}
}

// The claim of nobody has removed the owner's in compaction.
func TestAClaimUnderNoProducerOwnsNothing(t *testing.T) {
	s := newScript(t)
	s.claim(-1, -1)
	s.put(1, 0, "a")
	s.claim(1, 1)
	s.put(1, 1, "b")
	s.want("a", "b")
	s.wantForeign()
}

// An operator's word is for these offsets, and written by an owner of the partition.
func TestALostStretchRefusesUntilItIsAccepted(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	s.next++ // 101 to 103 cannot be read
	s.replay.Lost(101, 103, "the checksum does not match")
	s.next = 104
	s.put(1, 0, "a")
	refused := func(when string) {
		t.Helper()
		lost, ok := errors.AsType[*LostError](s.replay.Finish())
		if want := (LostError{3, 101, 103, "the checksum does not match"}); !ok || *lost != want || !Refuses(lost) {
			t.Fatalf("%s: got %v, want %v", when, lost, &want)
		}
	}
	accept := func(pid, first, last int64) {
		t.Helper()
		if err := s.feed(pid, 0, AppendLossKey(nil, first), AppendLoss(nil, &Loss{LastOffset: last})); err != nil {
			t.Fatal(err)
		}
	}
	refused("before")
	accept(2, 101, 103)
	accept(1, 101, 102)
	accept(1, 100, 103)
	if err := s.feed(1, 0, AppendLossKey(nil, 101), nil); err != nil {
		t.Fatal(err)
	}
	refused("by a stranger, for other offsets, by a tombstone")
	accept(1, 101, 103)
	if err := s.replay.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := s.feed(1, 0, AppendLossKey(nil, 7), []byte{0, 0}); !errors.As(err, new(*CorruptError)) {
		t.Fatalf("a damaged word gives %v", err)
	}
}

func TestADamagedValueThatIsSupersededRefusesNothing(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	if err := s.feed(1, 0, key(t, "a"), []byte{0, 0, 99}); err != nil {
		t.Fatal(err)
	}
	corrupt, ok := errors.AsType[*CorruptError](s.replay.Finish())
	if !ok || corrupt.GlobalTransactionalID != "a" || corrupt.Offset != 101 {
		t.Fatalf("got %+v, want id a damaged at offset 101", corrupt)
	}
	s.put(1, 0, "a")
	if err := s.replay.Finish(); err != nil {
		t.Fatal(err)
	}
}

func TestAnUnknownVersionThatIsSupersededRefusesNothing(t *testing.T) {
	for name, value := range map[string][]byte{"a readable record": AppendValue(nil, &GlobalTransaction{}), "a tombstone": nil} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.claim(1, 0)
			if err := s.feed(1, 0, key(t, "a"), newerVersion()); err != nil {
				t.Fatal(err)
			}
			if err := s.feed(1, 0, key(t, "a"), value); err != nil {
				t.Fatal(err)
			}
			if err := s.replay.Finish(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestManyUnreadableIDsAreCountedAndTheFirstIsNamed(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	for _, id := range []string{"b", "a", "c"} {
		if err := s.feed(1, 0, key(t, id), newerVersion()); err != nil {
			t.Fatal(err)
		}
	}
	err := s.replay.Finish()
	unknown, ok := errors.AsType[*UnknownVersionError](err)
	if !ok || unknown.GlobalTransactionalID != "b" || !strings.Contains(err.Error(), "2 more") {
		t.Fatalf("got %v, want id b and 2 more", err)
	}
}

func TestCorruptionInTheMiddleNamesTheOffset(t *testing.T) {
	for name, kv := range map[string][2][]byte{
		"value": {key(t, "a"), {0, 0, 99}},
		"key":   {{0, 0, 0, 9, 'a'}, nil},
		"null":  {nil, []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.claim(1, 0)
			s.put(1, 0, "fine")
			err := s.feed(1, 0, kv[0], kv[1])
			if err == nil {
				err = s.replay.Finish()
			}
			corrupt, ok := errors.AsType[*CorruptError](err)
			if !ok || corrupt.Partition != 3 || corrupt.Offset != 102 {
				t.Fatalf("got %v, want corruption at partition 3, offset 102", corrupt)
			}
		})
	}
}

func TestAStrangersGarbageDoesNotStopReplay(t *testing.T) {
	s := newScript(t)
	s.claim(1, 0)
	if err := s.feed(9, 0, key(t, "a"), []byte{0xff}); err != nil {
		t.Fatal(err)
	}
	if err := s.feed(-1, -1, nil, nil); err != nil {
		t.Fatal(err)
	}
	s.want()
	s.wantForeign(101, 102)
}

func TestAnErrorOfTheConsumerEndsReplay(t *testing.T) {
	mine := errors.New("mine")
	r := Replay{Entry: func(Entry) error { return mine }}
	if err := r.Feed(RawRecord{Key: key(t, "a")}); !errors.Is(err, mine) {
		t.Fatalf("got %v, want the consumer's own error", err)
	}
}
