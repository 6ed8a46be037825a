package txnlog

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"

	"github.com/twmb/franz-go/pkg/kbin"
)

// The layout of a record, all numbers big-endian. The schemas in schema/ are
// the source of truth and a test holds this file to them. A key is plain, as
// Kafka's TransactionLogKey; a value is flexible (KIP-482): strings and arrays
// carry their length plus one as an unsigned varint, every struct ends with
// its tagged fields. A null value is a tombstone.
//
//	global transaction, key                claim, key   loss, key
//	┌───────┬──────────────────────────┐   ┌───────┐    ┌───────┬──────────────┐
//	│ int16 │ string                   │   │ int16 │    │ int16 │ int64        │
//	│ 0     │ global transactional id  │   │ 1     │    │ 2     │ first offset │
//	└───────┴──────────────────────────┘   └───────┘    └───────┴──────────────┘
//
//	global transaction, value
//	┌───────┬──────┬─────────┬──────────┬─────────┬──────┬──────┬───────┐
//	│ int16 │ int8 │ int32   │ int64    │ int32   │ uuid │ uuid │ bool  │
//	│ ver 0 │state │ global  │ sequence │ timeout │ inst │ prev │session│
//	│       │      │ epoch   │          │ ms      │ ance │ inst │ ended │
//	├───────┴──┬───┴─────────┴┬─────────┴─────┬───┴────┬─┴──────┴───────┤
//	│ []string │ []participant│ []participant │ string │ int64   │ int64│
//	│ clusters │ participants │ leftovers     │ reason │ decided │ upd. │ tags
//	└──────────┴──────────────┴───────────────┴────────┴─────────┴──────┘
//	tag 0: []string, the former clusters; absent when there are none
//
//	participant
//	┌─────────┬───────┬───────┬────────┬───────┬─────────┬─────────┐
//	│ string  │ int64 │ int16 │ int16  │ int8  │ int64   │ int16   │
//	│ cluster │ pid   │ epoch │ EndTxn │ state │ next    │ next    │
//	│         │       │       │ version│       │ pid     │ epoch   │
//	├─────────┼───────┴───┬───┴────┬───┴─────┬─┴─────────┴─────────┘
//	│ string  │ int32     │ int64  │ string  │
//	│ audit   │ audit     │ start  │ detail  │ tags
//	│ topic   │ partition │ ms     │         │
//	└─────────┴───────────┴────────┴─────────┘
//
//	claim, value
//	┌───────┬─────────┬─────────────┬───────┬───────────┬────────┐
//	│ int16 │ int32   │ int64       │ int16 │ int64     │ string │
//	│ ver 0 │ node id │ producer id │ epoch │ wall time │ host   │ tags
//	└───────┴─────────┴─────────────┴───────┴───────────┴────────┘
//
//	loss, value
//	┌───────┬─────────────┬───────────┬──────────┬────────┐
//	│ int16 │ int64       │ int64     │ string   │ string │
//	│ ver 0 │ last offset │ wall time │ operator │ reason │ tags
//	└───────┴─────────────┴───────────┴──────────┴────────┘
const (
	// TypeGlobalTransaction keys the state of one global transactional id.
	TypeGlobalTransaction int16 = 0
	// TypeClaim keys the claims of the partition. All have this one key, so
	// that of the claims in a compacted stretch of the log only the last is
	// left: with an older one of another producer kept beside it, replay
	// would take the records between the two for a stranger's.
	TypeClaim int16 = 1
	// TypeLoss keys an operator's word that a stretch of the partition is lost.
	TypeLoss int16 = 2

	valueVersion int16 = 0

	// minParticipantSize is the size of a participant of empty strings. A
	// count of participants that needs more bytes than are left is refused
	// before anything is allocated for it.
	minParticipantSize = 1 + 8 + 2 + 2 + 1 + 8 + 2 + 1 + 4 + 8 + 1 + 1
	// minTagSize is a tag number and the length of its data.
	minTagSize = 2

	// tagFormerClusterIDs is the tagged field of GlobalTransaction.FormerClusterIDs.
	tagFormerClusterIDs uint32 = 0
)

// MaxIDLength is the length in bytes of the longest global transactional id
// that a key can hold.
const MaxIDLength = math.MaxInt16

// Key is a decoded record key: of a global transactional id, or of a claim.
type Key struct {
	Type                  int16
	GlobalTransactionalID string // of TypeGlobalTransaction
	FirstOffset           int64  // of TypeLoss
}

// Claim is the value of a claim record. What gives a claim its effect are the
// producer id and epoch in the header of its batch, which the broker checks;
// the value repeats them and says, for people, who it was.
type Claim struct {
	NodeID          int32
	ProducerID      int64
	ProducerEpoch   int16
	TimestampMillis int64
	Host            string
	UnknownTags     map[uint32][]byte
}

// AppendKey appends the record key of a global transactional id to dst. An id
// of more than MaxIDLength bytes has no key.
func AppendKey(dst []byte, id string) ([]byte, error) {
	if len(id) > MaxIDLength {
		return dst, fmt.Errorf("txnlog: a global transactional id of %d bytes is longer than the maximum of %d", len(id), MaxIDLength)
	}
	dst = kbin.AppendInt16(dst, TypeGlobalTransaction)
	return kbin.AppendString(dst, id), nil
}

// AppendClaimKey appends the record key of a claim to dst.
func AppendClaimKey(dst []byte) []byte { return kbin.AppendInt16(dst, TypeClaim) }

// DecodeKey reads a record key. The error is an *UnknownTypeError, which a
// reader skips with a warning, or a *CorruptError.
func DecodeKey(src []byte) (Key, error) {
	r := kbin.Reader{Src: src}
	k := Key{Type: r.Int16()}
	if !r.Ok() {
		return Key{}, &CorruptError{Reason: "the key has no type"}
	}
	switch k.Type {
	case TypeGlobalTransaction:
		k.GlobalTransactionalID = r.String()
	case TypeClaim:
	case TypeLoss:
		k.FirstOffset = r.Int64()
	default:
		return k, &UnknownTypeError{Type: k.Type}
	}
	if !r.Ok() || len(r.Src) > 0 {
		return Key{}, &CorruptError{Reason: fmt.Sprintf("the key of type %d has %d bytes, which is not its length", k.Type, len(src))}
	}
	return k, nil
}

// AppendValue appends the record value of v to dst, the unknown tags that a
// newer writer left in it included.
func AppendValue(dst []byte, v *GlobalTransaction) []byte {
	dst = kbin.AppendInt16(dst, valueVersion)
	dst = kbin.AppendInt8(dst, int8(v.State))
	dst = kbin.AppendInt32(dst, v.GlobalEpoch)
	dst = kbin.AppendInt64(dst, v.Sequence)
	dst = kbin.AppendInt32(dst, v.TimeoutMillis)
	dst = kbin.AppendUuid(dst, v.InstanceID)
	dst = kbin.AppendUuid(dst, v.PreviousInstanceID)
	dst = kbin.AppendBool(dst, v.SessionEnded)
	dst = appendStrings(dst, v.ClusterIDs)
	dst = appendParticipants(dst, v.Participants)
	dst = appendParticipants(dst, v.Leftovers)
	dst = kbin.AppendCompactString(dst, v.Reason)
	dst = kbin.AppendInt64(dst, v.DecidedMillis)
	dst = kbin.AppendInt64(dst, v.UpdatedMillis)
	if len(v.FormerClusterIDs) == 0 {
		return appendTags(dst, v.UnknownTags)
	}
	tags := maps.Clone(v.UnknownTags)
	if tags == nil {
		tags = make(map[uint32][]byte, 1)
	}
	tags[tagFormerClusterIDs] = appendStrings(nil, v.FormerClusterIDs)
	return appendTags(dst, tags)
}

func appendStrings(dst []byte, all []string) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(all))
	for _, s := range all {
		dst = kbin.AppendCompactString(dst, s)
	}
	return dst
}

func appendParticipants(dst []byte, ps []Participant) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(ps))
	for i := range ps {
		p := &ps[i]
		dst = kbin.AppendCompactString(dst, p.ClusterID)
		dst = kbin.AppendInt64(dst, p.ProducerID)
		dst = kbin.AppendInt16(dst, p.ProducerEpoch)
		dst = kbin.AppendInt16(dst, p.EndTxnVersion)
		dst = kbin.AppendInt8(dst, int8(p.State))
		dst = kbin.AppendInt64(dst, p.NextProducerID)
		dst = kbin.AppendInt16(dst, p.NextProducerEpoch)
		dst = kbin.AppendCompactString(dst, p.AuditTopic)
		dst = kbin.AppendInt32(dst, p.AuditPartition)
		dst = kbin.AppendInt64(dst, p.StartMillis)
		dst = kbin.AppendCompactString(dst, p.Detail)
		if p.UnknownTags == "" {
			dst = append(dst, 0)
		} else {
			dst = append(dst, p.UnknownTags...)
		}
	}
	return dst
}

// DecodeValue reads the record value of a global transactional id; src must
// not be null. It keeps no reference to src. The error is an
// *UnknownVersionError or a *CorruptError, both still without the place.
func DecodeValue(src []byte) (*GlobalTransaction, error) { return decodeValue(src, new(shared)) }

// decodeValue takes what many records have in common from shared.
func decodeValue(src []byte, s *shared) (*GlobalTransaction, error) {
	r := reader{Reader: kbin.Reader{Src: src}, shared: s}
	if err := r.version(); err != nil {
		return nil, err
	}
	v := &GlobalTransaction{
		State:              State(r.enum("state", int8(StateDead))),
		GlobalEpoch:        r.Int32(),
		Sequence:           r.Int64(),
		TimeoutMillis:      r.Int32(),
		InstanceID:         r.Uuid(),
		PreviousInstanceID: r.Uuid(),
		SessionEnded:       r.bool("session ended"),
	}
	v.ClusterIDs = r.clusterIDs(&s.session)
	v.Participants = r.participants("participants", ParticipantHeuristicUnknown, v.ClusterIDs)
	v.Leftovers = r.participants("leftovers", ParticipantOrphaned, v.ClusterIDs)
	v.Reason = r.string("reason")
	v.DecidedMillis = r.Int64()
	v.UpdatedMillis = r.Int64()
	v.UnknownTags = r.tags(func(tag uint32) bool {
		if tag == tagFormerClusterIDs {
			v.FormerClusterIDs = r.clusterIDs(&s.former)
		}
		return tag == tagFormerClusterIDs
	})
	if err := r.complete(); err != nil {
		return nil, err
	}
	return v, nil
}

// participants reads a list whose states are up to last.
func (r *reader) participants(field string, last ParticipantState, session []string) []Participant {
	n := r.arrayLen(field, minParticipantSize)
	if n == 0 {
		return nil
	}
	ps := make([]Participant, n)
	for i := range ps {
		p := &ps[i]
		p.ClusterID = r.clusterID("participant cluster id", session)
		p.ProducerID = r.Int64()
		p.ProducerEpoch = r.Int16()
		p.EndTxnVersion = r.Int16()
		p.State = ParticipantState(r.enum("participant state", int8(last)))
		p.NextProducerID = r.Int64()
		p.NextProducerEpoch = r.Int16()
		p.AuditTopic = r.name("audit topic")
		p.AuditPartition = r.Int32()
		p.StartMillis = r.Int64()
		p.Detail = r.string("participant detail")
		p.UnknownTags = r.rawTags()
	}
	return ps
}

// AppendClaim appends the record value of a claim to dst.
func AppendClaim(dst []byte, c *Claim) []byte {
	dst = kbin.AppendInt16(dst, valueVersion)
	dst = kbin.AppendInt32(dst, c.NodeID)
	dst = kbin.AppendInt64(dst, c.ProducerID)
	dst = kbin.AppendInt16(dst, c.ProducerEpoch)
	dst = kbin.AppendInt64(dst, c.TimestampMillis)
	dst = kbin.AppendCompactString(dst, c.Host)
	return appendTags(dst, c.UnknownTags)
}

// DecodeClaim reads the record value of a claim; src must not be null. The
// errors are those of DecodeValue.
func DecodeClaim(src []byte) (*Claim, error) {
	r := reader{Reader: kbin.Reader{Src: src}}
	if err := r.version(); err != nil {
		return nil, err
	}
	c := &Claim{
		NodeID:          r.Int32(),
		ProducerID:      r.Int64(),
		ProducerEpoch:   r.Int16(),
		TimestampMillis: r.Int64(),
		Host:            r.string("host"),
		UnknownTags:     r.tags(func(uint32) bool { return false }),
	}
	if err := r.complete(); err != nil {
		return nil, err
	}
	return c, nil
}

// AppendLossKey appends the record key of a stretch that begins at offset first.
func AppendLossKey(dst []byte, first int64) []byte {
	return kbin.AppendInt64(kbin.AppendInt16(dst, TypeLoss), first)
}

// AppendLoss appends the record value of an accepted loss to dst.
func AppendLoss(dst []byte, l *Loss) []byte {
	dst = kbin.AppendInt16(dst, valueVersion)
	dst = kbin.AppendInt64(dst, l.LastOffset)
	dst = kbin.AppendInt64(dst, l.TimestampMillis)
	dst = kbin.AppendCompactString(dst, l.Operator)
	dst = kbin.AppendCompactString(dst, l.Reason)
	return appendTags(dst, l.UnknownTags)
}

// DecodeLoss reads the record value of an accepted loss; src must not be null. The
// errors are those of DecodeValue.
func DecodeLoss(src []byte) (*Loss, error) {
	r := reader{Reader: kbin.Reader{Src: src}}
	if err := r.version(); err != nil {
		return nil, err
	}
	l := &Loss{
		LastOffset:      r.Int64(),
		TimestampMillis: r.Int64(),
		Operator:        r.string("operator"),
		Reason:          r.string("reason"),
		UnknownTags:     r.tags(func(uint32) bool { return false }),
	}
	if err := r.complete(); err != nil {
		return nil, err
	}
	return l, nil
}

// valueVersionOf reads the version that every value begins with.
func valueVersionOf(src []byte) (int16, bool) {
	if len(src) < 2 {
		return 0, false
	}
	return int16(binary.BigEndian.Uint16(src)), true
}
