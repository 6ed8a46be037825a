package txnlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files anew; do so only for a format that has never been released")

func full() *GlobalTransaction {
	p := Participant{
		ClusterID: "us-cluster-id", ProducerID: 1<<62 + 7, ProducerEpoch: 32767, EndTxnVersion: 5,
		State: ParticipantHeuristicAbort, NextProducerID: -1, NextProducerEpoch: -1,
		AuditTopic: "orders", AuditPartition: 11, StartMillis: 1 << 40, Detail: "aborted by the cluster",
	}
	q := p
	q.ClusterID, q.State, q.Detail, q.AuditTopic = "eu", ParticipantPending, "", ""
	q.UnknownTags = "\x01\x07\x03abc"
	return &GlobalTransaction{
		State: StatePrepareCommit, GlobalEpoch: 3, Sequence: 41, TimeoutMillis: 60000,
		InstanceID:         UUID{0xde, 0xad, 15: 1},
		PreviousInstanceID: UUID{0xbe, 0xef, 15: 2},
		SessionEnded:       true,
		ClusterIDs:         []string{"us-cluster-id", "eu"},
		Participants:       []Participant{p, q},
		Leftovers:          []Participant{q},
		Reason:             "timed out after 60000 ms",
		DecidedMillis:      1790000000123, UpdatedMillis: 1790000000456,
		UnknownTags: map[uint32][]byte{1: {1}, 300: {2, 3}},
	}
}

// withFormer has every field, the tagged one and a state that only leftovers have
// among them.
func withFormer() *GlobalTransaction {
	v := full()
	v.FormerClusterIDs = []string{"asia", "eu-before"}
	v.Leftovers[0].State = ParticipantOrphaned
	return v
}

func claim() *Claim {
	return &Claim{NodeID: 7, ProducerID: 4000, ProducerEpoch: 12, TimestampMillis: 1790000000789, Host: "gtc-1"}
}

func loss() *Loss {
	return &Loss{LastOffset: 99, TimestampMillis: 1790000000789, Operator: "ann@gtc-1", Reason: "the checksum of the batch does not match"}
}

func key(tb testing.TB, id string) []byte {
	tb.Helper()
	k, err := AppendKey(nil, id)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// The golden files hold what a released version wrote. A change of format
// that they do not survive would make every log unreadable.
func TestFormatsHaveNotChanged(t *testing.T) {
	for name, got := range map[string][]byte{
		"global_transaction_key":          key(t, "mirror-eu-us-0"),
		"global_transaction_value":        AppendValue(nil, full()),
		"global_transaction_value_empty":  AppendValue(nil, &GlobalTransaction{}),
		"global_transaction_value_former": AppendValue(nil, withFormer()),
		"claim_key":                       AppendClaimKey(nil),
		"loss_key":                        AppendLossKey(nil, 7),
		"loss_value":                      AppendLoss(nil, loss()),
		"claim_value":                     AppendClaim(nil, claim()),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".hex")
			if *update {
				if err := os.WriteFile(file, []byte(hex.EncodeToString(got)+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if g, w := hex.EncodeToString(got), strings.TrimSpace(string(want)); g != w {
				t.Fatalf("wrote\n%s, but released versions write\n%s", g, w)
			}
		})
	}
}

func TestEverythingSurvivesARoundTrip(t *testing.T) {
	got, err := DecodeValue(AppendValue(nil, withFormer()))
	if err != nil || !reflect.DeepEqual(got, withFormer()) {
		t.Fatalf("got %+v, %v, want %+v", got, err, withFormer())
	}
	if e := got.Participants[0].ProducerEpoch; e != 32767 {
		t.Fatalf("producer epoch 32767 came back as %d", e)
	}
	c, err := DecodeClaim(AppendClaim(nil, claim()))
	if err != nil || !reflect.DeepEqual(c, claim()) {
		t.Fatalf("got %+v, %v, want %+v", c, err, claim())
	}
	l, err := DecodeLoss(AppendLoss(nil, loss()))
	if err != nil || !reflect.DeepEqual(l, loss()) {
		t.Fatalf("got %+v, %v, want %+v", l, err, loss())
	}
	for _, id := range []string{"", "mirror-eu-us-0", strings.Repeat("x", MaxIDLength), "\xff\x00"} {
		k, err := DecodeKey(key(t, id))
		if err != nil || k != (Key{Type: TypeGlobalTransaction, GlobalTransactionalID: id}) {
			t.Fatalf("key of %.20q came back as %+v, %v", id, k, err)
		}
	}
	if k, err := DecodeKey(AppendClaimKey(nil)); err != nil || k.Type != TypeClaim {
		t.Fatalf("claim key came back as %+v, %v", k, err)
	}
}

func TestAnIDThatFitsNoKeyIsRefused(t *testing.T) {
	if _, err := AppendKey(nil, strings.Repeat("x", MaxIDLength+1)); err == nil {
		t.Fatal("an id of 32768 bytes got a key")
	}
}

func genParticipants(last ParticipantState) *rapid.Generator[[]Participant] {
	return rapid.Map(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Participant {
		return Participant{
			ClusterID: rapid.String().Draw(t, "cluster"), ProducerID: rapid.Int64().Draw(t, "pid"),
			ProducerEpoch:  rapid.OneOf(rapid.Just(int16(math.MaxInt16)), rapid.Int16()).Draw(t, "epoch"),
			EndTxnVersion:  rapid.Int16().Draw(t, "version"),
			State:          ParticipantState(rapid.Int8Range(0, int8(last)).Draw(t, "state")),
			NextProducerID: rapid.Int64().Draw(t, "npid"), NextProducerEpoch: rapid.Int16().Draw(t, "nepoch"),
			AuditTopic: rapid.String().Draw(t, "topic"), AuditPartition: rapid.Int32().Draw(t, "partition"),
			StartMillis: rapid.Int64().Draw(t, "offset"), Detail: rapid.String().Draw(t, "detail"),
			UnknownTags: rapid.SampledFrom([]string{"", "\x01\x00\x00", "\x02\x01\x01a\x05\x02bc"}).Draw(t, "tags"),
		}
	}), 0, 4), func(ps []Participant) []Participant {
		if len(ps) == 0 {
			return nil
		}
		return ps
	})
}

func genValue(t *rapid.T) *GlobalTransaction {
	v := &GlobalTransaction{
		State:       State(rapid.Int8Range(0, 5).Draw(t, "state")),
		GlobalEpoch: rapid.Int32().Draw(t, "epoch"), Sequence: rapid.Int64().Draw(t, "sequence"),
		TimeoutMillis: rapid.Int32().Draw(t, "timeout"),
		InstanceID:    UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "instance")),
		SessionEnded:  rapid.Bool().Draw(t, "ended"),
		Participants:  genParticipants(ParticipantHeuristicUnknown).Draw(t, "participants"),
		Leftovers:     genParticipants(ParticipantOrphaned).Draw(t, "leftovers"),
		Reason:        rapid.String().Draw(t, "reason"),
		DecidedMillis: rapid.Int64().Draw(t, "decided"), UpdatedMillis: rapid.Int64().Draw(t, "updated"),
	}
	if ids := rapid.SliceOfN(rapid.String(), 0, 5).Draw(t, "clusters"); len(ids) > 0 {
		v.ClusterIDs = ids
	}
	if ids := rapid.SliceOfN(rapid.String(), 0, 5).Draw(t, "former clusters"); len(ids) > 0 {
		v.FormerClusterIDs = ids
	}
	if tags := rapid.MapOfN(rapid.Uint32Min(1), rapid.SliceOf(rapid.Byte()), 0, 4).Draw(t, "tags"); len(tags) > 0 {
		v.UnknownTags = tags
	}
	return v
}

func TestAnyValueSurvivesARoundTripAndNoPrefixOfItIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(t)
		b := AppendValue(nil, v)
		got, err := DecodeValue(b)
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Fatalf("got %+v, %v, want %+v", got, err, v)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := DecodeValue(b[:cut]); err == nil {
			t.Fatalf("%d of %d bytes were taken for a whole value", cut, len(b))
		}
		if _, err := DecodeValue(append(b, 0)); err == nil {
			t.Fatal("a byte too many was not noticed")
		}
	})
}

func TestBytesThatNoWriterWroteAreCorrupt(t *testing.T) {
	good := AppendValue(nil, &GlobalTransaction{ClusterIDs: []string{"A"}, UnknownTags: map[uint32][]byte{1: nil}})
	change := func(i int, b ...byte) []byte {
		return append(append(bytes.Clone(good[:i]), b...), good[i+1:]...)
	}
	tagsAt := len(good) - 3
	for name, b := range map[string][]byte{
		"no version":                   {0},
		"state 6":                      change(2, 6),
		"state -1":                     change(2, 0xff),
		"boolean 2":                    change(51, 2),
		"null cluster ids":             change(52, 0),
		"null cluster id":              change(53, 0),
		"cluster count beyond the end": change(52, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"participants beyond the end":  change(55, 0x80, 0x80, 0x80, 0x80, 0x01),
		"tag count beyond the end":     change(tagsAt, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"one tag twice":                append(bytes.Clone(good[:tagsAt]), 2, 1, 0, 1, 0),
		"tag data beyond the end":      append(bytes.Clone(good[:tagsAt]), 1, 1, 9, 0),
		"null former clusters":         append(bytes.Clone(good[:tagsAt]), 1, 0, 1, 0),
		"former clusters cut off":      append(bytes.Clone(good[:tagsAt]), 1, 0, 3, 3, 2, 'A'),
		"former clusters and more":     append(bytes.Clone(good[:tagsAt]), 1, 0, 4, 2, 2, 'A', 0),
		"an orphan that takes part":    AppendValue(nil, &GlobalTransaction{Participants: []Participant{{State: ParticipantOrphaned}}}),
		"a leftover in state 6":        AppendValue(nil, &GlobalTransaction{Leftovers: []Participant{{State: 6}}}),
	} {
		v, err := DecodeValue(b)
		if corrupt, ok := errors.AsType[*CorruptError](err); !ok || corrupt.Reason == "" {
			t.Errorf("%s: got %+v, %v, want a *CorruptError with a reason", name, v, err)
		}
	}
	for _, k := range [][]byte{nil, {0}, {0, 0}, {0, 0, 0, 2, 'a'}, {0, 0, 0, 1, 'a', 'b'}, {0, 0, 0xff, 0xff}, {0, 1, 0}, {0, 2, 0}} {
		if _, err := DecodeKey(k); !errors.As(err, new(*CorruptError)) {
			t.Errorf("key %x: got %v, want a *CorruptError", k, err)
		}
	}
}

func TestNewerFormatsAreNamed(t *testing.T) {
	b := AppendValue(nil, &GlobalTransaction{})
	b[1] = 1
	unknown, ok := errors.AsType[*UnknownVersionError](second(DecodeValue(b)))
	if !ok || unknown.Version != 1 {
		t.Fatalf("got %v, want version 1 named", unknown)
	}
	typ, ok := errors.AsType[*UnknownTypeError](second(DecodeKey([]byte{0, 9, 1, 2, 3})))
	if !ok || typ.Type != 9 {
		t.Fatalf("got %v, want type 9 named", typ)
	}
}

func second[T any](_ T, err error) error { return err }

func TestADecodedValueSharesNoMemoryWithItsRecord(t *testing.T) {
	b := AppendValue(nil, withFormer())
	v, err := DecodeValue(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = 0xee
	}
	if !reflect.DeepEqual(v, withFormer()) {
		t.Fatal("the decoded value changed with the buffer that it was read from")
	}
}

func FuzzDecodeValue(f *testing.F) {
	f.Add(AppendValue(nil, full()))
	f.Add(AppendValue(nil, withFormer()))
	f.Add(AppendValue(nil, &GlobalTransaction{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := DecodeValue(b)
		if err != nil {
			return
		}
		again, err := DecodeValue(AppendValue(nil, v))
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%+v was rewritten as %+v, %v", v, again, err)
		}
	})
}

func FuzzDecodeClaim(f *testing.F) {
	f.Add(AppendClaim(nil, claim()))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeClaim(b)
		if err != nil {
			return
		}
		again, err := DecodeClaim(AppendClaim(nil, c))
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v was rewritten as %+v, %v", c, again, err)
		}
	})
}

func FuzzDecodeLoss(f *testing.F) {
	f.Add(AppendLoss(nil, loss()))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := DecodeLoss(b)
		if err != nil {
			return
		}
		again, err := DecodeLoss(AppendLoss(nil, l))
		if err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("%+v was rewritten as %+v, %v", l, again, err)
		}
	})
}

func FuzzDecodeKey(f *testing.F) {
	f.Add(key(f, "mirror-eu-us-0"))
	f.Add(AppendClaimKey(nil))
	f.Add(AppendLossKey(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := DecodeKey(b)
		if err != nil {
			return
		}
		again := AppendClaimKey(nil)
		switch k.Type {
		case TypeGlobalTransaction:
			again = key(t, k.GlobalTransactionalID)
		case TypeLoss:
			again = AppendLossKey(nil, k.FirstOffset)
		}
		if !bytes.Equal(b, again) {
			t.Fatalf("key %x was rewritten as %x", b, again)
		}
	})
}

// The numbers are from jshell (Java 17): s.hashCode(), and Utils.abs of it
// modulo 50 and 7.
func TestPartitionForIsKafkas(t *testing.T) {
	for _, v := range []struct {
		id      string
		hash    int32
		of50, n int32
	}{
		{"", 0, 0, 0},
		{"a", 97, 47, 6},
		{"orders", -1008770331, 31, 2},
		{"mirror-eu-us-0", -1741453392, 42, 0},
		{"polygenelubricants", math.MinInt32, 0, 0},
		{"payments-é", 1612906057, 7, 0},
		{"漢字", 905333, 33, 2},
		{"😀-app", 928354999, 49, 5},
		{"us.tx.0001", -1300510245, 45, 6},
		{"gtc-conformance-12", 158526704, 4, 0},
		{"ABCDEFGHIJKLMNOP", -1819422456, 6, 5},
	} {
		if got := javaHash(v.id); got != v.hash {
			t.Errorf("hash of %q is %d, and %d in Java", v.id, got, v.hash)
		}
		if got := PartitionFor(v.id, 50); got != v.of50 {
			t.Errorf("%q of 50 goes to %d, and to %d in Kafka", v.id, got, v.of50)
		}
		if got := PartitionFor(v.id, 7); got != v.n {
			t.Errorf("%q of 7 goes to %d, and to %d in Kafka", v.id, got, v.n)
		}
	}
}
